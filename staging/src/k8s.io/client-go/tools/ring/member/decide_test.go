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
	"slices"
	"testing"
	"testing/synctest"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/client-go/tools/ring"
)

// owner returns a term whose instance owns all keys.
func (i *instance) owner(ctx context.Context) *term {
	term := i.registered(ctx)
	record := i.record()
	record.Spec.HashKey = (*shardingv1alpha1.HashKey)(key(hashkey.Max))
	i.registry.edit(record)
	i.applyOwn(term)
	return term
}

// applyOwn hands the machine the newest state of the instance's own record.
func (i *instance) applyOwn(term *term) {
	i.t.Helper()
	record := i.record()
	own, err := ring.NewRecord(&record)
	if err != nil {
		i.t.Fatal(err)
	}
	term.machine.Apply(own)
}

// decided lets the term decide as often as its loop would at this instant.
func (t *term) decided(ctx context.Context) {
	for again := true; again; {
		t.decide(ctx, false)
		again = t.settle() > 0
		select {
		case <-t.kick:
			again = true
		default:
		}
	}
}

// stateMetrics notes when a decision is reported, and whether its write was sent before.
type stateMetrics struct {
	noMetrics
	instance *instance
	term     **term
}

func (m stateMetrics) State(phase shardingv1alpha1.InstancePhase, _ float64) {
	m.instance.calls.note("report %s while writing is %t", phase, (*m.term).writing)
}

// One decision here changes everything: the instance loses keys at one end of its range,
// gains some at the other that its caches hold already, changes its phase, and has a
// range to split.
func TestADecisionIsCarriedOutInTheOrderOfItsFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		r := newRegistry(t)
		var term *term
		i := newInstance(t, r)
		i.cfg.Metrics = stateMetrics{instance: i, term: &term}
		term = i.registered(ctx)
		var patches []string
		r.intercept(func(_ context.Context, q request) error {
			i.calls.note("sent")
			patches = append(patches, q.part)
			return nil
		})
		record := i.record()
		record.Spec.HashKey = (*shardingv1alpha1.HashKey)(key(200))
		r.edit(record)
		before, after := hashkey.Between(99, 1000), hashkey.Between(50, 200)
		i.gate.set(before)
		term.follow, term.phase = before, shardingv1alpha1.InstanceActive
		term.readiness.known = []holding{{hashkey.All(), 20}}
		term.machine.Machine = ring.NewMachine(term.self.Name, ring.NewView(19,
			ring.Record{Name: term.self.Name, UID: term.self.UID, Revision: r.revision() - 1, Key: key(1000), Controllers: listed},
			ring.Record{Name: "dead", Key: key(99), Controllers: listed},
		), ring.Limits{Step: time.Minute, Fill: time.Minute})
		term.machine.Decide(term.input(time.Now(), false))
		term.machine.Replace(ring.NewView(20,
			ring.Record{Name: term.self.Name, UID: term.self.UID, Generation: 1, Revision: r.revision(), Key: key(200), Controllers: listed},
			ring.Record{Name: "b", Revision: 20, Key: key(50), Controllers: listed, Phase: shardingv1alpha1.InstanceActive},
			ring.Record{Name: "c", Revision: 20, Donor: term.self.Name, Controllers: listed},
		))
		term.decide(ctx, false)
		synctest.Wait()
		// The sources check that the gate is shut for all that they let go. What has been acquired is
		// told beside the rest.
		acquired := "acquired " + hashkey.Between(50, 99).String()
		calls := i.calls.take()
		want := []string{"pods follow " + after.String(), "sets follow " + after.String(), "report Active while writing is false", "sent", "sent"}
		if got := slices.DeleteFunc(slices.Clone(calls), func(line string) bool { return line == acquired }); !slices.Equal(got, want) || len(calls) != len(want)+1 {
			t.Errorf("got %q, want %q and %q", calls, want, acquired)
		}
		slices.Sort(patches)
		if want := []string{partNews, partSpec}; !slices.Equal(patches, want) {
			t.Errorf("patches were sent of %v, want %v", patches, want)
		}
		if got := i.gate.serving(); !got.Equal(after) {
			t.Errorf("the gate is open for %v, want %v", got, after)
		}
	})
}

func TestTheGateIsShutBeforeSourcesAreToldToFollowLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		i := newInstance(t, newRegistry(t))
		term := i.owner(ctx)
		term.decided(ctx)
		i.calls.take()
		term.machine.Apply(ring.Record{Name: "b", Revision: 11, Key: key(99), Controllers: listed})
		rest := hashkey.All().Minus(hashkey.Between(hashkey.Max, 99))
		term.decide(ctx, false)
		// What SetRanges would find wrong is checked by the fake source.
		if open := i.gate.serving(); !open.Equal(rest) || !i.sources[0].follow.Equal(rest) || !i.sources[1].follow.Equal(rest) {
			t.Errorf("the gate is open for %v and the sources follow %v and %v, want %v", open, i.sources[0].follow, i.sources[1].follow, rest)
		}
		select {
		case <-term.kick:
		default:
			t.Error("no decision was asked for on what was released")
		}
	})
}

func TestTheGateOpensOnlyWhenAllSourcesHoldTheRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		i := newInstance(t, newRegistry(t)).slow()
		term := i.owner(ctx)
		expect := func(when string, open hashkey.Ranges, phase shardingv1alpha1.InstancePhase) {
			t.Helper()
			if got := i.gate.serving(); !got.Equal(open) {
				t.Errorf("%s the gate is open for %v, want %v", when, got, open)
			}
			if term.news.status.Phase != phase {
				t.Errorf("%s phase %s is reported, want %s", when, term.news.status.Phase, phase)
			}
		}
		for n, s := range i.sources {
			term.decided(ctx)
			expect("before the answer of "+s.name, nil, shardingv1alpha1.InstanceLocked)
			asked := s.asked()
			if len(asked) != 1 || !asked[0].ranges.Equal(firstPiece) {
				t.Fatalf("source %d was asked %v, want once for the first piece", n, asked)
			}
			close(asked[0].answer)
			synctest.Wait()
		}
		i.calls.take()
		term.settle()
		term.decided(ctx)
		if calls := i.calls.take(); !slices.Contains(calls, "acquired "+firstPiece.String()) {
			t.Errorf("the controller was told %v", calls)
		}
		expect("after both answers", firstPiece, shardingv1alpha1.InstanceActive)
	})
}

func TestTheControllerIsToldOfAReleaseWhenTheLastWorkHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		i := newInstance(t, newRegistry(t))
		term := i.owner(ctx)
		term.decided(ctx)
		first, ok := i.door().Enter(5)
		second, alsoOK := i.door().Enter(6)
		if !ok || !alsoOK {
			t.Fatal("the gate is shut")
		}
		i.calls.take()
		term.machine.Apply(ring.Record{Name: "b", Revision: 11, Key: key(99), Controllers: listed})
		low := hashkey.Between(hashkey.Max, 99)
		idle := func() bool {
			in := term.input(time.Now(), false)
			return in.Serving.Union(in.Draining).Intersect(low).Empty()
		}
		for _, leave := range []func(){first, second} {
			term.decided(ctx)
			if slices.Contains(i.calls.take(), "released "+low.String()) || idle() {
				t.Fatal("the range counts as released while work is under way there")
			}
			leave()
		}
		// What has not been told to the controller is not given away.
		if idle() {
			t.Error("the range counts as idle before the controller knows")
		}
		term.decided(ctx)
		i.calls.expect(t, "released "+low.String())
		if !idle() {
			t.Error("the range does not count as idle")
		}
	})
}

// A handover that is called off gives back what was still draining.
func TestWhatIsOpenedAgainWhileItDrainsIsNotReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		i := newInstance(t, newRegistry(t))
		term := i.owner(ctx)
		term.decided(ctx)
		leave, _ := i.door().Enter(5)
		term.machine.Apply(ring.Record{Name: "b", Revision: 11, Key: key(99), Controllers: listed})
		term.decided(ctx)
		i.calls.take()
		term.machine.Remove("b", 12)
		term.decided(ctx)
		leave()
		term.decided(ctx)
		i.calls.expect(t,
			"pods follow "+hashkey.All().String(),
			"sets follow "+hashkey.All().String(),
			"acquired "+hashkey.Between(hashkey.Max, 99).String(),
		)
	})
}

func TestADecisionWithoutARecordDoesNothingButEndTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		i := newInstance(t, newRegistry(t))
		term := i.owner(ctx)
		term.decided(ctx)
		i.calls.take()
		term.machine.Remove(term.self.Name, 11)
		if wake := term.decide(ctx, false); wake != 0 || !term.lost {
			t.Errorf("got wake %v and lost %t", wake, term.lost)
		}
		i.calls.expect(t)
		if term.news.status.Phase != shardingv1alpha1.InstanceActive {
			t.Errorf("phase %q was reported", term.news.status.Phase)
		}
	})
}

func TestADecisionWakesAtTheMachinesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		r := newRegistry(t)
		i := newInstance(t, r)
		// The machine counts from when the member was made.
		time.Sleep(time.Minute)
		term := i.registered(ctx)
		self, _ := term.machine.View().Get(term.self.Name)
		self.Revision, self.Donor = 11, "b"
		term.machine.Apply(ring.Record{Name: "b", Revision: 10, Key: key(99), Controllers: listed, Phase: shardingv1alpha1.InstanceActive})
		term.machine.Apply(self)
		if got := term.decide(ctx, false); got != lookInterval {
			t.Errorf("got %v, want %v: it waits for a peer", got, lookInterval)
		}
		time.Sleep(DefaultStepLimit - 300*time.Millisecond)
		if got, want := term.decide(ctx, false), 300*time.Millisecond; got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// A decision that asks for another at once must not be taken for one that asks for none.
func TestADecisionWakesNoEarlierThanInAMillisecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		i := newInstance(t, newRegistry(t))
		term := i.owner(ctx)
		term.decided(ctx)
		time.Sleep(time.Second)
		if got := term.decide(ctx, true); got != time.Millisecond {
			t.Errorf("got %v, want 1ms: the gate has just been shut", got)
		}
	})
}
