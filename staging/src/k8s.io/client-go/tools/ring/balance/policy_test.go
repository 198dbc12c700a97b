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

package balance

import (
	"reflect"
	"slices"
	"testing"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/client-go/tools/ring"
)

// evener is a machine and its policy, with what their driver knows. Its ring has been calm since it
// was made, for a minute, and no instance has come or gone for an hour.
type evener struct {
	ring.Decider
	policy  *Policy
	t       *testing.T
	now     time.Duration
	balance *Config
	objects []int64
	work    []int64
	// looks is how often the keys were asked for.
	looks int
}

// uneven returns the machine of the instance of that name in a ring of instances with these
// weights. Their ranges are equally wide, and the objects lie evenly in each.
func uneven(t *testing.T, name string, weights ...int64) *evener {
	t.Helper()
	n := uint64(len(weights))
	width := hashkey.Limit / n
	var records []ring.Record
	var objects []int64
	for i, w := range weights {
		last := int64(width*uint64(i+1) - 1)
		if i+1 == len(weights) {
			last = hashkey.Max
		}
		r := member(string(rune('a'+i)), at(last))
		r.Weight, r.Revision = w, 1
		records = append(records, r)
		for o := range uint64(w) {
			objects = append(objects, int64(width*uint64(i)+(o+1)*(width/uint64(w+1))))
		}
	}
	e := newEvener(t, name, ring.NewView(1, records...))
	e.balance.Seed, e.objects = 0, objects
	// All have told what they have since the ring was made.
	e.decide()
	e.tellAgain()
	e.now = time.Hour
	return e
}

// newEvener returns that of the instance in that view.
func newEvener(t *testing.T, name string, view *ring.View) *evener {
	e := &evener{t: t, balance: &Config{Settings: Default}}
	e.use(ring.NewMachine(name, view, limits), New(name, func() *Config { return e.balance }))
	return e
}

func (e *evener) use(machine *ring.Machine, policy *Policy) {
	e.Decider, e.policy = ring.Decider{Machine: machine, Policy: policy}, policy
}

// later returns a copy at a later time.
func (e *evener) later(after time.Duration) *evener {
	c, machine, policy := *e, *e.Machine, *e.policy
	c.use(&machine, &policy)
	c.now += after
	return &c
}

// tell has an instance tell what it has.
func (e *evener) tell(name string, weight int64) {
	e.change(name, func(r *ring.Record) { r.Weight = weight })
}

// tellAgain has all tell what they had.
func (e *evener) tellAgain() {
	for _, r := range e.View().Ring() {
		e.tell(r.Name, r.Weight)
	}
}

// hold has the instances, in order of key, tell of heaps with so many objects' worth beside the
// ring.
func (e *evener) hold(own ...int64) {
	for _, r := range holds(e.View(), own...).Ring() {
		e.change(r.Name, func(now *ring.Record) { now.LiveBytes, now.HeapObjects = r.LiveBytes, r.HeapObjects })
	}
}

func (e *evener) change(name string, f func(*ring.Record)) {
	e.t.Helper()
	r, _ := e.View().Get(name)
	r.Name, r.Revision = name, e.View().Revision+1
	f(&r)
	e.Apply(r)
}

// weighDown lays so many objects of the instance on the last key but one of its range, and the
// others close before it.
func (e *evener) weighDown(heaviest, others int64) {
	upper := *mustGet(e.View(), e.policy.name).Key - 1
	e.change(e.policy.name, func(r *ring.Record) { r.Heaviest = heaviest })
	owned := e.View().Owned(e.policy.name)
	e.objects = slices.DeleteFunc(e.objects, owned.Contains)
	e.objects = append(e.objects, slices.Repeat([]int64{upper}, int(heaviest))...)
	for i := range others {
		e.objects = append(e.objects, upper-1-i*1000)
	}
}

// decide decides as if the last look for a key to give was long ago.
func (e *evener) decide() ring.Decision {
	e.policy.tried = nil
	return e.decideAgain()
}

func (e *evener) decideAgain() ring.Decision {
	in := ring.Input{Now: e.now, Serving: e.View().Owned(e.policy.name), DryRun: e.balance != nil && e.balance.DryRun}
	return e.Consult(in, e.work, func(hashkey.Ranges) []int64 {
		e.looks++
		return append([]int64{}, e.objects...)
	})
}

// waitsInVain has the instance name that key of its own, and wait for the receiver's caches until
// it calls that off. The receiver rests then.
func (e *evener) waitsInVain(record string, next int64) {
	e.t.Helper()
	e.change(record, func(r *ring.Record) { r.Next = &next })
	e.decide()
	e.now += limits.Fill
	if d := e.decide(); d.Write == nil || d.Write.Reason != ring.ReasonCallOff {
		e.t.Fatalf("writes %+v, want the handover called off", d.Write)
	}
	e.change(record, func(r *ring.Record) { r.Next = nil })
	e.decide()
}

// quiet fails if the machine moves anything now.
func (e *evener) quiet(why string) {
	e.t.Helper()
	if d := e.decide(); d.Write != nil || d.Proposal != nil {
		e.t.Errorf("%s: writes %+v, proposes %v", why, d.Write, d.Proposal)
	}
}

// moves returns the record whose boundary the machine moves, and how much load it gives by that.
func (e *evener) moves() (boundary string, given int64) {
	e.t.Helper()
	d := e.decide()
	if d.Write == nil || d.Write.Reason != ring.ReasonBalance || d.Proposal == nil {
		e.t.Fatalf("writes %+v, proposes %v, want it to move a boundary", d.Write, d.Proposal)
	}
	r, _ := e.View().Get(d.Write.Name)
	if d.Write.Generation != r.Generation || d.Write.UID != r.UID || *d.Write.Key != *r.Key || *d.Write.Next != d.Proposal.Key {
		e.t.Errorf("writes %+v of %+v, proposes %+v", d.Write, r, d.Proposal)
	}
	if err := e.View().CheckMove(d.Write.Name, *d.Write.Next); err != nil {
		e.t.Error(err)
	}
	r.Key = d.Write.Next
	after := e.View().With(r)
	for _, key := range e.objects {
		if e.View().Owned(e.policy.name).Contains(key) && !after.Owned(e.policy.name).Contains(key) {
			given++
		}
	}
	if given != d.Proposal.Load {
		e.t.Errorf("gives %d, said %s", given, d.Proposal)
	}
	return d.Write.Name, given
}

func TestADonorGivesToTheNeighbourThatHasLess(t *testing.T) {
	for name, tc := range map[string]struct {
		e        *evener
		boundary string
		given    int64
	}{
		// b gives up to its successor, by its own boundary; or down, by that of a.
		"up":   {uneven(t, "b", 200, 400, 0), "b", 190},
		"down": {uneven(t, "b", 0, 400, 200), "a", 180},
		// The seam of the ring is no end.
		"round": {uneven(t, "a", 400, 200, 0), "c", 180},
		"most":  {uneven(t, "b", 100, 500, 0), "b", 210},
	} {
		t.Run(name, func(t *testing.T) {
			tc.e.balance.Rate = 1
			if boundary, given := tc.e.moves(); boundary != tc.boundary || given != tc.given {
				t.Errorf("moves the boundary of %s and gives %d, want %s and %d", boundary, given, tc.boundary, tc.given)
			}
		})
	}
	uneven(t, "a", 200, 400, 0).quiet("a has nothing to give")
	uneven(t, "a", 109, 100, 91).quiet("the ring is even enough")
}

func TestALoadIsOnlyEvenedOutWhereItIsToBe(t *testing.T) {
	e := uneven(t, "a", 300, 100)
	e.balance.Rate = 1
	policy := e.balance
	e.balance = nil
	e.quiet("it is not to")

	e.balance = &Config{Settings: policy.Settings, DryRun: true}
	if d := e.decide(); d.Write != nil || d.Proposal == nil {
		t.Errorf("a dry run writes %+v, proposes %v", d.Write, d.Proposal)
	} else if want := "a gives 90 to b: they have 300 and 100, and should have 200 and 200"; d.Proposal.String() != want {
		t.Errorf("it says %q, want %q", d.Proposal, want)
	}

	e.balance = policy
	e.change("b", func(r *ring.Record) { r.BalanceOff = true })
	e.quiet("a record says that it is not to")
	e.change("b", func(r *ring.Record) { r.BalanceOff = false })
	e.moves()
	e.balance.Tolerance = 1
	e.quiet("by another policy")
}

func TestNoMoreKeysAreMovedInAMinuteThanMayBe(t *testing.T) {
	e := uneven(t, "a", 3000, 1000)
	e.balance.Rate = 0.1
	share := func(given int64) float64 { return float64(given) / 6000 }
	_, given := e.moves()
	if share(given) > 0.1 || share(given) < 0.095 {
		t.Fatalf("gives %d of the 3000 objects in half of the keys, want a fifth", given)
	}
	// It is done, and they have told what they have.
	d := e.decide()
	e.change("a", func(r *ring.Record) { r.Key = d.Write.Next })
	e.decide()
	e.tell("a", 3000-given)
	e.tell("b", 1000+given)
	e.now += 59 * time.Second
	e.quiet("in the same minute")
	e.now += time.Second
	e.moves()

	// An instance that has come or gone lately lifts the limit.
	e.now += time.Hour
	e.change("c", func(r *ring.Record) {
		*r = ring.Record{Name: "c", UID: "c", Revision: r.Revision, Phase: shardingv1alpha1.InstanceActive, Key: at(5)}
	})
	e.decide()
	e.change("a", func(*ring.Record) {})
	e.change("b", func(*ring.Record) {})
	e.change("c", func(*ring.Record) {})
	for wait, want := range map[time.Duration]bool{Default.Free - 1: true, Default.Free: false} {
		l := e.later(wait)
		if _, given := l.moves(); (given > 600) != want {
			t.Errorf("%v after an instance has come it gives %d", wait, given)
		}
	}
}

func TestThoseWhoGiveShareWhatMayBeMoved(t *testing.T) {
	one := uneven(t, "b", 1000, 3000, 0, 1000)
	two := uneven(t, "b", 1000, 3000, 0, 3000)
	_, alone := one.moves()
	_, shared := two.moves()
	if d := shared*2 - alone; d < -20 || d > 20 {
		t.Errorf("one of two gives %d, a lone one %d", shared, alone)
	}
	// Nor is a part of it worth a handover that is less than half of that.
	two.change("x", func(r *ring.Record) { *r = ring.Record{Name: "x", Revision: r.Revision} })
	d := two.decide()
	two.change("d", func(r *ring.Record) { r.Key = at(*r.Key - int64(hashkey.Limit/100*3)) })
	two.decide()
	for _, name := range []string{"a", "b", "c", "d"} {
		two.change(name, func(*ring.Record) {})
	}
	two.now += Default.Calm
	if d.Write == nil {
		t.Fatal("nothing is moved before")
	}
	two.quiet("most has been moved by another")
}

func TestABoundaryRestsBeforeItMoves(t *testing.T) {
	e := uneven(t, "a", 300, 100, 200, 200)
	for what, f := range map[string]func(*evener){
		"the successor's key changes":   func(e *evener) { e.change("b", func(r *ring.Record) { r.Key = at(*r.Key - 1) }) },
		"the predecessor's key changes": func(e *evener) { e.change("d", func(r *ring.Record) { r.Key = at(*r.Key - 1) }) },
		"its predecessor's key changes": func(e *evener) { e.change("c", func(r *ring.Record) { r.Key = at(*r.Key - 1) }) },
		"a neighbour hands over": func(e *evener) {
			e.change("b", func(r *ring.Record) { r.Gives = &ring.Gift{To: "b", Key: 7} })
			e.decide()
			e.change("b", func(r *ring.Record) { r.Gives = nil })
		},
		"a neighbour was about to leave": func(e *evener) {
			e.change("b", func(r *ring.Record) { r.Drained = true })
			e.decide()
			e.change("b", func(r *ring.Record) { r.Drained = false })
		},
	} {
		l := e.later(0)
		l.moves()
		f(l)
		if d := l.decide(); d.Write != nil || d.Wake != l.now+Default.Calm {
			t.Errorf("%s: writes %+v, wakes at %v", what, d.Write, d.Wake)
		}
		for _, name := range []string{"a", "b", "d"} {
			l.change(name, func(*ring.Record) {})
		}
		l.now += Default.Calm - 1
		l.quiet(what)
		l.now++
		l.moves()
	}
}

func TestARingRestsAfterAnInstanceHasGone(t *testing.T) {
	e := uneven(t, "a", 300, 100, 200)
	e.Remove("c", e.View().Revision+1)
	if d := e.decide(); d.Write != nil || d.Wake == 0 {
		t.Errorf("writes %+v, wakes at %v", d.Write, d.Wake)
	}
	for _, name := range []string{"a", "b"} {
		e.change(name, func(*ring.Record) {})
	}
	e.now += Default.AfterLoss - 1
	e.quiet("another may come in its place")
	e.now++
	e.moves()
}

func TestWhatWasToldBeforeABoundaryMovedDoesNotCount(t *testing.T) {
	e := uneven(t, "a", 300, 100)
	e.change("b", func(r *ring.Record) { r.Key = at(*r.Key - 1) })
	e.decide()
	e.now += Default.Calm
	e.quiet("none has told what it has since")
	e.tell("b", 100)
	e.quiet("this one has not")
	e.tell("a", 300)
	e.moves()

	// One that has as much as before tells nothing.
	e.change("b", func(r *ring.Record) { r.Key = at(*r.Key - 1) })
	e.decide()
	e.now += oldNews - 1
	e.quiet("it is not long ago")
	e.now++
	e.moves()
}

func TestJoinsComeBeforeMoves(t *testing.T) {
	e := uneven(t, "a", 300, 100)
	e.change("n", func(r *ring.Record) { *r = joining("n", "a"); r.Revision = e.View().Revision + 1 })
	if d := e.decide(); d.Write == nil || d.Write.Reason != ring.ReasonSplit {
		t.Errorf("writes %+v, want it to split its range", d.Write)
	}
	// One that has let it wait rests, and the ring is evened out meanwhile.
	e.waitsInVain("n", 5)
	e.moves()
	e.change("n", func(r *ring.Record) { r.Phase = shardingv1alpha1.InstanceLeaving })
	e.moves()
}

func TestANeighbourThatCannotTakeGetsNothing(t *testing.T) {
	e := uneven(t, "a", 300, 100)
	e.change("b", func(r *ring.Record) { r.Phase = shardingv1alpha1.InstanceLocked })
	e.quiet("it does not work yet")
	e.change("b", func(r *ring.Record) { r.Phase = shardingv1alpha1.InstanceActive })
	e.waitsInVain("a", 5)
	rest := e.now + 4*limits.Step
	for _, now := range []time.Duration{e.now + Default.Calm, rest - 1} {
		e.now = now
		e.quiet("it has let this instance wait")
	}
	e.now = rest
	e.moves()
}

func TestAPinnedBoundaryStays(t *testing.T) {
	e := uneven(t, "b", 100, 600, 0, 100)
	pin := func(name string, pinned bool) {
		e.change(name, func(r *ring.Record) {
			r.PinnedKey = nil
			if pinned {
				r.PinnedKey = r.Key
			}
		})
	}
	if boundary, _ := e.moves(); boundary != "b" {
		t.Errorf("moves %s", boundary)
	}
	pin("b", true)
	if boundary, _ := e.moves(); boundary != "a" {
		t.Errorf("b is pinned: moves %s", boundary)
	}
	pin("a", true)
	e.quiet("both are pinned")
	pin("b", false)
	if boundary, _ := e.moves(); boundary != "b" {
		t.Errorf("a is pinned: moves %s", boundary)
	}
	// What a person once wanted, and did not get, pins nothing.
	pin("b", true)
	e.change("a", func(r *ring.Record) { r.PinnedKey = at(3) })
	if boundary, _ := e.moves(); boundary != "a" {
		t.Errorf("a is where nobody wants it: moves %s", boundary)
	}
	if plan := NewPlan(e.View(), e.balance.Settings, true, nil); len(plan.Flows) == 0 {
		t.Error("nothing is to move")
	}
}

func TestBetweenPinnedBoundariesTheLoadIsEvenedOutByItself(t *testing.T) {
	e := uneven(t, "a", 100, 300, 500, 700, 0, 200)
	for _, name := range []string{"b", "d"} {
		e.change(name, func(r *ring.Record) { r.PinnedKey = r.Key })
	}
	if got, want := wanted(NewPlan(e.View(), e.balance.Settings, true, nil)), []int64{150, 150, 600, 600, 150, 150}; !slices.Equal(got, want) {
		t.Errorf("wanted are %v, want %v", got, want)
	}
}

// What cannot be divided does not go to and fro.
func TestKeysWithManyObjectsAreNotSwapped(t *testing.T) {
	e := uneven(t, "a", 2000, 1000)
	e.balance.Rate = 1
	e.change("a", func(r *ring.Record) { r.Heaviest = 1000 })
	e.objects = slices.Concat(slices.Repeat([]int64{10}, 1000), slices.Repeat([]int64{20}, 1000))
	e.quiet("half as much is wanted as one key has")
	e.objects = slices.Concat(slices.Repeat([]int64{10}, 1000), slices.Repeat([]int64{20}, 600), slices.Repeat([]int64{30}, 400))
	if _, given := e.moves(); given != 400 {
		t.Errorf("gives %d of 400", given)
	}
}

// Where the next key lies further away than keys may move in a minute, its boundary comes nearer to
// it.
func TestABoundaryReachesKeysThatLieFarAway(t *testing.T) {
	percent := int64(hashkey.Limit / 100)
	for name, pinned := range map[string]string{"up": "b", "down": "a"} {
		t.Run(name, func(t *testing.T) {
			e := uneven(t, "a", 3000, 1000)
			e.objects = nil
			for i := range int64(6) {
				e.objects = append(e.objects, slices.Repeat([]int64{(11 + 5*i) * percent}, 500)...)
			}
			e.change("a", func(r *ring.Record) { r.Heaviest, r.BeforeHeaviest = 500, 1000 })
			e.change(pinned, func(r *ring.Record) { r.PinnedKey = r.Key })
			weight := int64(3000)
			for minute := 0; weight > 2000; minute++ {
				boundary, given := e.moves()
				d := e.decide()
				if moved := distance(*d.Write.Key, *d.Write.Next); (given > 0) != (minute > 1) || moved > hashkey.Limit/20+1<<10 || minute == 6 {
					t.Fatalf("minute %d: moves %d keys and gives %d", minute, moved, given)
				}
				weight -= given
				e.change(boundary, func(r *ring.Record) { r.Key = d.Write.Next })
				e.decide()
				e.tell("a", weight)
				e.tell("b", 4000-weight)
				e.now += time.Minute
			}
			e.quiet("the ring is even")
		})
	}
	e := uneven(t, "a", 2000, 1000)
	e.change("a", func(r *ring.Record) { r.Heaviest = 1000 })
	e.objects = slices.Concat(slices.Repeat([]int64{20 * percent}, 1000), slices.Repeat([]int64{30 * percent}, 1000))
	e.quiet("the key is larger than what may pass")
}

// What is too little for a handover is rounded up, if as much may pass.
func TestAHandoverIsOfNoLessThanItIsWorth(t *testing.T) {
	e := uneven(t, "b", 210, 226, 164)
	e.balance.Rate = 1
	e.weighDown(150, 76)
	if boundary, given := e.moves(); boundary != "a" || given != 10 {
		t.Errorf("moves the boundary of %s and gives %d, want a and 10", boundary, given)
	}
}

// A key that is in the way at one end of the range is not at the other.
func TestADonorGivesToTheOtherNeighbourWhereAHeavyKeyIsInTheWay(t *testing.T) {
	e := uneven(t, "b", 100, 260, 90)
	e.balance.Rate = 1
	if boundary, _ := e.moves(); boundary != "b" {
		t.Errorf("moves the boundary of %s", boundary)
	}
	e.weighDown(150, 110)
	if boundary, given := e.moves(); boundary != "a" || given < 20 || given > 40 {
		t.Errorf("moves the boundary of %s and gives %d", boundary, given)
	}
	e.change("a", func(r *ring.Record) { r.PinnedKey = r.Key })
	e.quiet("the other boundary is pinned")
}

// Who has too much would give it back, or pass it on, if it did not have far less.
func TestANeighbourThatHasTooMuchGetsNothing(t *testing.T) {
	for beside, want := range map[int64]string{200: "", 178: "a", 140: "a"} {
		e := uneven(t, "b", beside, 260, 120, 90, 280-beside)
		e.balance.Rate = 1
		e.weighDown(140, 120)
		d := e.decide()
		got := ""
		if d.Write != nil {
			got = d.Write.Name
		}
		if got != want {
			t.Errorf("beside one that has %d: moves the boundary %q, want %q", beside, got, want)
		}
	}
}

// Both ends of a range of two lie towards the same neighbour.
func TestADonorOfTwoGivesAtTheOtherEndWhereAHeavyKeyIsInTheWay(t *testing.T) {
	e := uneven(t, "a", 300, 100)
	e.balance.Rate = 1
	e.change("a", func(r *ring.Record) { r.Heaviest = 170 })
	upper := *mustGet(e.View(), "a").Key - 1
	e.objects = slices.Repeat([]int64{upper}, 170)
	for i := range int64(130) {
		e.objects = append(e.objects, (i+1)*1000)
	}
	if boundary, given := e.moves(); boundary != "b" || given < 80 || given > 100 {
		t.Errorf("moves the boundary of %s and gives %d", boundary, given)
	}
	e.change("b", func(r *ring.Record) { r.PinnedKey = r.Key })
	e.quiet("the other end is pinned")
}

// Who has not too much does not come to have too little, whatever its neighbour lacks.
func TestAGiverWithoutASurplusGivesNoMoreThanItIsTo(t *testing.T) {
	e := uneven(t, "e", 1060, 1060, 1060, 1060, 1060, 700)
	e.balance.Rate = 1
	if boundary, given := e.moves(); boundary != "e" || given < 80 || given > 110 {
		t.Errorf("moves the boundary of %s and gives %d", boundary, given)
	}
	owned, upper := e.View().Owned("e"), *mustGet(e.View(), "e").Key-1
	e.objects = slices.DeleteFunc(e.objects, func(key int64) bool { return owned.Contains(key) && key > upper-int64(owned.Width()/6) })
	e.objects = append(e.objects, slices.Repeat([]int64{upper}, 170)...)
	e.quiet("the last key has twice as many")
}

func mustGet(v *ring.View, name string) ring.Record {
	r, _ := v.Get(name)
	return r
}

// What it costs to look for a key is paid once in a while, however often it decides.
func TestADonorDoesNotLookForAKeyAgainAndAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		// set says what the donor is like, looks whether it looks at all.
		set   func(*evener)
		looks bool
	}{
		"it moves":         {func(*evener) {}, true},
		"dry run":          {func(e *evener) { e.balance.DryRun = true }, true},
		"all on one key":   {func(e *evener) { e.objects = slices.Repeat(e.objects[len(e.objects)/2:][:1], len(e.objects)) }, true},
		"nothing may move": {func(e *evener) { e.balance.Rate = 0 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := uneven(t, "b", 100, 200, 120)
			e.balance.Rate = 1
			tc.set(e)
			first := e.decide()
			asked := e.looks
			if (asked > 0) != tc.looks {
				t.Errorf("asked for the keys %d times", asked)
			}
			e.now += tryAgain - 1
			e.tell("a", 101) // is no reason to look again
			again := e.decideAgain()
			if e.looks != asked {
				t.Errorf("asked for the keys again")
			}
			if !reflect.DeepEqual(first.Write, again.Write) || first.Proposal != again.Proposal || again.Wake != e.now+1 {
				t.Errorf("writes %+v, proposes %v, wakes at %v; first %+v, %v", again.Write, again.Proposal, again.Wake, first.Write, first.Proposal)
			}
			if again.Waits {
				t.Error("says that it waits for somebody")
			}
			e.now++
			if e.decideAgain(); tc.looks && e.looks == asked {
				t.Error("never asks for the keys again")
			}
		})
	}
}

func TestADonorLooksForAKeyAgainWhenItsMoveIsNotToBeMadeAnyMore(t *testing.T) {
	for name, change := range map[string]func(e *evener, boundary string){
		"the record was written": func(e *evener, boundary string) { e.change(boundary, func(r *ring.Record) { r.Generation++ }) },
		"the receiver is not Active": func(e *evener, _ string) {
			e.change("c", func(r *ring.Record) { r.Phase = shardingv1alpha1.InstanceLocked })
		},
		"a boundary nearby has moved": func(e *evener, _ string) { e.change("a", func(r *ring.Record) { r.Key = new(*r.Key - 1) }) },
	} {
		t.Run(name, func(t *testing.T) {
			e := uneven(t, "b", 100, 200, 120)
			e.balance.Rate = 1
			first := e.decide()
			if first.Proposal == nil || first.Proposal.Receiver != "c" {
				t.Fatalf("proposes %v", first.Proposal)
			}
			asked := e.looks
			change(e, first.Proposal.Boundary)
			e.decideAgain()
			e.tellAgain()
			e.now += e.balance.Calm
			if d := e.decideAgain(); d.Proposal == first.Proposal {
				t.Errorf("still proposes %v", d.Proposal)
			}
			if name != "the receiver is not Active" && e.looks == asked {
				t.Error("does not ask for the keys again")
			}
		})
	}
}

func TestWorkCountsAsLoad(t *testing.T) {
	e := uneven(t, "a", 300, 300)
	e.balance.Rate = 1
	e.change("a", func(r *ring.Record) { r.Work = 500 })
	e.quiet("half of the time is no load")
	e.change("a", func(r *ring.Record) { r.Work = 1000 })
	// All work is in the lowest hundred objects, so these count as much as all three hundred.
	e.work = e.objects[:100]
	if d := e.decide(); d.Write == nil || d.Proposal.Has != 600 || d.Proposal.Load < 120 || d.Proposal.Load > 135 {
		t.Errorf("writes %+v, proposes %v", d.Write, d.Proposal)
	}
	// All work is on one key: it moves at most with what lies about it.
	e.work = e.objects[150:151]
	if d := e.decide(); d.Write == nil || d.Proposal.Load > 151 {
		t.Errorf("writes %+v, proposes %v", d.Write, d.Proposal)
	}
}

func TestWorkIsForNoMoreObjectsThanFitIntoMemory(t *testing.T) {
	e := uneven(t, "a", 300, 300)
	e.change("a", func(r *ring.Record) { r.Work = 1000 })
	e.change("b", func(r *ring.Record) { r.Weight = 1 << 24 })
	r := mustGet(e.View(), "a")
	if n := len(load(e.View(), r, e.balance.Settings, e.objects[:300], e.objects[:1]).distances); n != 300+mostWork {
		t.Errorf("the load has %d keys", n)
	}
}

func TestAnEmptyRingIsDividedByWidth(t *testing.T) {
	e := newEvener(t, "b", ring.NewView(1, member("a", at(hashkey.Max/8)), member("b", at(hashkey.Max))))
	e.decide()
	e.now = oldNews
	d := e.decide()
	if d.Write == nil || d.Write.Reason != ring.ReasonBalance {
		t.Fatalf("writes %+v", d.Write)
	}
	r, _ := e.View().Get(d.Write.Name)
	r.Key = d.Write.Next
	after := e.View().With(r)
	if width := float64(after.Owned("b").Width()) / float64(hashkey.Limit); width < 0.5 || width > 0.55 {
		t.Errorf("b has %v of the keys then", width)
	}
}

func TestNotAllBeginToMoveAtOnceAfterAJoin(t *testing.T) {
	e := uneven(t, "b", 100, 300, 100)
	e.change("d", func(r *ring.Record) {
		*r = ring.Record{Name: "d", UID: "d", Revision: r.Revision, Phase: shardingv1alpha1.InstanceActive, Key: at(5)}
	})
	e.decide()
	for _, name := range []string{"a", "b", "c", "d"} {
		e.change(name, func(*ring.Record) {})
	}
	// It is the third in the ring now.
	e.now += Default.AfterJoin + 2*spread - 1
	e.quiet("those before it begin first")
	e.now++
	e.moves()
}

func TestARingRestsWhileManyObjectsComeOrGo(t *testing.T) {
	e := uneven(t, "a", 3000, 1000, 1000)
	e.balance.Rate = 1
	e.moves()
	// A tenth more is none of it.
	e.tell("c", 1500)
	e.moves()
	e.tell("c", 1501)
	e.quiet("many objects have come")
	e.now += e.balance.Steady - 1
	e.quiet("many objects have come lately")
	e.now++
	e.moves()
	e.tell("b", 449)
	e.quiet("many objects have gone")
	e.now += e.balance.Steady
	e.moves()
	// It goes on and on.
	last := int64(longSwing / time.Second)
	for i := range last + 1 {
		e.now += time.Second
		e.tell("c", 1000+500*(i%2))
		if d := e.decide(); (d.Write != nil) != (i == last) {
			t.Fatalf("after %d s of coming and going it writes %+v", i, d.Write)
		}
	}
	e.now += e.balance.Steady
	e.moves()
	e.tell("c", 3000)
	e.quiet("it has ended, and begins anew")
	e.now += e.balance.Steady
	// A tenth of what the ring is taken to have can come or go.
	e.balance.Seed = 3000
	e.tell("c", 2100)
	if d := e.decide(); d.Write == nil {
		t.Error("it moves nothing though only 900 of 9000 have gone")
	}
	e.tell("c", 2099)
	e.quiet("more have gone")
}

func TestABoundaryTurnsBackOnlyForMuch(t *testing.T) {
	for name, tc := range map[string]struct {
		// first are the loads that a boundary moves for, then those for which it is to go back.
		self        string
		first, then []int64
		back        bool
	}{
		"too much, down":      {"b", []int64{1000, 1200, 800}, []int64{1000, 800, 1200}, false},
		"much too much, down": {"b", []int64{1000, 1200, 800}, []int64{1000, 799, 1201}, true},
		"too much, up":        {"b", []int64{800, 1200, 1000}, []int64{1200, 800, 1000}, false},
		"much too much, up":   {"b", []int64{800, 1200, 1000}, []int64{1201, 799, 1000}, true},
		"too little":          {"b", []int64{1000, 1200, 800, 1000, 1000}, []int64{1100, 600, 1100, 1100, 1100}, false},
		"much too little":     {"b", []int64{1000, 1200, 800, 1000, 1000}, []int64{1100, 599, 1100, 1101, 1100}, true},
		// "c" is to pass on to "b" what "d" has too much, and that counts.
		"too much, passed on":      {"b", []int64{1000, 1200, 800, 1000, 1000, 1000}, []int64{900, 800, 1000, 1200, 1050, 1050}, false},
		"much too much, passed on": {"b", []int64{1000, 1200, 800, 1000, 1000, 1000}, []int64{950, 600, 1000, 1400, 1025, 1025}, true},
	} {
		t.Run(name, func(t *testing.T) {
			e := uneven(t, tc.self, tc.first...)
			e.balance.Rate = 1
			d := e.decide()
			if d.Write == nil {
				t.Fatal("it moves nothing")
			}
			moves := d.Write.Name
			e.change(moves, func(r *ring.Record) { r.Key = d.Write.Next })
			e.decide()
			// The other one of that boundary looks at it now.
			donor := d.Proposal.Receiver
			other := e.later(0)
			other.use(ring.NewMachine(donor, e.View(), limits), other.policy)
			other.policy.name, other.policy.about = donor, [4]int64{}
			other.balance.Steady = 0
			other.decide()
			for i, w := range tc.then {
				other.tell(string(rune('a'+i)), w)
			}
			other.now += time.Minute
			boundary := func() string {
				t.Helper()
				if d := other.decide(); d.Write != nil {
					return d.Write.Name
				}
				return ""
			}
			if got := boundary(); (got == moves) != tc.back {
				t.Errorf("moves the boundary %q; %q has moved", got, moves)
			}
			other.now += other.balance.Back - time.Minute
			if got := boundary(); got != moves {
				t.Errorf("long after: moves the boundary %q, want %q", got, moves)
			}
		})
	}
}

func TestWhatIsPassedOnTheOtherWayTurnsNoBoundaryBack(t *testing.T) {
	e := uneven(t, "c", 1000, 1000, 1100)
	e.policy.moves = []moved{{at: e.now, boundary: "b"}}
	for passes, want := range map[int64]bool{500: true, -500: false} {
		plan := &Plan{Parts: []Part{{Name: "b", Load: 1000, Wanted: 1000, tolerated: 100}, {Name: "c", Load: 1100, Wanted: 1000, tolerated: 100, passes: passes}}}
		if got := e.policy.turnsBack(Flow{Boundary: "b", Donor: "c", Receiver: "b"}, plan, e.balance.Settings, false, e.now); got != want {
			t.Errorf("passes %d: turns back %t", passes, got)
		}
	}
}

func TestABoundaryMayTurnBackAfterAnInstanceHasComeOrGone(t *testing.T) {
	move := func(at, came time.Duration) string {
		e := uneven(t, "b", 1000, 1200, 800)
		e.balance.Rate, e.balance.Free = 1, 2*time.Hour
		e.policy.moves = []moved{{at: at, boundary: "b", up: true}}
		e.policy.came = came
		if d := e.decide(); d.Write != nil && d.Write.Name == "b" {
			return "back"
		}
		return ""
	}
	if got := move(time.Hour-time.Minute, time.Hour-time.Minute); got != "back" {
		t.Error("it keeps to a move of before an instance came")
	}
	if got := move(time.Hour-time.Minute+1, time.Hour-time.Minute); got != "" {
		t.Error("it undoes a move of after an instance came")
	}
}

func TestABoundaryThatHasMovedGoesOn(t *testing.T) {
	e := uneven(t, "b", 1000, 1200, 800)
	e.balance.Rate, e.balance.Steady = 1, 0
	d := e.decide()
	e.change("b", func(r *ring.Record) { r.Key = d.Write.Next })
	e.decide()
	e.tell("b", 1150)
	e.tell("c", 850)
	e.now += time.Minute
	if d := e.decide(); d.Write == nil || d.Write.Name != "b" {
		t.Errorf("writes %+v, want it to move the same boundary", d.Write)
	}
}

func TestTheLastMoveOfEachBoundaryIsRemembered(t *testing.T) {
	view := ring.NewView(1, member("a", at(100)), member("b", at(200)), member("c", at(300)))
	log := Log{view: view}
	see := func(next *ring.View, now time.Duration, want ...string) {
		t.Helper()
		log.see(next, now)
		view = next
		var got []string
		for _, m := range log.moves {
			got = append(got, m.boundary)
		}
		if !slices.Equal(got, want) {
			t.Errorf("at %v, the moves of %q are remembered, want %q", now, got, want)
		}
	}
	see(view.With(member("b", at(210))), time.Minute, "b")
	see(view.With(member("b", at(220))), time.Minute+1, "b", "b")
	see(view.With(member("c", at(310))), time.Hour, "c", "b")
	see(view.With(member("b", at(215))), 2*time.Hour, "b", "c")
	see(view.Without("c"), 3*time.Hour, "b")
}

func TestWhatAProcessHoldsBesideCountsLongAfterAJoin(t *testing.T) {
	e := uneven(t, "a", 4000, 4000, 4000)
	e.balance.Rate = 1
	e.hold(4000, 0, 0)
	e.balance.Free = 2 * time.Hour
	e.quiet("an instance has come an hour ago")
	e.now += time.Hour
	if _, given := e.moves(); given < 500 {
		t.Errorf("gives %d", given)
	}
}

// Else one that leads would get as much as others whenever an instance comes or goes, and give it
// back two minutes later.
func TestWhatAProcessHeldBeforeAnInstanceCameStillCounts(t *testing.T) {
	join := func(e *evener) {
		half := *mustGet(e.View(), "d").Key - int64(hashkey.Limit/8)
		e.change("d", func(r *ring.Record) { r.Weight = 2250 })
		e.Apply(ring.Record{Name: "e", UID: "e", Key: &half, Phase: shardingv1alpha1.InstanceActive, Weight: 2250, Revision: e.View().Revision + 1})
		e.decide()
		e.now += 30 * time.Second
		e.tellAgain()
	}
	for _, tc := range []struct {
		// before and now are what "a" holds beside the ring, want what it needs: 0, it gets nothing.
		before, now, want int64
	}{
		{3000, 0, 1400},
		{3000, 3000, 1400},
		{0, 0, 3000},
		{0, 3000, 1400},
	} {
		e := uneven(t, "b", 1500, 4500, 4500, 4500)
		e.balance.Rate = 1
		e.hold(tc.before, 0, 0, 0)
		e.decide()
		join(e)
		// What is told of heaps now counts only where it is more, and nothing of one that has come.
		e.hold(tc.now, 0, 0, 9000, 0)
		needs := int64(0)
		p := e.decide().Proposal
		if p != nil && p.Receiver == "a" {
			needs = p.Needs
		}
		if needs != tc.want {
			t.Errorf("%d beside the ring before, %d now: proposes %v, want a to need %d", tc.before, tc.now, p, tc.want)
		}
	}
}

func TestNothingGoesToOneInWhosePlaceAnotherHasCome(t *testing.T) {
	for name, tc := range map[string]struct {
		holder  string
		drained bool
		key     *int64
		// since is when the other one has come, if it has a key.
		since time.Duration
		gives bool
	}{
		"it waits for a range":     {holder: "host:1_2_y"},
		"elsewhere":                {holder: "host:2_2_y", gives: true},
		"drained":                  {holder: "host:1_2_y", drained: true, gives: true},
		"it has come":              {holder: "host:1_2_y", key: at(hashkey.Max - 100), since: lastLease - 1},
		"it has come long ago":     {holder: "host:1_2_y", key: at(hashkey.Max - 100), since: lastLease, gives: true},
		"one has come elsewhere":   {holder: "host:2_2_y", key: at(hashkey.Max - 100), since: lastLease - 1, gives: true},
		"their places are unknown": {holder: "host", gives: true},
	} {
		e := uneven(t, "a", 4500, 1500, 3000)
		e.balance.Rate = 1
		e.change("b", func(r *ring.Record) {
			if r.Holder = "host:1_1_x"; tc.holder == "host" {
				r.Holder = "host"
			}
		})
		other := member("d", tc.key)
		other.Holder, other.Drained, other.Revision = tc.holder, tc.drained, e.View().Revision+1
		e.Apply(other)
		e.decide()
		e.now += tc.since
		e.tellAgain()
		if p := e.decide().Proposal; (p != nil && p.Receiver == "b") != tc.gives {
			t.Errorf("%s: proposes %v, want that b gets something: %t", name, p, tc.gives)
		}
	}
}

// Else it gives to one that leads, which gives it back at once: the others know what that held
// before. Where that alone had told of its heap nobody knows what it holds beside, and it gets as
// much as all.
func TestOneThatHasComeCountsWhatProcessesHeldBefore(t *testing.T) {
	for name, tc := range map[string]struct {
		own int64
		// It has seen that many, and that all had told of their heaps, or the leader alone. late says
		// that it is to own keys long after it has come.
		told bool
		seen int
		late bool
		want string
	}{
		"one leads":                    {3000, true, 4, false, ""},
		"none leads":                   {0, true, 4, false, "c"},
		"the leader was alone":         {3000, false, 0, false, "c"},
		"the other had told nothing":   {3000, false, 1, false, "c"},
		"one leads since it has come":  {3000, false, 4, true, ""},
		"none leads since it has come": {0, false, 4, true, "c"},
	} {
		e := uneven(t, "d", 4500, 4500, 1500, 4500)
		e.balance.Rate = 1
		e.hold(0, 0, tc.own, 0)
		all := e.View().With(member("e", nil))
		first := all
		if !tc.told {
			leader := mustGet(all, "c")
			leader.Weight = 15000
			first = holds(ring.NewView(all.Revision, leader), tc.own).With(mustGet(all, "e"))
			for _, r := range all.Ring()[:tc.seen] {
				if r.Name != "c" {
					first = first.With(ring.Record{Name: r.Name, UID: r.UID, Key: r.Key, Weight: r.Weight, Phase: r.Phase})
				}
			}
		}
		e.use(ring.NewMachine("e", first, limits), New("e", e.policy.config))
		e.decide()
		if tc.late {
			e.now += time.Hour
		}
		e.Replace(all)
		e.decide()
		half := *mustGet(e.View(), "d").Key - int64(hashkey.Limit/8)
		e.Apply(ring.Record{Name: "e", UID: "e", Key: &half, Phase: shardingv1alpha1.InstanceActive, Revision: e.View().Revision + 1})
		e.decide()
		e.now += 30 * time.Second
		for name, weight := range map[string]int64{"a": 3500, "b": 3500, "c": 1500, "d": 3000, "e": 3500} {
			e.tell(name, weight)
		}
		got := ""
		if p := e.decide().Proposal; p != nil {
			got = p.Receiver
		}
		if got != tc.want {
			t.Errorf("%s: gives to %q, want %q", name, got, tc.want)
		}
	}
}

// The others have not seen what it held while it was not alone, and would give back what it gives.
func TestOneThatHasBeenAloneForgetsWhatItHeldBefore(t *testing.T) {
	for alone, want := range map[bool]bool{true: false, false: true} {
		e := uneven(t, "a", 6000, 6000)
		e.balance.Rate = 1
		e.hold(4000, 0)
		e.decide()
		other := mustGet(e.View(), "b")
		other.UID = "another"
		if alone {
			e.Remove("b", e.View().Revision+1)
			e.decide()
		}
		other.Revision = e.View().Revision + 1
		e.Apply(other)
		e.decide()
		e.now += 30 * time.Second
		e.tell("a", 6000)
		e.tell("b", 6000)
		if p := e.decide().Proposal; (p != nil) != want {
			t.Errorf("alone before %t: proposes %v", alone, p)
		}
	}
}

// One that comes when only one tells of its heap cannot know, either: all others have restarted.
func TestWhatOneThatHasComeCannotKnowIsForgotten(t *testing.T) {
	for restarted, want := range map[string]bool{"b": true, "bc": true, "bcd": false} {
		e := uneven(t, "a", 6000, 6000, 6000, 6000)
		e.balance.Rate = 1
		e.hold(5000, 0, 0, 0)
		e.decide()
		for _, other := range restarted {
			r := mustGet(e.View(), string(other))
			r.UID, r.LiveBytes, r.HeapObjects, r.Revision = "again", 0, 0, e.View().Revision+1
			e.Remove(r.Name, e.View().Revision+1)
			e.Apply(r)
		}
		// All of that comes before it decides.
		e.hold(5000, 0, 0, 0)
		e.decide()
		e.now += 30 * time.Second
		// It comes to hold less, which counts when that is over.
		e.hold(0, 0, 0, 0)
		e.tellAgain()
		if p := e.decide().Proposal; (p != nil) != want {
			t.Errorf("%s restarted: proposes %v, want it to give something: %t", restarted, p, want)
		}
	}
}

func TestAMoveThatEvensOutIsCalledOffWhenThatIsTurnedOff(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(r *ring.Record)
		callOff bool
	}{
		"on":                 {func(*ring.Record) {}, false},
		"off":                {func(r *ring.Record) { r.BalanceOff = true }, true},
		"off, and by a hand": {func(r *ring.Record) { r.BalanceOff, r.PinnedKey = true, r.Next }, false},
	} {
		e := uneven(t, "b", 100, 200, 120)
		e.balance.Rate = 1
		w := e.decide().Write
		e.change(w.Name, func(r *ring.Record) {
			r.Next = w.Next
			tc.change(r)
		})
		d := e.decide()
		if tc.callOff != (d.Write != nil) || d.Write != nil && (d.Write.Reason != ring.ReasonCallOff || d.Write.Name != w.Name || d.Write.Next != nil) {
			t.Errorf("%s: writes %+v", name, d.Write)
		}
		if !tc.callOff && !d.Waits {
			t.Errorf("%s: does not say that it waits for the receiver", name)
		}
	}
	e := uneven(t, "b", 100, 200, 120)
	e.Apply(ring.Record{Name: "e", UID: "e", Donor: "b", Next: new(*mustGet(e.View(), "b").Key - 1), BalanceOff: true, Revision: e.View().Revision + 1})
	if d := e.decide(); d.Write != nil || !d.Waits {
		t.Errorf("one joins: writes %+v", d.Write)
	}
}

func TestInARingOfTwoLoadTurnsBackOverNeitherBoundary(t *testing.T) {
	for last, want := range map[moved]string{
		{boundary: "a", up: true}:  "",  // b gave nothing to a since: a got it
		{boundary: "b", up: false}: "",  // the same, over the other boundary
		{boundary: "a", up: false}: "a", // a gave, and goes on
		{boundary: "b", up: true}:  "a",
	} {
		e := uneven(t, "a", 1150, 850)
		e.balance.Rate = 1
		last.at = e.now - time.Minute
		e.policy.moves = []moved{last}
		got := ""
		if d := e.decide(); d.Write != nil {
			got = d.Write.Name
		}
		if got != want {
			t.Errorf("after %+v it moves %q, want %q", last, got, want)
		}
	}
}
