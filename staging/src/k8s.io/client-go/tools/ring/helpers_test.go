/*
Copyright The Ringmaster Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package ring

import (
	"testing"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
)

func at(key int64) *int64 { return &key }

// member returns the record of an instance that is Active.
func member(name string, key *int64) Record {
	return Record{Name: name, UID: types.UID(name), Key: key, Phase: shardingv1alpha1.InstanceActive}
}

// joining returns the record of an instance that owns nothing yet and has asked donor,
// which has named the key next unless that is nil.
func joining(name, donor string, next *int64) Record {
	r := Record{Name: name, UID: types.UID(name), Donor: donor, Next: next, Phase: shardingv1alpha1.InstanceInit}
	if next != nil {
		r.Phase = shardingv1alpha1.InstanceLocked
	}
	return r
}

// warm returns the record with caches that follow these keys.
func warm(r Record, cached hashkey.Ranges) Record {
	r.Cached = cached
	return r
}

func span(start, end uint64) hashkey.Range { return hashkey.Range{Start: start, End: end} }

// keys returns the keys (after, upTo].
func keys(after, upTo int64) hashkey.Ranges { return hashkey.Between(after, upTo) }

// stored returns what the machine decides once the registry has what it reports.
func stored(m *Machine, in Input) Decision {
	in.Reported = m.Decide(in).Report
	return m.Decide(in)
}

var limits = Limits{Step: 30 * time.Second, Fill: 5 * time.Minute, Leave: 5 * time.Second}

// atLimit returns what the machine decides when the limit has passed since in.Now.
// Before that it must wait: write nothing, keep the gate open for these keys, and ask to
// decide again at the limit.
func atLimit(t *testing.T, m *Machine, in Input, limit time.Duration, open hashkey.Ranges) Decision {
	t.Helper()
	end := in.Now + limit
	for _, now := range []time.Duration{in.Now, end - 1} {
		in.Now = now
		if d := m.Decide(in); d.Write != nil || d.Wake != end || !d.Open.Equal(open) {
			t.Errorf("at %v of a wait until %v: open %v, writes %+v, wakes at %v; want %v open and nothing written before the end",
				now, end, d.Open, d.Write, d.Wake, open)
		}
	}
	in.Now = end
	return m.Decide(in)
}

// nextGeneration returns the generation of r, which replaces old, as the server counts
// it: a change of the spec raises it, news in the status does not.
func nextGeneration(old, r Record) int64 {
	same := func(a, b *int64) bool { return a == b || a != nil && b != nil && *a == *b }
	if old.UID == r.UID && same(old.Key, r.Key) && same(old.Next, r.Next) && old.Donor == r.Donor && old.Drained == r.Drained {
		return old.Generation
	}
	return old.Generation + 1
}

// noKeys are those of no object.
var noKeys = []int64{}
