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
)

func TestOnlyTheOldestInstanceTakesAnEmptyRing(t *testing.T) {
	older := Record{Name: "z", UID: "z", Revision: 1}
	self := Record{Name: "a", UID: "a", Revision: 2}
	m := NewMachine("a", NewView(2, older, self), limits)
	if d := m.Decide(Input{Now: 1}); d.Write != nil {
		t.Errorf("a younger instance wrote %+v", d.Write)
	}
	m.Remove("z", 3)
	d := m.Decide(Input{Now: 2})
	if d.Write == nil || d.Write.Reason != ReasonFirst || *d.Write.Key != hashkey.Max {
		t.Errorf("the oldest instance left wrote %+v, want everything for itself", d.Write)
	}
}

func TestAnInstanceThatRegistersLaterIsNotOlder(t *testing.T) {
	self := Record{Name: "b", UID: "b", Revision: 1}
	m := NewMachine("b", NewView(1, self), limits)
	m.Apply(Record{Name: "a", UID: "a", Revision: 2})
	if d := m.Decide(Input{Now: 1}); d.Write == nil || d.Write.Reason != ReasonFirst {
		t.Errorf("the oldest instance wrote %+v, want everything for itself", d.Write)
	}

	// An older one that has registered anew is younger.
	m = NewMachine("b", NewView(2, Record{Name: "a", UID: "a", Revision: 1}, self), limits)
	m.Replace(NewView(9, Record{Name: "a", UID: "a anew", Revision: 9}, self))
	if d := m.Decide(Input{Now: 1}); d.Write == nil || d.Write.Reason != ReasonFirst {
		t.Errorf("the older instance registered anew: wrote %+v, want everything for itself", d.Write)
	}
}

// A grant of a dead donor is refused, so what it may have been giving need not be closed
// first.
func TestAnEmptyRingIsTakenThoughAHandoverIsOpen(t *testing.T) {
	self := Record{Name: "a", UID: "a", Revision: 1}
	m := NewMachine("a", NewView(1, self), limits)
	m.Replace(NewView(6, self, joining("n", "d", at(100))))
	if d := m.Decide(Input{Now: 1}); d.Write == nil || d.Write.Reason != ReasonFirst || !d.Follow.Equal(keys(hashkey.Max-int64(hashkey.Limit/8), hashkey.Max)) {
		t.Errorf("wrote %+v, follows %v; want everything for itself, and an eighth filled", d.Write, d.Follow)
	}
}

func TestDonorsOwnTwoKeysOrMoreAndAreActiveOrDrain(t *testing.T) {
	in := func(phase shardingv1alpha1.InstancePhase, key *int64) Record {
		r := member("x", key)
		r.Phase = phase
		return r
	}
	for name, tc := range map[string]struct {
		record Record
		want   bool
	}{
		"Active":                          {in(shardingv1alpha1.InstanceActive, at(200)), true},
		"Wait: it drains for another":     {in(shardingv1alpha1.InstanceWait, at(200)), true},
		"Init":                            {in(shardingv1alpha1.InstanceInit, at(200)), false},
		"Locked: its own gate is shut":    {in(shardingv1alpha1.InstanceLocked, at(200)), false},
		"Leaving":                         {in(shardingv1alpha1.InstanceLeaving, at(200)), false},
		"owns nothing":                    {in(shardingv1alpha1.InstanceActive, nil), false},
		"owns two keys":                   {in(shardingv1alpha1.InstanceActive, at(102)), true},
		"owns one key":                    {in(shardingv1alpha1.InstanceActive, at(101)), false},
		"nothing, as another has its key": {in(shardingv1alpha1.InstanceActive, at(100)), false},
	} {
		t.Run(name, func(t *testing.T) {
			m := NewMachine("n", NewView(1, member("a", at(100)), tc.record, joining("n", "", nil)), limits)
			if got := m.donors("").named("x") != nil; got != tc.want {
				t.Errorf("can be asked: %v, want %v", got, tc.want)
			}
		})
	}
}

func TestTheDonorWithMostWorkloadsIsAskedThenTheWidest(t *testing.T) {
	// a owns (300, Max] and [0, 100], b (100, 150], c (150, 300].
	ring := func(a, b, c int64) []Record {
		records := []Record{member("a", at(100)), member("b", at(150)), member("c", at(300))}
		for i, weight := range []int64{a, b, c} {
			records[i].Weight = weight
		}
		return records
	}
	with := func(records []Record, phase shardingv1alpha1.InstancePhase, names ...string) []Record {
		for i := range records {
			for _, name := range names {
				if records[i].Name == name {
					records[i].Phase = phase
				}
			}
		}
		return records
	}
	heavy := func(records []Record, name string, heaviest int64) []Record {
		for i := range records {
			if records[i].Name == name {
				records[i].Heaviest = heaviest
			}
		}
		return records
	}
	for name, tc := range map[string]struct {
		records []Record
		want    string
	}{
		"most weight, though the narrowest":         {ring(5, 9, 7), "b"},
		"most weight, last on the ring":             {ring(5, 7, 9), "c"},
		"as many: the widest":                       {ring(7, 7, 7), "a"},
		"as many: the wider of those with most":     {ring(5, 7, 7), "c"},
		"the next, as the best is not eligible":     {with(ring(5, 9, 7), shardingv1alpha1.InstanceLeaving, "b"), "c"},
		"not one whose load lies on one key":        {heavy(ring(5, 9, 7), "b", 8), "c"},
		"one of whose load less lies on one key":    {heavy(ring(5, 9, 7), "b", 5), "b"},
		"the only eligible one":                     {with(ring(5, 9, 7), shardingv1alpha1.InstanceLocked, "b", "c"), "a"},
		"nobody, as none is eligible":               {with(ring(5, 9, 7), shardingv1alpha1.InstanceLeaving, "a", "b", "c"), ""},
		"never an instance that joins like oneself": {append(ring(5, 6, 7), Record{Name: "z", UID: "z", Weight: 99, Phase: shardingv1alpha1.InstanceActive}), "c"},
	} {
		t.Run(name, func(t *testing.T) {
			m := NewMachine("n", NewView(1, append(tc.records, joining("n", "", nil))...), limits)
			got := ""
			if d := m.Decide(Input{Now: 1}); d.Write != nil {
				got = d.Write.Donor
				if d.Write.Reason != ReasonWish || d.Write.Name != "n" || d.Write.Key != nil || d.Write.Next != nil {
					t.Errorf("wrote %+v, want a wish", d.Write)
				}
			}
			if got != tc.want {
				t.Errorf("asks %q, want %q", got, tc.want)
			}
		})
	}
}

func TestAJoiningInstanceChangesItsMindOnlyForAClearlyBetterDonor(t *testing.T) {
	for name, tc := range map[string]struct {
		// present and other are the weights of two donors. The first has been asked and
		// owns 100 keys, (0, 100]; the other owns (100, end]. The rest of the line belongs to
		// one that cannot be asked.
		present, other int64
		end            int64
		named          bool
		changes        bool
	}{
		"twice the workloads":                                {present: 10, other: 20, end: 1000},
		"more than twice the workloads":                      {present: 10, other: 21, end: 1000, changes: true},
		"something instead of none":                          {present: 0, other: 1, end: 150, changes: true},
		"as much, not twice as wide":                         {present: 10, other: 10, end: 299},
		"as much, twice as wide":                             {present: 10, other: 10, end: 300, changes: true},
		"less, though wider":                                 {present: 10, other: 9, end: 1000},
		"much better, but the present donor has named a key": {present: 1, other: 99, end: 1000, named: true},
	} {
		t.Run(name, func(t *testing.T) {
			present, other, rest := member("present", at(100)), member("other", at(tc.end)), member("rest", at(0))
			present.Weight, other.Weight, rest.Phase = tc.present, tc.other, shardingv1alpha1.InstanceLeaving
			self := joining("n", "present", nil)
			if tc.named {
				self = joining("n", "present", at(50))
			}
			m := NewMachine("n", NewView(1, present, other, rest, self), limits)
			d := m.Decide(Input{Now: 1})
			if changes := d.Write != nil && d.Write.Donor == "other"; changes != tc.changes || d.Write != nil && !changes {
				t.Errorf("wrote %+v, want another donor: %v", d.Write, tc.changes)
			}
		})
	}
}

func TestAJoiningInstanceAsksAnotherAtOnceWhenItsDonorCannotBeAskedAnyMore(t *testing.T) {
	for name, phase := range map[string]shardingv1alpha1.InstancePhase{"leaves": shardingv1alpha1.InstanceLeaving, "has gone": ""} {
		for _, next := range []*int64{nil, at(50)} {
			present, other := member("present", at(100)), member("other", at(1000))
			present.Weight, present.Phase = 99, phase
			view := NewView(1, present, other, joining("n", "present", next))
			if phase == "" {
				view = view.Without("present")
			}
			m := NewMachine("n", view, limits)
			if d := m.Decide(Input{Now: 1}); d.Write == nil || d.Write.Reason != ReasonWish || d.Write.Donor != "other" {
				t.Errorf("the donor %s, its key %s: wrote %+v, want the other asked", name, hashkey.FormatOptional(next), d.Write)
			}
		}
	}
}

// ringOfTwoDonors has two instances that can be asked. The first has more to give.
func ringOfTwoDonors(self Record) *View {
	first, second := member("first", at(1000)), member("second", at(2000))
	first.Weight, second.Weight = 10, 9
	return NewView(1, first, second, self)
}

func TestADonorThatNamesNoKeyIsPassedOverAfterAStep(t *testing.T) {
	m := NewMachine("n", ringOfTwoDonors(joining("n", "first", nil)), limits)
	d := atLimit(t, m, Input{Now: 7 * time.Second}, limits.Step, nil)
	if d.Write == nil || d.Write.Reason != ReasonWish || d.Write.Donor != "second" || d.Phase != shardingv1alpha1.InstanceInit {
		t.Errorf("at the limit: %s, wrote %+v, want the second asked", d.Phase, d.Write)
	}

	// The first has clearly more to give, and is not asked again at once. The wait for the second
	// begins when that has been asked.
	more := member("first", at(1000))
	more.Weight = 1000
	m.Apply(more)
	m.Apply(joining("n", "second", nil))
	d = atLimit(t, m, Input{Now: 50 * time.Second}, limits.Step, nil)
	if d.Write == nil || d.Write.Reason != ReasonWish || d.Write.Donor != "first" {
		t.Errorf("at the second limit: wrote %+v, want the first asked", d.Write)
	}
}

func TestADonorThatNamesNoKeyIsWaitedForIfThereIsNoOther(t *testing.T) {
	m := NewMachine("n", NewView(1, member("first", at(1000)), joining("n", "first", nil)), limits)
	if d := atLimit(t, m, Input{Now: 7 * time.Second}, limits.Step, nil); d.Write != nil || d.Wake != 0 {
		t.Errorf("at the limit: wrote %+v, wakes at %v; want to wait on", d.Write, d.Wake)
	}
}

func TestADonorThatDoesNotGrantIsPassedOverInTheEnd(t *testing.T) {
	m := NewMachine("n", ringOfTwoDonors(joining("n", "first", at(500))), limits)
	d := atLimit(t, m, Input{Now: 7 * time.Second}, limits.Fill+3*limits.Step, nil)
	if d.Write == nil || d.Write.Reason != ReasonWish || d.Write.Donor != "second" || d.Write.Next != nil || d.Phase != shardingv1alpha1.InstanceLocked {
		t.Errorf("at the limit: %s, wrote %+v, want the second asked", d.Phase, d.Write)
	}
}

func TestADonorThatDoesNotGrantIsAskedAnewIfThereIsNoOther(t *testing.T) {
	m := NewMachine("n", NewView(1, member("first", at(1000)), joining("n", "first", at(500))), limits)
	d := atLimit(t, m, Input{Now: 7 * time.Second}, limits.Fill+3*limits.Step, nil)
	if d.Write == nil || d.Write.Reason != ReasonWish || d.Write.Donor != "first" || d.Write.Next != nil {
		t.Errorf("at the limit: wrote %+v, want the donor asked anew", d.Write)
	}
}

func TestTheWaitForAGrantBeginsWhenTheKeyIsNamed(t *testing.T) {
	m := NewMachine("n", ringOfTwoDonors(joining("n", "first", nil)), limits)
	m.Decide(Input{Now: 7 * time.Second})
	m.Apply(joining("n", "first", at(500)))
	atLimit(t, m, Input{Now: 30 * time.Second}, limits.Fill+3*limits.Step, nil)
}

// All see the same records and spread over the donors, so they do not run to the same one
// whenever it becomes the best.
func TestInstancesThatJoinAtOnceSpreadOverTheDonors(t *testing.T) {
	first, second := member("first", at(1000)), member("second", at(2000))
	first.Weight, second.Weight = 20, 10
	records := []Record{first, second}
	for _, name := range []string{"k", "l", "m"} {
		records = append(records, joining(name, "", nil))
	}
	asked := map[string]int{}
	for _, name := range []string{"k", "l", "m"} {
		if d := NewMachine(name, NewView(1, records...), limits).Decide(Input{Now: 1}); d.Write != nil {
			asked[d.Write.Donor]++
		}
	}
	if asked["first"] != 2 || asked["second"] != 1 {
		t.Errorf("asked %v, want the first, which has twice as much, twice and the second once", asked)
	}
}

// Whoever leaves waits for the one that follows everything.
func TestTheOldestThatJoinsFollowsEverythingWhenAllOwnersLeave(t *testing.T) {
	a, b := member("a", at(100)), member("b", at(hashkey.Max))
	a.Phase, b.Phase = shardingv1alpha1.InstanceLeaving, shardingv1alpha1.InstanceLeaving
	older, younger := NewMachine("x", NewView(1, a, b, joining("x", "a", nil)), limits), NewMachine("y", NewView(2, a, b, joining("x", "a", nil), joining("y", "a", nil)), limits)
	if d := older.Decide(Input{Now: 1}); !d.Follow.Equal(hashkey.All()) || d.Write != nil {
		t.Errorf("the oldest follows %v and writes %+v, want everything and nothing", d.Follow, d.Write)
	}
	if d := younger.Decide(Input{Now: 1}); !d.Follow.Empty() {
		t.Errorf("a younger one follows %v, want nothing", d.Follow)
	}
}

func TestAnInstanceWhosePredecessorsDiedYoungRestsLongerEachTime(t *testing.T) {
	owner := member("a", at(hashkey.Max))
	m := NewMachine("a", NewView(1, owner), limits)
	in := Input{Serving: hashkey.All(), Keys: noKeys}
	now, revision := time.Duration(1), int64(1)
	decide := func() *Write {
		in.Now = now
		return m.Decide(in).Write
	}
	comes := func(name, holder string) Record {
		revision++
		r := joining(name, "a", nil)
		r.Holder, r.Revision = holder, revision
		m.Apply(r)
		return r
	}
	dies := func(name string) {
		r, _ := m.View().Get(name)
		r.Key, r.Next = at(5), nil
		m.Apply(r)
		decide()
		now += time.Second
		revision++
		m.Remove(name, revision)
		decide()
	}
	wantRest := func(what string, rest time.Duration) {
		t.Helper()
		if rest > 0 {
			if w := decide(); w != nil {
				t.Errorf("%s: wrote %+v, want it to rest for %v", what, w, rest)
			}
			now += rest - 1
			if w := decide(); w != nil {
				t.Errorf("%s: wrote %+v after %v, want it to rest for %v", what, w, rest-1, rest)
			}
			now++
		}
		if w := decide(); w == nil || w.Reason != ReasonSplit {
			t.Errorf("%s: wrote %+v after a rest of %v, want a key named", what, w, rest)
		}
	}
	comes("1", "host_1")
	wantRest("the first", 0)
	dies("1")
	comes("2", "host_2")
	wantRest("after one death", 10*time.Second)
	dies("2")
	comes("3", "host_3")
	wantRest("after two", 20*time.Second)
	comes("4", "other_1")
	dies("3")
	wantRest("of another host", 0)
	dies("4")
	comes("5", "other_1")
	wantRest("the same process, which has lost its record", 0)
	old, _ := m.View().Get("5")
	old.Key = at(5)
	m.Apply(old)
	decide()
	now += youngAge
	dies("5")
	comes("6", "other_2")
	wantRest("after a long life", 0)
	leaving := comes("7", "host_7")
	leaving.Phase = shardingv1alpha1.InstanceLeaving
	dies("6")
	m.Apply(leaving)
	decide()
	dies("7")
	comes("8", "host_8")
	wantRest("after one that left", 0)
}

func TestADrainedInstanceAsksNobody(t *testing.T) {
	self := joining("n", "", nil)
	self.Drained = true
	m := NewMachine("n", NewView(1, member("a", at(hashkey.Max)), self), limits)
	if d := m.Decide(Input{Now: 1}); d.Write != nil || d.Phase != shardingv1alpha1.InstanceInit || !d.Follow.Empty() {
		t.Errorf("it is %s, writes %+v, follows %v", d.Phase, d.Write, d.Follow)
	}
	// Nobody else is there to own anything.
	m.Remove("a", 2)
	if d := m.Decide(Input{Now: 2}); d.Write == nil || d.Write.Reason != ReasonFirst {
		t.Errorf("alone it writes %+v", d.Write)
	}
	owner := NewMachine("a", NewView(1, member("a", at(hashkey.Max)), Record{Name: "n", Donor: "a", Drained: true}), limits)
	if d := owner.Decide(Input{Now: 1, Serving: hashkey.All(), Keys: noKeys}); d.Write != nil {
		t.Errorf("the owner writes %+v", d.Write)
	}
}
