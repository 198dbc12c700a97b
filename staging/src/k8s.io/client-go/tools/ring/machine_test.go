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

func member(name string, key *int64) Record {
	return Record{Name: name, UID: types.UID(name), Key: key, Phase: shardingv1alpha1.InstanceActive}
}

func span(start, end uint64) hashkey.Range { return hashkey.Range{Start: start, End: end} }

func TestOwnedFollowsTheOrderOfKeys(t *testing.T) {
	for name, tc := range map[string]struct {
		records []Record
		want    map[string]hashkey.Ranges
	}{
		"one owns all, wherever its key is": {
			records: []Record{member("a", at(100))},
			want:    map[string]hashkey.Ranges{"a": hashkey.All()},
		},
		"the lowest also owns what lies above the highest": {
			records: []Record{member("a", at(200)), member("b", at(100)), member("new", nil)},
			want: map[string]hashkey.Ranges{
				"a":   hashkey.NewRanges(span(101, 201)),
				"b":   hashkey.NewRanges(span(0, 101), span(201, hashkey.Limit)),
				"new": nil,
			},
		},
		"the highest key leaves nothing above": {
			records: []Record{member("a", at(hashkey.Max)), member("b", at(0))},
			want: map[string]hashkey.Ranges{
				"a": hashkey.NewRanges(span(1, hashkey.Limit)),
				"b": hashkey.NewRanges(span(0, 1)),
			},
		},
		"of two with the same key only one owns anything": {
			records: []Record{member("a", at(7)), member("b", at(7))},
			want:    map[string]hashkey.Ranges{"a": hashkey.All(), "b": nil},
		},
	} {
		t.Run(name, func(t *testing.T) {
			view := NewView(1, tc.records...)
			for instance, want := range tc.want {
				if got := view.Owned(instance); !got.Equal(want) {
					t.Errorf("%s owns %v, want %v", instance, got, want)
				}
			}
		})
	}
}

func TestSplitHalvesTheObjects(t *testing.T) {
	for name, tc := range map[string]struct {
		records []Record
		keys    []int64
		want    int64
	}{
		"the middle of the whole line without objects": {
			records: []Record{member("a", at(hashkey.Max))},
			want:    hashkey.Max / 2,
		},
		"the lower median of the objects": {
			records: []Record{member("a", at(hashkey.Max))},
			keys:    []int64{900, 10, 30, 20},
			want:    20,
		},
		"counted along the ring where the range goes round the seam": {
			// b owns [0, 100] and what lies above 1000.
			records: []Record{member("a", at(1000)), member("b", at(100))},
			keys:    []int64{5, 50, 2000, 3000, 4000, 6},
			want:    4000,
		},
		"the middle where all objects share the owner's key": {
			records: []Record{member("a", at(100)), member("b", at(200))},
			keys:    []int64{200, 200, 200},
			want:    150,
		},
		"a range of two keys": {
			records: []Record{member("a", at(100)), member("b", at(102))},
			want:    101,
		},
	} {
		t.Run(name, func(t *testing.T) {
			view := NewView(1, tc.records...)
			owner := tc.records[len(tc.records)-1].Name
			if got := split(view.Owned(owner), view, owner, tc.keys); got != tc.want {
				t.Errorf("split at %d, want %d", got, tc.want)
			}
		})
	}
}

// A donor whose record has gone may have a grant on its way. The newcomer must
// not use such a key: the donor's successor works on it.
func TestAGrantOfADeadDonorIsGivenBack(t *testing.T) {
	newcomer := Record{Name: "n", UID: "n", Donor: "d", Next: at(100), Phase: shardingv1alpha1.InstanceLocked, Revision: 3}
	view := NewView(3, member("d", at(200)), member("s", at(hashkey.Max)), newcomer)
	granted := newcomer
	granted.Key, granted.Next, granted.Revision = at(100), nil, 5

	alive := NewMachine("n", view, Limits{Step: time.Minute})
	alive.Apply(granted)
	if d := alive.Decide(Input{Now: 1}); !d.Open.Equal(hashkey.NewRanges(span(0, 101))) || d.Since != 5 {
		t.Errorf("a living donor's grant: open %v since %d, want [0, 101) since 5", d.Open, d.Since)
	}

	dead := NewMachine("n", view, Limits{Step: time.Minute})
	dead.Remove("d", 4)
	dead.Apply(granted)
	d := dead.Decide(Input{Now: 1})
	if !d.Open.Empty() {
		t.Errorf("a dead donor's grant opened the gate for %v", d.Open)
	}
	if d.Write == nil || d.Write.Reason != ReasonRefuse || d.Write.Key != nil || d.Write.Revision != 5 {
		t.Errorf("a dead donor's grant: wrote %+v, want it given back", d.Write)
	}

	// Seen only after a gap in the log, nothing tells whose the key was.
	unknown := NewMachine("n", view, Limits{Step: time.Minute})
	unknown.Replace(NewView(6, granted, member("d", at(200)), member("s", at(hashkey.Max))))
	if d := unknown.Decide(Input{Now: 1}); !d.Open.Empty() || d.Write == nil || d.Write.Reason != ReasonRefuse {
		t.Errorf("a grant behind a gap: open %v, wrote %+v, want it given back", d.Open, d.Write)
	}
}

func TestOnlyTheOldestTakesAnEmptyRing(t *testing.T) {
	older := Record{Name: "z", UID: "z", Revision: 1}
	self := Record{Name: "a", UID: "a", Revision: 2}
	m := NewMachine("a", NewView(2, older, self), Limits{Step: time.Minute})
	if d := m.Decide(Input{Now: 1}); d.Write != nil {
		t.Errorf("a younger instance wrote %+v", d.Write)
	}
	m.Remove("z", 3)
	d := m.Decide(Input{Now: 2})
	if d.Write == nil || d.Write.Reason != ReasonFirst || *d.Write.Key != hashkey.Max {
		t.Errorf("the oldest instance left wrote %+v, want everything for itself", d.Write)
	}
}

// While a donor drains, its predecessor's death must not open what will be the
// receiver's.
func TestAPredecessorsDeathDoesNotReopenWhatIsGivenAway(t *testing.T) {
	receiver := Record{Name: "n", UID: "n", Donor: "d", Next: at(150), Revision: 3, Phase: shardingv1alpha1.InstanceLocked}
	m := NewMachine("d", NewView(3, member("a", at(100)), member("d", at(200)), member("z", at(hashkey.Max)), receiver), Limits{Step: time.Minute})
	all := hashkey.All()
	busy := func(hashkey.Ranges) bool { return false }
	m.Decide(Input{Now: 1, Serving: all, Idle: busy})
	receiver.Cached, receiver.Revision = hashkey.NewRanges(span(101, 151)), 4
	m.Apply(receiver)
	keep := hashkey.NewRanges(span(151, 201))
	if d := m.Decide(Input{Now: 2, Serving: all, Idle: busy}); !d.Open.Equal(keep) || d.Phase != shardingv1alpha1.InstanceWait {
		t.Fatalf("draining: %s, open %v, want Wait with %v", d.Phase, d.Open, keep)
	}
	m.Remove("a", 5)
	d := m.Decide(Input{Now: 3, Serving: keep, Idle: busy})
	if !d.Open.Equal(keep) {
		t.Errorf("after the predecessor's death: open %v, want %v", d.Open, keep)
	}
	if !d.Owned.Equal(hashkey.NewRanges(span(0, 201))) {
		t.Errorf("after the predecessor's death: owned %v, want [0, 201)", d.Owned)
	}
	d = m.Decide(Input{Now: 4, Serving: keep, Idle: func(hashkey.Ranges) bool { return true }})
	if d.Write == nil || d.Write.Reason != ReasonGrant || *d.Write.Key != 150 {
		t.Errorf("drained: wrote %+v, want the grant", d.Write)
	}
}
