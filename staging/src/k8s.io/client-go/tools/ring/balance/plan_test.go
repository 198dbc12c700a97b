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
	"fmt"
	"math"
	"math/rand"
	"slices"
	"testing"

	"k8s.io/client-go/tools/ring"
)

// loads returns the view of a ring of instances with these weights, in order of key.
func loads(weights ...int64) *ring.View {
	var records []ring.Record
	for i, w := range weights {
		records = append(records, ring.Record{Name: fmt.Sprintf("i%04d", i), Key: at(int64(i+1) << 40), Weight: w})
	}
	return ring.NewView(1, records...)
}

func wanted(p *Plan) (all []int64) {
	for _, part := range p.Parts {
		all = append(all, part.Wanted)
	}
	return all
}

func TestEachShouldHaveAsMuch(t *testing.T) {
	for name, tc := range map[string]struct {
		view *ring.View
		want []int64
	}{
		"nobody":                  {loads(), nil},
		"one":                     {loads(7), []int64{7}},
		"nothing":                 {loads(0, 0, 0), []int64{0, 0, 0}},
		"even":                    {loads(10, 10), []int64{10, 10}},
		"uneven":                  {loads(0, 30, 60), []int64{30, 30, 30}},
		"with a rest":             {loads(0, 1, 10), []int64{3, 4, 4}},
		"less than there are":     {loads(0, 2, 0), []int64{0, 1, 1}},
		"a heavy key":             {heaviest(loads(100, 10, 10), 0, 90), []int64{90, 15, 15}},
		"a heavy key, and a mean": {heaviest(loads(40, 40, 40), 1, 30), []int64{40, 40, 40}},
		// Of 20 kB an object, with what each process holds anyway.
		"a leader":                             {holds(loads(4000, 4000, 4000), 1500, 0, 0), []int64{3000, 4500, 4500}},
		"a leader of few objects":              {holds(loads(2000, 2000, 2000), 900, 0, 0), []int64{1700, 2150, 2150}},
		"a leader of two":                      {holds(loads(4000, 4000), 2000, 0), []int64{3000, 5000}},
		"a leader with a lot":                  {holds(loads(4000, 4000, 4000), 40000, 0, 0), []int64{2222, 4889, 4889}},
		"a heavy key beside it":                {heaviest(holds(loads(6000, 6000, 6000), 20000, 0, 0), 0, 5000), []int64{5000, 6500, 6500}},
		"a leader that needs all":              {holds(loads(0, 1000, 1000), 0, 0, 0), []int64{666, 667, 667}},
		"a heaviest key of more than there is": {heaviest(loads(10, 50), 0, 90), []int64{30, 30}},
		"more than there can be":               {loads(math.MaxInt64, math.MaxInt64), []int64{mostLoad, mostLoad}},
		"more than there can be, of many":      {loads(slices.Repeat([]int64{math.MaxInt64}, 8192)...), slices.Repeat([]int64{mostLoad}, 8192)},
		"too little to tell a heap":            {holds(loads(400, 400, 400), 7000, 0, 0), []int64{400, 400, 400}},
		"work":                                 {works(loads(100, 100), 1000, 500), []int64{150, 150}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := wanted(NewPlan(tc.view, unseeded(Default), false, nil)); !slices.Equal(got, tc.want) {
				t.Errorf("wanted are %v, want %v", got, tc.want)
			}
		})
	}
}

func heaviest(v *ring.View, i int, n int64) *ring.View {
	r := *v.Ring()[i]
	r.Heaviest = n
	return v.With(r)
}

// holds lets the processes hold so many objects' bytes beside the ring.
func holds(v *ring.View, own ...int64) *ring.View {
	const bytes = 20000
	for i := range v.Ring() {
		r := *v.Ring()[i]
		r.HeapObjects, r.LiveBytes = r.Weight, processBytes+bytes*(r.Weight+own[i])
		if own[i] > 0 {
			r.LiveBytes += processBytes
		}
		v = v.With(r)
	}
	return v
}

// works lets the instances work so much, in thousandths.
func works(v *ring.View, work ...int32) *ring.View {
	for i := range v.Ring() {
		r := *v.Ring()[i]
		r.Work = work[i]
		v = v.With(r)
	}
	return v
}

// unseeded takes no notice of widths.
func unseeded(settings Settings) Settings {
	settings.Seed = 0
	return settings
}

func TestShiftsGoTheShortWayRoundTheRing(t *testing.T) {
	settings := Settings{Tolerance: 0.1, Least: 5}
	for name, tc := range map[string]struct {
		weights []int64
		want    []Flow
	}{
		"alone":      {[]int64{1000}, nil},
		"nothing":    {[]int64{0, 0}, nil},
		"up":         {[]int64{100, 0}, []Flow{{"i0000", "i0000", "i0001", 48}}},
		"down":       {[]int64{0, 100}, []Flow{{"i0001", "i0001", "i0000", 48}}},
		"both ways":  {[]int64{0, 50, 0, 150}, []Flow{{"i0002", "i0003", "i0002", 46}, {"i0003", "i0003", "i0000", 52}}},
		"seam":       {[]int64{200, 100, 100, 0}, []Flow{{"i0000", "i0000", "i0001", 5}, {"i0003", "i0000", "i0003", 90}}},
		"not enough": {[]int64{10, 7, 7}, nil},
		"within":     {[]int64{110, 100, 90}, nil},
		"too much":   {[]int64{111, 100, 89}, []Flow{{"i0000", "i0000", "i0001", 5}}},
		"too little": {[]int64{106, 106, 106, 106, 106, 70}, []Flow{{"i0004", "i0004", "i0005", 9}, {"i0005", "i0000", "i0005", 11}}},
		// Who has a little room is spared a handover of ten objects.
		"not worth a handover": {[]int64{1101, 1040, 859}, []Flow{{"i0002", "i0000", "i0002", 41}}},
		// More passes through the others in the next rounds: each keeps half of what it should have, and
		// gets no more than that.
		"from afar": {[]int64{0, 10, 130, 0, 0}, []Flow{{"i0001", "i0002", "i0001", 20}, {"i0002", "i0002", "i0003", 30}}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := NewPlan(loads(tc.weights...), settings, true, nil).Flows; !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// settle carries plans out, all shifts of one at once, until there are none. It returns how many
// rounds that took, and how much was moved.
func settle(t *testing.T, weights []int64, settings Settings) (rounds int, moved int64) {
	t.Helper()
	for ; ; rounds++ {
		plan := NewPlan(loads(weights...), unseeded(settings), true, nil)
		if len(plan.Flows) == 0 {
			return rounds, moved
		}
		if rounds == 100 {
			t.Fatalf("no rest: %v", weights)
		}
		place := map[string]int{}
		for i, part := range plan.Parts {
			place[part.Name] = i
		}
		for _, s := range plan.Flows {
			weights[place[s.Donor]] -= s.Load
			weights[place[s.Receiver]] += s.Load
			moved += s.Load
		}
		if slices.Min(weights) < 0 {
			t.Fatalf("round %d has an instance give what it has not: %v", rounds, weights)
		}
	}
}

func TestEveryRingComesToRestNearTheMean(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	for range 2000 {
		n := 2 + random.Intn(30)
		weights := make([]int64, n)
		var total int64
		for i := range weights {
			weights[i] = random.Int63n(10000) * random.Int63n(2)
			total += weights[i]
		}
		before := slices.Clone(weights)
		rounds, _ := settle(t, weights, Default)
		mean := float64(total) / float64(n)
		if most := float64(slices.Max(weights)); most > 1.1*mean+50 {
			t.Errorf("%v rests as %v after %d rounds", before, weights, rounds)
		}
	}
}

func TestTenThatJoinAtOnceAreEven(t *testing.T) {
	weights := []int64{94, 94, 94, 94, 187, 187, 375, 375, 750, 750}
	rounds, moved := settle(t, weights, Default)
	if most := slices.Max(weights); rounds > 8 || most > 330 {
		t.Errorf("after %d rounds in which %d objects moved: %v", rounds, moved, weights)
	}
}

// A key with many objects is in the way of what lies behind it, and of what comes from elsewhere.
func TestLoadFlowsAroundAHeavyKey(t *testing.T) {
	settings := Settings{Tolerance: 0.1, Least: 5}
	heavy := func(before int64) *ring.View {
		v := heaviest(loads(100, 700, 0, 100), 1, 600)
		r := *v.Ring()[1]
		r.BeforeHeaviest = before
		return v.With(r)
	}
	for name, tc := range map[string]struct {
		before int64
		want   []Flow
	}{
		"all after it":  {0, []Flow{{"i0001", "i0001", "i0002", 89}}},
		"all before it": {100, []Flow{{"i0000", "i0001", "i0000", 11}, {"i0002", "i0003", "i0002", 50}, {"i0003", "i0000", "i0003", 11}}},
		"half of them":  {50, []Flow{{"i0000", "i0001", "i0000", 11}, {"i0001", "i0001", "i0002", 50}, {"i0002", "i0003", "i0002", 17}, {"i0003", "i0000", "i0003", 11}}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := NewPlan(heavy(tc.before), settings, true, nil).Flows; !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// A key is in the way of load that is to pass, and less than that: it passes, too, once the
// receiver has passed enough on to have room for it.
func TestAHeavyKeyPassesWhereMoreIsToPass(t *testing.T) {
	for name, tc := range map[string]struct {
		weights []int64
		heavy   int64
		// on is how much the receiver passes on, most how much it may be given at once.
		on, most int64
	}{
		"the receiver makes room":          {[]int64{30, 50, 98, 92, 118, 190, 150, 110}, 55, 12, 22},
		"it has room":                      {[]int64{30, 50, 98, 52, 118, 190, 150, 110}, 55, 3, 55},
		"it has still less than who gives": {[]int64{30, 50, 98, 92, 148, 190, 120, 110}, 55, 12, 55},
		"less is to pass":                  {[]int64{90, 90, 98, 92, 118, 140, 100, 110}, 55, 0, 22},
		"who gives has little":             {[]int64{30, 50, 98, 52, 80, 228, 150, 110}, 55, 0, 0},
		"who gives has nothing else":       {[]int64{30, 50, 98, 0, 98, 262, 150, 110}, 98, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			v := heaviest(loads(tc.weights...), 4, tc.heavy)
			last := *v.Ring()[7]
			last.PinnedKey = last.Key
			plan := NewPlan(v.With(last), Settings{Tolerance: 0.1, Least: 5}, false, nil)
			on, most := int64(0), int64(0)
			for _, s := range plan.Flows {
				switch s.Donor {
				case "i0003":
					on = s.Load
				case "i0004":
					most = plan.most(s)
				}
			}
			if on != tc.on || most != tc.most {
				t.Errorf("passes %d on and may be given %d, want %d and %d; %+v", on, most, tc.on, tc.most, plan)
			}
		})
	}
}

// What an instance waits for may never come.
func TestLittleIsPassedOnOutsideFreeMinutes(t *testing.T) {
	settings := Settings{Tolerance: 0.1, Least: 5}
	for free, want := range map[bool]int64{true: 100, false: 20} {
		passed := int64(0)
		for _, s := range NewPlan(loads(1000, 200, 0, 0, 0, 0), settings, free, nil).Flows {
			if s.Donor == "i0001" {
				passed = s.Load
			}
		}
		if passed != want {
			t.Errorf("free %v: passes %d on, want %d", free, passed, want)
		}
	}
}

// The one that leads since an instance has gone would give it back after the free minutes.
func TestInAFreePlanWhatHoldsMoreThanBeforeGetsLess(t *testing.T) {
	const self = "i0001"
	for name, tc := range map[string]struct {
		weights []int64
		// before and now are what its process holds beside the ring, given what it is to get, and most
		// what it may get at most.
		before, now, given, most int64
	}{
		"too much elsewhere":   {[]int64{6000, 4000, 5000, 5000}, 0, 0, 750, 1499},
		"as much as before":    {[]int64{6000, 4000, 5000, 5000}, 400, 400, 650, 1275},
		"less than before":     {[]int64{6000, 4000, 5000, 5000}, 400, 0, 650, 1275},
		"more":                 {[]int64{6000, 4000, 5000, 5000}, 0, 900, 525, 525},
		"much more":            {[]int64{6000, 4000, 5000, 5000}, 0, 3000, 0, 0},
		"room elsewhere":       {[]int64{7000, 4000, 4500, 4500}, 0, 3000, 0, 0},
		"too little":           {[]int64{5300, 3800, 5450, 5450}, 0, 0, 700, 700},
		"too little, and more": {[]int64{5300, 3800, 5450, 5450}, 0, 150, 587, 587},
		"not so little":        {[]int64{5300, 3800, 5450, 5450}, 0, 300, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			view := func(own int64) *ring.View { return holds(loads(tc.weights...), 0, own, 0, 0) }
			plan := NewPlan(view(tc.now), unseeded(Default), true, view(tc.before))
			var given, most int64
			for _, part := range plan.Parts {
				for _, s := range plan.from(part.Name) {
					if s.Donor == self {
						t.Errorf("gives %d", s.Load)
					}
					if s.Receiver == self {
						given += s.Load
						most += plan.most(s)
					}
				}
			}
			if given != tc.given || most != tc.most {
				t.Errorf("gets %d, and at most %d, want %d and %d: %+v", given, most, tc.given, tc.most, plan)
			}
		})
	}
}

// One that gets less would else be a wall: the load of who was next to three that went has to pass
// it.
func TestInAFreePlanLoadPassesWhatHoldsMoreThanBefore(t *testing.T) {
	weights := []int64{16000, 4000, 4000, 4000, 4000, 4000, 4000}
	before := holds(loads(weights...), make([]int64, 7)...)
	for range 40 {
		v := holds(loads(weights...), 0, 4000, 0, 0, 0, 0, 0)
		last := *v.Ring()[6]
		last.PinnedKey = last.Key
		v = v.With(last)
		plan := NewPlan(v, unseeded(Default), true, before)
		for _, s := range plan.Flows {
			weights[v.Index(s.Donor)] -= s.Load
			weights[v.Index(s.Receiver)] += s.Load
		}
	}
	if most := slices.Max(weights); most > 6600 {
		t.Errorf("comes to rest at %v", weights)
	}
}

func TestAnInstanceThatPassesLoadOnKeepsItsHeaviestKey(t *testing.T) {
	v := heaviest(loads(500, 150, 0, 0, 0, 0), 1, 95)
	want := []Flow{{"i0001", "i0001", "i0002", 55}, {"i0005", "i0000", "i0005", 114}}
	if got := NewPlan(v, Settings{Tolerance: 0.1, Least: 5}, true, nil).Flows; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTheExampleOfTheDesign(t *testing.T) {
	weights := []int64{1000, 1600, 1000, 400}
	for _, want := range []struct {
		flows []int64
		after []int64
	}{
		{[]int64{-50, 50, 450, 0}, []int64{1050, 1500, 600, 850}},
		{[]int64{0, 450, 0, 0}, []int64{1050, 1050, 1050, 850}},
		{[]int64{0, 0, 0, 0}, []int64{1050, 1050, 1050, 850}},
	} {
		plan := NewPlan(loads(weights...), Default, true, nil)
		flows := make([]int64, len(weights))
		for _, f := range plan.Flows {
			i := slices.IndexFunc(plan.Parts, func(part Part) bool { return part.Name == f.Boundary })
			if flows[i] = f.Load; f.Donor != f.Boundary {
				flows[i] = -f.Load
			}
			weights[i] -= flows[i]
			weights[(i+1)%len(weights)] += flows[i]
		}
		if !slices.Equal(flows, want.flows) || !slices.Equal(weights, want.after) {
			t.Errorf("%v flow, and they have %v; want %v and %v", flows, weights, want.flows, want.after)
		}
	}
}
