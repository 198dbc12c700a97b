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

package member

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/client-go/tools/ring/balance"
	"k8s.io/klog/v2"
)

// heavyAfter is for how long a key must have been heavy to be warned of: the weights of others may
// be late, as at the start of a ring.
const heavyAfter = time.Minute

// heavy is a key that is heavy.
type heavy struct {
	key int64
	// since is when it was found to be heavy first, zero: none is.
	since  time.Time
	warned bool
}

// watchHeaviest warns of the heaviest key of the instance if it is heavy, and stays so.
func (t *term) watchHeaviest(ctx context.Context, now time.Time, l load) {
	key, n := l.key, int(l.heaviest)
	share, is := balance.Heavy(t.self.Name, l.weight, n, t.machine.View())
	t.cfg.Metrics.Heaviest(share)
	switch {
	case !is:
		t.heavy = heavy{}
	case t.heavy.since.IsZero() || t.heavy.key != key:
		t.heavy = heavy{key: key, since: now}
	}
	if !is || t.heavy.warned || now.Sub(t.heavy.since) < heavyAfter {
		return
	}
	t.heavy.warned = true
	what := "hash key " + hashkey.Format(key)
	if t.cfg.Describe != nil {
		what = t.cfg.Describe(key)
	}
	klog.FromContext(ctx).Info("One key is a large part of the ring's load, and no range can be split within it", "key", hashkey.Format(key), "of", what, "objects", n, "share", share)
	t.cfg.Events.Eventf(reference(t.observer.self), v1.EventTypeWarning, eventHeavy,
		"%s has %d objects, %.0f %% of the load of ring %s, which cannot be split: its owner has more to do than others, however many instances there are", what, n, 100*share, t.cfg.Ring)
}
