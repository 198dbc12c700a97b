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
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
)

// work takes up work on a key that the gate must be open for.
func (i *instance) work(k int64) (leave func()) {
	i.t.Helper()
	leave, ok := i.door().Enter(k)
	if !ok {
		i.t.Fatalf("the gate is shut for %s", hashkey.Format(k))
	}
	return leave
}

// serves waits until the gate is open for exactly these keys and the record says so.
func (i *instance) serves(r hashkey.Ranges) {
	i.t.Helper()
	eventually(i.t, "the gate is open for "+r.String(), func() bool {
		return i.gate.serving().Equal(r) && i.record().Status.Phase == shardingv1alpha1.InstanceActive
	})
}

// handovers returns what the controller was told since the last call, and drops what the
// sources were.
func (i *instance) handovers() []string {
	return slices.DeleteFunc(i.calls.take(), func(line string) bool {
		return !strings.HasPrefix(line, "acquired ") && !strings.HasPrefix(line, "released ")
	})
}

// firstPiece is what an instance that takes all keys fills first.
var firstPiece = hashkey.Between(hashkey.Max-1<<60, hashkey.Max)

// expectPieces expects that the instance filled all keys piece by piece, and then these calls. What
// a controller is told of while it is busy it is told of at once.
func (i *instance) expectPieces(then []string) {
	i.t.Helper()
	var want []string
	for _, from := range []int64{7 << 60, 6 << 60, 4 << 60} {
		follow := hashkey.Between(from-1, hashkey.Max).String()
		want = append(want, "pods follow "+follow, "sets follow "+follow)
	}
	all := hashkey.All().String()
	want = append(append(want, "pods follow "+all, "sets follow "+all), then...)
	got := slices.DeleteFunc(i.calls.take(), func(line string) bool { return strings.HasPrefix(line, "acquired ") })
	if !slices.Equal(got, want) || !i.controller.acquired.Equal(hashkey.All()) {
		i.t.Errorf("acquired %v, and got %q, want %q", i.controller.acquired, got, want)
	}
}

func TestAMemberThatIsAloneWorksOnAllKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newInstance(t, newRegistry(t))
		i.start()
		i.serves(hashkey.All())
		i.expectPieces(nil)
		if got := i.record().Spec; got.HashKey == nil || int64(*got.HashKey) != hashkey.Max || got.NextHashKey != nil || got.Donor != "" {
			t.Errorf("the record has %+v", got)
		}
		// The lease is renewed as long as the member runs.
		time.Sleep(10 * lease)
		i.work(1)()
		i.calls.expect(t)
	})
}

var (
	lower = hashkey.Between(hashkey.Max, 1<<62-1)
	upper = hashkey.All().Minus(lower)
)

// two returns two members that share the ring: a has the upper half, b the lower one.
// Nothing of the lower one is in work as a gives it away.
func two(t *testing.T, r *registry, change ...func(*Config)) (a, b *instance) {
	a, b = newInstance(t, r, change...), newInstance(t, r, change...)
	a.start()
	a.serves(hashkey.All())
	b.start()
	b.serves(lower)
	a.serves(upper)
	return a, b
}

func TestAMemberThatJoinsIsHandedHalfOfTheDonorsRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Each Acquired checks that no other gate is open for these keys.
		a, b := two(t, newRegistry(t))
		a.expectPieces([]string{
			"released " + lower.String(),
			"pods follow " + upper.String(),
			"sets follow " + upper.String(),
		})
		b.calls.expect(t,
			"pods follow "+lower.String(),
			"sets follow "+lower.String(),
			"acquired "+lower.String(),
		)
		if !b.told.has("join warm") {
			t.Errorf("the receiver's caches were not warm: %v", b.told.take())
		}
	})
}

func TestADonorGivesNothingAwayThatIsInWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		a, b := newInstance(t, r), newInstance(t, r)
		a.start()
		a.serves(hashkey.All())
		a.handovers()
		leave := a.work(1)
		b.start()
		eventually(t, "the donor drains", func() bool { return a.record().Status.Phase == shardingv1alpha1.InstanceWait })
		time.Sleep(10 * time.Second)
		if got := b.record().Spec.HashKey; got != nil {
			t.Errorf("the receiver was granted %s", got)
		}
		if got := a.handovers(); len(got) > 0 {
			t.Errorf("the donor's controller was told %v", got)
		}
		receiver := b.record().Name
		grants := func(q request) bool {
			spec, _ := q.body["spec"].(map[string]any)
			return q.verb == "patch" && q.name == receiver && spec["hashKey"] != nil
		}
		if got := r.got(grants); len(got) > 0 {
			t.Errorf("grants were sent at %v", times(got))
		}
		leave()
		b.serves(lower)
		if got := a.handovers(); !slices.Equal(got, []string{"released " + lower.String()}) {
			t.Errorf("the donor's controller was told %v", got)
		}
	})
}

func TestTheSuccessorTakesOverFromAMemberThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		a := newInstance(t, r)
		stop, done := a.start()
		a.serves(hashkey.All())
		b := newInstance(t, r)
		b.start()
		b.serves(lower)
		a.serves(upper)
		a.handovers()
		b.handovers()
		name := a.record().Name

		leave := a.work(hashkey.Max)
		stop()
		time.Sleep(time.Second)
		if _, ok := r.get(name); !ok || !b.gate.serving().Equal(lower) {
			t.Error("the range was given up while work was under way there")
		}
		began := time.Now()
		leave()
		<-done
		b.serves(hashkey.All())
		if _, ok := r.get(name); ok {
			t.Error("the record of the member that left is still there")
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("leaving took %v after the last work had ended", took)
		}
		if got, want := a.handovers(), []string{"released " + upper.String(), "released " + hashkey.All().String()}; !slices.Equal(got, want) {
			t.Errorf("the controller that left was told %v, want %v", got, want)
		}
		if got, want := b.handovers(), []string{"acquired " + upper.String()}; !slices.Equal(got, want) {
			t.Errorf("the successor's controller was told %v, want %v", got, want)
		}
		if !b.told.has("leave warm") {
			t.Errorf("the successor's caches were not warm: %v", b.told.take())
		}
	})
}

// A member that cannot renew its record stops before the record expires, which is when
// another takes over.
func TestTheSuccessorTakesOverWhenAMemberThatIsCutOffHasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		a, b := two(t, r)
		a.handovers()
		b.handovers()
		cutOff := a.record()
		r.intercept(func(_ context.Context, q request) error {
			if q.verb == "create" || q.name == cutOff.Name && q.part != partSpec {
				return errors.New("injected")
			}
			return nil
		})
		renewals := r.got(func(q request) bool { return q.name == cutOff.Name && q.part == partRenewal })
		renewed := epoch
		if len(renewals) > 0 {
			renewed = epoch.Add(renewals[len(renewals)-1].at)
		}
		time.Sleep(time.Until(renewed.Add(5*time.Second - 1)))
		a.work(hashkey.Max)()
		time.Sleep(1)
		if _, ok := a.door().Enter(hashkey.Max); ok {
			t.Error("work was let in that may outlive the lease")
		}
		b.serves(hashkey.All())
		if took := time.Since(renewed); took < lease || took > lease+100*time.Millisecond {
			t.Errorf("another took over %v after the last renewal, want %v", took, lease)
		}
		if got, want := b.handovers(), []string{"acquired " + upper.String()}; !slices.Equal(got, want) {
			t.Errorf("the successor's controller was told %v, want %v", got, want)
		}
		// It joins again, and gets its half back.
		r.intercept(nil)
		eventually(t, "both have a half", func() bool {
			return a.gate.serving().Equal(upper) && b.gate.serving().Equal(lower)
		})
		if got, want := a.handovers(), []string{"released " + hashkey.All().String(), "acquired " + upper.String()}; !slices.Equal(got, want) {
			t.Errorf("the controller that was cut off was told %v, want %v", got, want)
		}
	})
}

func TestAMemberGivesUpLeavingAfterALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		r.intercept(func(_ context.Context, q request) error {
			if q.verb == "delete" {
				return errors.New("injected")
			}
			return nil
		})
		i := newInstance(t, r)
		stop, done := i.start()
		i.serves(hashkey.All())
		i.handovers()
		began := time.Now()
		stop()
		<-done
		if took := time.Since(began); took != lease {
			t.Errorf("leaving took %v, want %v", took, lease)
		}
		// After 10 ms, 20 ms and so on up to a second.
		if n := len(r.got(ofVerb("delete"))); n != 12 {
			t.Errorf("the deletion was tried %d times, want 12", n)
		}
		if got := i.gate.serving(); !got.Empty() {
			t.Errorf("the gate is still open for %v", got)
		}
		if got, want := i.handovers(), []string{"released " + hashkey.All().String(), "released " + hashkey.All().String()}; !slices.Equal(got, want) {
			t.Errorf("the controller was told %v, want %v", got, want)
		}
		// Nothing keeps the record alive.
		r.intercept(nil)
		renewals := len(r.got(ofPatch(partRenewal)))
		time.Sleep(10 * lease)
		if n := len(r.got(ofPatch(partRenewal))); n != renewals {
			t.Errorf("%d renewals were sent after Run had returned", n-renewals)
		}
	})
}

func TestAMemberThatLosesItsRecordRegistersAnew(t *testing.T) {
	for name, lose := range map[string]func(*registry, shardingv1alpha1.ControllerInstance){
		"the log says that it is gone": func(r *registry, own shardingv1alpha1.ControllerInstance) {
			r.remove(own.Name)
		},
		"a renewal finds that it is gone": func(r *registry, own shardingv1alpha1.ControllerInstance) {
			r.withhold(true)
			r.remove(own.Name)
		},
		"a renewal finds another's": func(r *registry, own shardingv1alpha1.ControllerInstance) {
			r.withhold(true)
			r.remove(own.Name)
			own.UID, own.Spec.Ring = "uid-of-another", "other"
			r.edit(own)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t)
				i := newInstance(t, r)
				i.start()
				i.serves(hashkey.All())
				i.calls.take()
				lost := i.record()
				lose(r, lost)
				eventually(t, "registered anew", func() bool { return len(r.got(ofVerb("create"))) == 2 })
				r.withhold(false)
				i.serves(hashkey.All())
				if self, _ := i.gate.identity(); self.UID == lost.UID {
					t.Errorf("the gate sends requests in the name of %v, which is lost", self)
				}
				if got, want := i.handovers(), []string{"released " + hashkey.All().String(), "acquired " + hashkey.All().String()}; !slices.Equal(got, want) {
					t.Errorf("the controller was told %v, want %v", got, want)
				}
				registered := slices.DeleteFunc(i.told.take(), func(line string) bool { return line != "registered" })
				if len(registered) != 2 {
					t.Errorf("the metrics were told of %d registrations, want 2", len(registered))
				}
			})
		})
	}
}

// Its own delete is immediate, as it names itself.
func TestAMemberWhoseRecordIsDeletedByOthersLeavesInGoodOrderAndRegistersAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		a, b := two(t, r)
		a.handovers()
		b.handovers()
		name := a.record().Name
		leave := a.work(hashkey.Max)
		r.askToLeave(name)
		time.Sleep(time.Second)
		if record, ok := r.get(name); !ok || record.Status.Phase != shardingv1alpha1.InstanceLeaving || !b.gate.serving().Equal(lower) {
			t.Errorf("the range was given up while work was under way there: %+v", record.Status)
		}
		if _, ok := a.door().Enter(hashkey.Max); ok {
			t.Error("work was let in by a member that leaves")
		}
		leave()
		synctest.Wait()
		if _, ok := r.get(name); ok {
			t.Error("the record is still there")
		}
		deletes := r.got(ofVerb("delete"))
		if len(deletes) != 1 || deletes[0].identity == nil || deletes[0].identity.Name != name {
			t.Errorf("got %+v, want one deletion, by %s", deletes, name)
		}
		eventually(t, "both have a half", func() bool {
			return a.gate.serving().Equal(upper) && b.gate.serving().Equal(lower)
		})
		time.Sleep(time.Second)
		if got := a.record().Name; got == name {
			t.Errorf("the record is %s again", got)
		}
		if got, want := a.handovers(), []string{"released " + upper.String(), "released " + hashkey.All().String(), "acquired " + upper.String()}; !slices.Equal(got, want) {
			t.Errorf("the controller was told %v, want %v", got, want)
		}
		// It may have given the range back before it began to work there.
		if got, want := b.handovers(), []string{"acquired " + upper.String(), "released " + upper.String()}; len(got) > 0 && !slices.Equal(got, want) {
			t.Errorf("the successor's controller was told %v, want %v", got, want)
		}
	})
}

// Its requests would be sent in the name of the new registration.
func TestAMemberDoesNotRegisterAnewWhileWorkOfTheOldTermIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		i := newInstance(t, r)
		i.start()
		i.serves(hashkey.All())
		leave := i.work(1)
		other := i.work(2)
		i.calls.take()
		r.remove(i.record().Name)
		synctest.Wait()
		if _, ok := i.door().Enter(3); ok {
			t.Error("work was let in though the record is gone")
		}
		leave()
		i.told.take()
		renewals := len(r.got(ofPatch(partRenewal)))
		time.Sleep(10 * lease)
		if n := len(r.got(ofVerb("create"))); n != 1 {
			t.Errorf("%d records were created, want none before the work has ended", n-1)
		}
		if n := len(r.got(ofPatch(partRenewal))); n != renewals {
			t.Errorf("%d renewals were sent for a record that is gone", n-renewals)
		}
		i.told.expect(t)
		i.calls.expect(t)
		other()
		i.serves(hashkey.All())
		if got, want := i.handovers(), []string{"released " + hashkey.All().String(), "acquired " + hashkey.All().String()}; !slices.Equal(got, want) {
			t.Errorf("the controller was told %v, want %v", got, want)
		}
	})
}

// A member that ends has no next term, so it need not wait for work that hangs.
func TestAMemberThatEndsWaitsForOldWorkNoLongerThanALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		i := newInstance(t, r)
		i.controller.abandoned = true
		stop, done := i.start()
		i.serves(hashkey.All())
		i.work(1)
		r.remove(i.record().Name)
		time.Sleep(10 * lease)
		began := time.Now()
		stop()
		<-done
		if took := time.Since(began); took != lease {
			t.Errorf("Run returned after %v, want %v", took, lease)
		}
		if n := len(r.got(ofVerb("create"))); n != 1 {
			t.Errorf("%d records were created, want 1", n)
		}
	})
}

func TestAChangeOfWhatASourceHoldsIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		i := newInstance(t, r).slow()
		i.start()
		eventually(t, "the keys are owned", func() bool { return i.record().Spec.HashKey != nil })
		for _, s := range i.sources {
			if cached := i.record().Status.Cached; len(cached) > 0 {
				t.Errorf("%v is reported as cached before source %s holds it", cached, s.name)
			}
			s.hold(hashkey.All())
			synctest.Wait()
		}
		if cached := i.record().Status.Cached; len(cached) != 1 {
			t.Errorf("%v is reported as cached, want all keys", cached)
		}
	})
}
