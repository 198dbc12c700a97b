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
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/client-go/tools/ring"
)

// scene is a history without faults but its own.
func scene(t *testing.T, history func(*world)) {
	t.Parallel()
	inWorld(t, 1, faults{}, history)
}

// part is how much of the line of keys these are.
func part(r hashkey.Ranges) float64 { return float64(r.Width()) / float64(hashkey.Limit) }

// takes has all fills take as long as f says for the part of the line that they are.
func (w *world) takes(f func(part float64) time.Duration) {
	w.fillTime = func(_ *informer, r hashkey.Ranges) time.Duration { return f(part(r)) }
}

// filled is how often the ring was filled, in each cache on average.
func (w *world) filled() float64 {
	sum, caches := 0.0, 0
	for _, p := range w.all() {
		for _, s := range p.sources {
			s.lock.Lock()
			sum, caches = sum+s.filled, len(p.sources)
			s.lock.Unlock()
		}
	}
	return sum / float64(caches)
}

// registered is how often processes have registered.
func (w *world) registered() int {
	n := 0
	for _, p := range w.all() {
		n += int(p.registrations.Load())
	}
	return n
}

// record returns that of a process.
func (p *process) record() ring.Record {
	for _, r := range p.world.view().Records() {
		if p.holds(*r) {
			return *r
		}
	}
	return ring.Record{}
}

// drain has a person drain the process's instance, or end that.
func (p *process) drain(drained bool) {
	p.world.edit(p.record().Name, func(i *shardingv1alpha1.ControllerInstance) { i.Spec.Drained = drained })
}

// die kills the process, and ends its record.
func (p *process) die() {
	r := p.record()
	p.kill()
	p.world.registry.remove(r.Name)
}

// measure forgets for how long tasks have had no worker.
func (w *world) measure() {
	w.judge.pause()
	w.judge.unserved = 0
	w.judge.start()
}

// unserved is for how long since then, on average of so many.
func (w *world) unserved(tasks int) time.Duration {
	w.judge.pause()
	defer w.judge.start()
	return w.judge.unserved / time.Duration(tasks)
}

// formEven has processes share the ring evenly, and measures from then on.
func (w *world) formEven(n int, change ...func(*Config)) {
	w.form(n, change...)
	time.Sleep(time.Minute)
	w.measure()
}

// allTasks is how many there are.
var allTasks = worldKeys * len(worldControllers)

// An instance that renews each sixth of a lease, whatever is unanswered, outlives each of these.
func TestNoRecordIsLostWhereRenewalsAreOnlySlow(t *testing.T) {
	for _, c := range []struct {
		name string
		condition
		lasts time.Duration
	}{
		{"2.1 s, for 4 s", condition{latency: seconds(2.1)}, seconds(4)},
		{"3 s, for 20 s", condition{latency: seconds(3)}, seconds(20)},
		{"4.5 s, for 20 s", condition{latency: seconds(4.5)}, seconds(20)},
		{"5.5 s, for 20 s", condition{latency: seconds(5.5)}, seconds(20)},
		{"8 s, for 20 s", condition{latency: seconds(8)}, seconds(20)},
		{"9 s, for 20 s", condition{latency: seconds(9)}, seconds(20)},
		{"3 s, a fifth lost", condition{latency: seconds(3), lost: 0.2}, seconds(20)},
		{"4.5 s, a fifth lost", condition{latency: seconds(4.5), lost: 0.2}, seconds(20)},
		{"30 % errors", condition{failing: 0.3}, seconds(60)},
		{"60 % errors", condition{failing: 0.6}, seconds(60)},
		{"no answers for 5 s", condition{reach: reachNobody}, seconds(5)},
		{"no answers for 7.5 s", condition{reach: reachNobody}, seconds(7.5)},
		{"no answers for 9 s", condition{reach: reachNobody}, seconds(9)},
		{"refusals for 9 s", condition{reach: reachRefusal}, seconds(9)},
	} {
		t.Run(c.name, func(t *testing.T) {
			scene(t, func(w *world) {
				w.formEven(4)
				before := w.registered()
				w.network.impose(c.condition, c.lasts)
				time.Sleep(2 * time.Minute)
				lost, unserved := w.registered()-before, w.unserved(allTasks)
				t.Logf("%d records of 4 were lost; a task had no worker for %v on average", lost, unserved)
				if c.lost > 0 {
					// One in five thousand loses all renewals of 15 s, by chance.
					if lost > 1 {
						t.Error("want one at most")
					}
				} else if lost > 0 || unserved > 0 {
					t.Error("want none, and a worker for each task all the time")
				}
			})
		})
	}
}

func TestNoRecordIsLostWithAConnection(t *testing.T) {
	scene(t, func(w *world) {
		w.formEven(4)
		before := w.registered()
		for _, p := range w.living() {
			p.transport.die()
		}
		time.Sleep(2 * time.Minute)
		lost, unserved := w.registered()-before, w.unserved(allTasks)
		t.Logf("%d records of 4 were lost; a task had no worker for %v on average", lost, unserved)
		if lost > 0 || unserved > 0 {
			t.Error("want none, and a worker for each task all the time")
		}
	})
}

// Who comes back is told what to follow before all others have come.
func TestAllThatLoseTheirRecordsFillLittleAnew(t *testing.T) {
	for name, lose := range map[string]func(*world){
		"deleted": func(w *world) {
			for _, r := range w.view().Records() {
				w.registry.remove(r.Name)
			}
		},
		"expired": func(w *world) { w.network.impose(condition{reach: reachNobody}, time.Minute) },
		"expired, and all is slow": func(w *world) {
			w.network.impose(condition{reach: reachNobody}, 20*time.Second)
			w.network.impose(condition{latency: seconds(2)}, 5*time.Minute)
		},
	} {
		for _, n := range []int{2, 4, 10} {
			t.Run(fmt.Sprintf("%d, %s", n, name), func(t *testing.T) {
				scene(t, func(w *world) {
					// Balance fills what it moves, minutes later.
					w.formEven(n, func(c *Config) { c.Balance = nil })
					filled := w.filled()
					lose(w)
					time.Sleep(10 * time.Minute)
					again := w.filled() - filled
					t.Logf("%.2f of the ring was filled anew", again)
					if again > 0.1 {
						t.Error("want a tenth at most: their caches hold it")
					}
				})
			})
		}
	}
}

// Each process has room for less than the whole ring.
func TestARingThatFitsInNoProcessStartsAgain(t *testing.T) {
	const room, after, judged = 0.6, 20 * time.Minute, 5 * time.Minute
	scene(t, func(w *world) {
		w.formEven(4)
		w.takes(func(part float64) time.Duration { return seconds(60 * part) })
		deaths := 0
		for _, r := range w.view().Records() {
			w.registry.remove(r.Name)
		}
		watch := func(span time.Duration) {
			for until := time.Now().Add(span); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
				for _, p := range w.living() {
					if slices.ContainsFunc(p.sources, func(s *informer) bool { return part(s.Held()) > room }) {
						deaths++
						p.kill()
						w.running.Go(func() { time.Sleep(10 * time.Second); w.start(p.place) })
					}
				}
			}
		}
		watch(after)
		w.measure()
		watch(judged)
		served := 1 - w.unserved(allTasks).Seconds()/judged.Seconds()
		t.Logf("in 25 minutes %d processes died; in the last 5 of them %.0f %% of keys x time had a worker", deaths, 100*served)
		if served < 0.95 {
			t.Error("want nearly all")
		}
	})
}

// All at once would be more than it can hold.
func TestTheRingsOfAProcessShareItsCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heap := newHeap(func() (uint64, uint64) { return 1 << 24, 1 })
		var rings []*world
		for range 4 {
			w := newWorld(t, 1, faults{})
			defer w.end()
			w.form(1)
			w.takes(func(float64) time.Duration { return 20 * time.Second })
			rings = append(rings, w)
		}
		all := int64(0)
		for _, s := range rings[0].living()[0].sources {
			all += int64(len(s.Keys(hashkey.All())))
		}
		// Half of one ring fits, and half of each of two does not.
		capacity := all * 6 / 10
		for _, w := range rings {
			w.start("limited", func(c *Config) { c.Heap, c.Capacity = heap, func() int64 { return capacity } })
		}
		most := int64(0)
		for range 300 {
			time.Sleep(time.Second)
			most = max(most, heap.total())
		}
		t.Logf("of rings with %d objects each, it has held %d at most", all, most)
		if most == 0 || most > capacity {
			t.Errorf("want some, and %d at most", capacity)
		}
	})
}

func TestTheGateOpensForEachPartThatIsReady(t *testing.T) {
	const fill = 25 * time.Second
	for name, second := range map[string]time.Duration{"the second fills, too": fill, "the second never fills": time.Hour} {
		t.Run(name, func(t *testing.T) {
			scene(t, func(w *world) {
				w.formEven(3)
				owners := w.view().Ring()
				first, last := w.of(*owners[0]), w.of(*owners[2])
				w.takes(func(float64) time.Duration { return fill })
				what := task{worldControllers[0], *owners[0].Key}
				first.die()
				died := time.Now()
				time.Sleep(20 * time.Second)
				w.takes(func(float64) time.Duration { return second })
				last.die()
				for time.Since(died) < 2*time.Minute && len(serving(w.living(), what)) == 0 {
					time.Sleep(50 * time.Millisecond)
				}
				out := time.Since(died)
				t.Logf("the first range had no worker for %v", out)
				if out > fill+time.Second {
					t.Errorf("want about %v", fill)
				}
			})
		})
	}
}

func TestWorkThatNeverEndsTakesNobodyOff(t *testing.T) {
	scene(t, func(w *world) {
		w.formEven(3)
		before := w.registered()
		w.quiet.Store(true)
		w.stuck.Store(&task{worldControllers[0], w.keys[3]})
		const span = 10 * time.Minute
		time.Sleep(span)
		lost, unserved, rest := w.registered()-before, w.unserved(allTasks), len(w.view().Ring())
		t.Logf("after %v %d of 3 own a range, there were %d more registrations, and a task had no worker for %v on average", span, rest, lost, unserved)
		if lost > 0 || rest < 3 || unserved > 0 {
			t.Error("want all to stay as they are")
		}
	})
}

// A move is to leave the key behind on which work never ends.
func TestWorkThatNeverEndsHoldsUpItsOwnKeyOnly(t *testing.T) {
	scene(t, func(w *world) {
		w.formEven(2)
		owners := w.view().Ring()
		stuck := w.keys[slices.Index(w.keys, 12345)+2]
		w.stuck.Store(&task{worldControllers[0], stuck})
		time.Sleep(10 * time.Second)
		// All but the first key of the range are to go, and the third is stuck.
		to := w.keys[0]
		w.edit(owners[0].Name, func(i *shardingv1alpha1.ControllerInstance) { i.Spec.NextHashKey = (*shardingv1alpha1.HashKey)(&to) })
		time.Sleep(time.Minute)
		unserved := w.unserved(allTasks)
		t.Logf("a task had no worker for %v on average", unserved)
		if unserved > time.Second {
			t.Error("want a moment at most")
		}
	})
}

func TestWhoIsNotInAHurryLeavesWarm(t *testing.T) {
	for name, leave := range map[string]func(*process){
		"drain":  func(p *process) { p.drain(true) },
		"delete": func(p *process) { p.world.registry.askToLeave(p.record().Name) },
	} {
		t.Run(name, func(t *testing.T) {
			scene(t, func(w *world) {
				w.formEven(2)
				w.takes(func(float64) time.Duration { return 40 * time.Second })
				p := w.living()[0]
				r := p.record()
				tasks := 0
				for _, key := range w.keys {
					if w.view().Owned(r.Name).Contains(key) {
						tasks += len(worldControllers)
					}
				}
				leave(p)
				time.Sleep(2 * time.Minute)
				out := w.unserved(tasks)
				t.Logf("with fills of 40 s its tasks had no worker for %v on average", out)
				if out > pauseAllowed {
					t.Error("want the pause of a join")
				}
			})
		})
	}
}

func TestADrainedOwnerIsNotLeftForOneThatCrashesAgainAndAgain(t *testing.T) {
	scene(t, func(w *world) {
		w.formEven(1)
		w.quiet.Store(true)
		w.living()[0].drain(true)
		const span = 30 * time.Minute
		crashes := 0
		for begun := time.Now(); time.Since(begun) < span; {
			p := w.start("host1")
			for time.Since(begun) < span && p.record().Key == nil {
				time.Sleep(100 * time.Millisecond)
			}
			time.Sleep(10 * time.Second)
			p.kill()
			crashes++
			time.Sleep(time.Second)
		}
		out := w.unserved(allTasks).Seconds() / span.Seconds()
		t.Logf("in %v, with %d crashes, %.1f %% of keys x time had no worker", span, crashes, 100*out)
		// One that dies again and again is let in about once in five minutes.
		if out > 0.1 {
			t.Error("want a tenth at most")
		}
	})
}

func TestADrainedInstanceFollowsNothing(t *testing.T) {
	scene(t, func(w *world) {
		w.formEven(2)
		p := w.living()[0]
		p.drain(true)
		time.Sleep(5 * time.Minute)
		s := p.sources[0]
		s.lock.Lock()
		defer s.lock.Unlock()
		t.Logf("five minutes later its sources are to follow %v, and hold %v", s.follow, s.held)
		if !s.follow.Empty() || !s.held.Empty() {
			t.Error("want nothing")
		}
	})
}

func TestAnUndrainIsKeptWhereTheInstanceRegistersAnew(t *testing.T) {
	scene(t, func(w *world) {
		w.formEven(2)
		p := w.living()[0]
		// The watch does not tell it before it has registered anew.
		w.registry.lock.Lock()
		w.registry.delay = 50 * time.Millisecond
		w.registry.lock.Unlock()
		var undrained atomic.Bool
		w.registry.intercept(func(_ context.Context, q request) error {
			if q.verb == "delete" && undrained.CompareAndSwap(false, true) {
				w.edit(q.name, func(i *shardingv1alpha1.ControllerInstance) { i.Spec.Drained = false })
			}
			return nil
		})
		p.drain(true)
		time.Sleep(5 * time.Minute)
		r := p.record()
		t.Logf("undrained just before it deleted its record, five minutes later its next one says drained: %v, and owns a range: %v", r.Drained, r.Key != nil)
		if r.Drained || r.Key == nil {
			t.Error("want it to own a range again")
		}
	})
}

func TestAShareThatIsNotFilledInTimeIsHalved(t *testing.T) {
	scene(t, func(w *world) {
		w.formEven(1)
		w.quiet.Store(true)
		// Half of all is too much for fillSteps * DefaultStepLimit, a quarter is not.
		w.takes(func(part float64) time.Duration { return seconds(800 * part) })
		p := w.start("host1")
		began := time.Now()
		for time.Since(began) < 20*time.Minute && p.record().Key == nil {
			time.Sleep(time.Second)
		}
		owns := part(w.view().Owned(p.record().Name))
		t.Logf("after %v the newcomer owns %.2f of all keys", time.Since(began).Round(time.Second), owns)
		if owns == 0 {
			t.Error("want a part of them")
		}
	})
}

func TestAProcessRegistersThoughRequestsAreSlow(t *testing.T) {
	scene(t, func(w *world) {
		w.formEven(2)
		w.network.impose(condition{latency: 8 * time.Second}, 2*time.Minute)
		p := w.start("host2")
		time.Sleep(90 * time.Second)
		t.Logf("where each request takes 8 s, after 90 s the process has registered %d times, and has record %q", p.registrations.Load(), p.record().Name)
		if p.registrations.Load() > 1 || p.record().Name == "" {
			t.Error("want it to keep its first record")
		}
	})
}

func TestARangeIsGivenToOneThatMayWorkOnIt(t *testing.T) {
	scene(t, func(w *world) {
		w.formEven(1)
		w.leaseReads = 5 * time.Second
		w.start("host1")
		time.Sleep(time.Minute)
		out := w.unserved(allTasks / 2)
		t.Logf("where the newcomer needs 5 s to read who leads, its tasks had no worker for %v on average", out)
		if out > pauseAllowed {
			t.Error("want the donor to work until the newcomer can")
		}
	})
}

func TestASilentWatchIsNoticed(t *testing.T) {
	scene(t, func(w *world) {
		w.formEven(2)
		dead, successor := w.living()[0], w.living()[1]
		key := *dead.record().Key
		successor.stalls.Store(true)
		w.network.wake()
		time.Sleep(5 * time.Second)
		dead.kill()
		killed := time.Now()
		for time.Since(killed) < 3*time.Minute && len(serving(w.living(), task{worldControllers[0], key})) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		out := time.Since(killed).Round(100 * time.Millisecond)
		t.Logf("the range of the dead one had no worker for %v", out)
		if out > worldLease+noticesSilence {
			t.Errorf("want at most %v", worldLease+noticesSilence)
		}
	})
}
