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
	"slices"
	"testing"
	"testing/synctest"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/balance"
)

// refusedWrites counts the writes of specs, and the news, that the registry refused.
func (r *registry) refusedWrites() int {
	return len(r.got(func(q request) bool { return q.refused && (q.part == partSpec || q.part == partNews) }))
}

// lag makes all watches lag.
func (r *registry) lag(d time.Duration) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.delay = d
}

func TestAJoinAndMovesEndSoonThoughTheLogLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Those who are not waiting yet learn of it when the log has come to it. From then on
		// each step takes a second or two.
		const limit = 7 * time.Second
		r := newRegistry(t)
		a := newInstance(t, r)
		a.start()
		a.serves(hashkey.All())
		r.lag(3 * time.Second)

		began := time.Now()
		b := newInstance(t, r)
		b.start()
		b.serves(lower)
		t.Logf("a join took %v", time.Since(began))
		if took := time.Since(began); took > limit {
			t.Errorf("a join took %v, want %v at most", took, limit)
		}
		a.serves(upper)
		time.Sleep(10 * time.Second)

		// Down, and up again.
		for _, to := range []int64{1 << 61, 1 << 62} {
			began = time.Now()
			record := b.record()
			record.Spec.NextHashKey = (*shardingv1alpha1.HashKey)(key(to))
			record.Generation++
			r.edit(record)
			rest := hashkey.Between(hashkey.Max, to)
			b.serves(rest)
			a.serves(hashkey.All().Minus(rest))
			t.Logf("a move took %v", time.Since(began))
			if took := time.Since(began); took > limit {
				t.Errorf("a move took %v, want %v at most", took, limit)
			}
			time.Sleep(10 * time.Second)
		}
		if n := r.refusedWrites(); n > 20 {
			t.Errorf("%d writes were refused, want 20 at most", n)
		}
	})
}

// It has nothing to write meanwhile, and no time limit.
func TestTheReceiverOfARangeLooksAheadWhileItsDonorDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		a, b := two(t, r)
		r.lag(3 * time.Second)
		leave := b.work(1<<61 + 1)
		record := b.record()
		record.Spec.NextHashKey = (*shardingv1alpha1.HashKey)(key(1 << 61))
		record.Generation++
		r.edit(record)
		time.Sleep(15 * time.Second)
		began := time.Now()
		leave()
		a.serves(hashkey.All().Minus(hashkey.Between(hashkey.Max, 1<<61)))
		if took := time.Since(began); took > 3*lookInterval/2 {
			t.Errorf("the receiver works on its range %v after the donor had drained", took)
		}
	})
}

func TestTheRegistryIsNotListedWhileTheLogDoesNotLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		// To even out the load it decides later, and again and again, without waiting for anybody.
		a, b := two(t, r, func(c *Config) {
			c.Balance = func() *balance.Config { return &balance.Config{Settings: balance.Default} }
		})
		record := b.record()
		record.Spec.NextHashKey, record.Spec.PinnedHashKey = (*shardingv1alpha1.HashKey)(key(1<<61)), (*shardingv1alpha1.HashKey)(key(1<<61))
		record.Generation++
		r.edit(record)
		b.serves(hashkey.Between(hashkey.Max, 1<<61))
		time.Sleep(time.Minute)
		a.work(1 << 62)()
		// Those of the registrations.
		if n := len(r.got(ofVerb("list"))); n != 2 {
			t.Errorf("the registry was listed %d times, want twice", n)
		}
	})
}

func TestAMemberThatWaitsForAPeerListsTheRegistryEverySecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		a := newInstance(t, r)
		a.start()
		a.serves(hashkey.All())
		leave := a.work(1)
		defer leave()
		b := newInstance(t, r)
		b.start()
		eventually(t, "the donor drains", func() bool { return a.record().Status.Phase == shardingv1alpha1.InstanceWait })
		before := len(r.got(ofVerb("list")))
		time.Sleep(10 * time.Second)
		// Both wait.
		if n := len(r.got(ofVerb("list"))) - before; n < 18 || n > 20 {
			t.Errorf("the registry was listed %d times in 10s", n)
		}
	})
}

// A list that overtakes the watch is taken whole, and what the watch sends afterwards of the
// time before is skipped.
func TestAListOvertakesTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		r := newRegistry(t)
		i := newInstance(t, r)
		r.lag(3 * time.Second)
		term := i.reading()
		r.edit(peer(key(5)))
		term.decide(ctx, false) // It is Init, so it waits for others.
		time.Sleep(lookInterval / 2)
		r.edit(peer(key(99)))
		listed := r.revision()
		time.Sleep(lookInterval / 2)
		term.decide(ctx, false)
		term.settle()
		expectPeer(t, term, hashkey.Format(99), listed)
		r.remove("peer")
		gone := r.revision()
		for range 5 {
			time.Sleep(r.delay / 6)
			term.settle()
			expectPeer(t, term, hashkey.Format(99), listed)
		}
		time.Sleep(r.delay / 6)
		term.settle()
		expectPeer(t, term, "gone", gone)
	})
}

func TestAListIsTakenOnlyIfItIsAheadAndNobodyWaitsForCaches(t *testing.T) {
	for name, tc := range map[string]struct {
		news bool
		// log is how far the log has been read.
		log    int64
		asking bool
		taken  bool
	}{
		"it has something new":                {news: true, taken: true},
		"it has nothing new but its revision": {},
		"it is older":                         {news: true, log: 10},
		// The machine would have the caches begin anew each time.
		"the gate waits for the caches": {news: true, asking: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := testContext(t)
				term := newInstance(t, newRegistry(t)).slow().registered(ctx)
				list := *term.machine.View()
				if tc.news {
					list = *list.With(ring.Record{Name: "x", Revision: 8})
				}
				list.Revision = 9
				if tc.log > 0 {
					term.readTo(tc.log)
				}
				if tc.asking {
					term.hold(ctx, low, 1)
				}
				term.overtake(testContext(t), &list)
				if taken := term.machine.View() == &list; taken != tc.taken {
					t.Errorf("the list was taken: %t, want %t", taken, tc.taken)
				}
			})
		})
	}
}

// Not even a connection that breaks tells of it.
func TestAWatchOfTheRegistryThatHasGoneSilentIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		a, b := two(t, r)
		r.silence()
		time.Sleep(10 * lease)
		began, gone := time.Now(), b.record().Name
		r.remove(gone)
		eventually(t, "the other's end is seen", func() bool {
			return !slices.ContainsFunc(a.Snapshot().Records, func(r RecordState) bool { return r.Name == gone })
		})
		if took := time.Since(began); took > 2*lease+lookInterval {
			t.Errorf("the other's end was seen after %v", took)
		}
	})
}
