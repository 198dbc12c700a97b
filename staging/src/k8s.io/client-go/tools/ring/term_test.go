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
	"slices"
	"testing"
	"time"
)

// testCandidate is a process that may run x and y, which a ring can share, and other controllers.
var testCandidate = &Candidate{Holder: "me", Listed: []string{"*"}, Enabled: []string{"x", "y"}, Rings: []RingControllers{{"workloads", []string{"x", "y"}}}}

var listsBoth = []RingControllers{{"workloads", []string{"x", "y"}}}

// sharing returns what the process signs where the ring shares these controllers.
func sharing(controllers ...string) []string {
	view := NewView(0, Record{Name: "a", Controllers: controllers})
	return testCandidate.signs(func(string) *View { return view })
}

func testRegistry(records ...Record) Views {
	for i := range records {
		records[i].Ring, records[i].Name = "workloads", "workloads-"+records[i].Holder
	}
	return NewViews(1, records...)
}

// A start anew would not help a process to register, nor one that is registered late to share.
func TestALeaderWhoseInstanceIsRegisteredLateGoesOn(t *testing.T) {
	me, other, less := Record{Holder: "me", Controllers: []string{"x", "y"}}, Record{Holder: "other", Controllers: []string{"x", "y"}}, Record{Holder: "other", Controllers: []string{"y"}}
	for name, tc := range map[string]struct {
		// shared are the controllers that are not in the set.
		shared  []string
		records []Record
		want    fit
	}{
		"registered in time":                                    {[]string{"x", "y"}, []Record{me}, fit{}},
		"not registered on a ring of nobody":                    {[]string{"x", "y"}, nil, fit{lacks: true, late: true}},
		"not registered beside another":                         {[]string{"x", "y"}, []Record{other}, fit{}},
		"not registered beside one that lists less":             {[]string{"x", "y"}, []Record{less}, fit{lacks: true}},
		"runs all, and is registered":                           {nil, []Record{me}, fit{spares: true}},
		"runs all, another is registered, it is not":            {nil, []Record{other}, fit{spares: true}},
		"runs all, nobody is registered":                        {nil, nil, fit{}},
		"runs the one, and could share it instead of the other": {[]string{"x"}, []Record{me, less}, fit{lacks: true, spares: true}},
	} {
		if got := testCandidate.fit(sharing(tc.shared...), testRegistry(tc.records...), listsBoth); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

func TestASetGoesOnForAsLongAsItsLimit(t *testing.T) {
	lacks, late, spares, neither := fit{lacks: true}, fit{lacks: true, late: true}, fit{spares: true}, fit{lacks: true, spares: true}
	// since is from when on something was so.
	type since struct {
		after time.Duration
		fit
	}
	for name, tc := range map[string]struct {
		candidate bool
		was       []since
		// end is when the set no longer fits; 0: never.
		end time.Duration
	}{
		"it fits":                            {was: []since{{0, fit{}}}},
		"a controller is undone":             {was: []since{{5 * time.Second, lacks}}, end: 5*time.Second + UndoneLimit},
		"a candidate":                        {candidate: true, was: []since{{5 * time.Second, lacks}}, end: 5*time.Second + UnfitLimit},
		"for half of the time":               {was: []since{{0, lacks}, {19 * time.Second, fit{}}, {38 * time.Second, lacks}}, end: 38*time.Second + UndoneLimit},
		"for a bit more":                     {was: []since{{0, lacks}, {19 * time.Second, fit{}}, {20 * time.Second, lacks}}, end: 22 * time.Second},
		"for a while, and the leader wins":   {was: []since{{0, lacks}, {19 * time.Second, fit{}}}},
		"the process is not registered":      {was: []since{{0, late}}, end: LateLimit},
		"it is not, and another lists less":  {was: []since{{0, late}, {30 * time.Second, lacks}}, end: 30 * time.Second},
		"another lists less, and it is late": {was: []since{{0, lacks}, {10 * time.Second, late}}, end: LateLimit},
		"the rings could share one":          {was: []since{{time.Second, spares}}, end: time.Second + ShareLimit},
		"a candidate's rings could":          {candidate: true, was: []since{{0, spares}}, end: ShareLimit - UnfitLimit},
		"they could not for a moment":        {was: []since{{0, spares}, {time.Minute, fit{}}, {2 * time.Minute, spares}}, end: 2*time.Minute + ShareLimit},
		"one is undone, one could be shared": {was: []since{{0, spares}, {time.Minute, neither}}, end: time.Minute + UndoneLimit},
		"one could be shared, one is undone": {was: []since{{0, spares}, {ShareLimit - time.Second, neither}}, end: ShareLimit},
	} {
		t.Run(name, func(t *testing.T) {
			// A process has a past when it stands.
			const start = time.Hour
			var f fitness
			var end time.Duration
			for i, s := range tc.was {
				left, limited := f.observe(start+s.after, s.fit, !tc.candidate)
				if end = 0; limited {
					end = s.after + max(0, left)
				}
				if i < len(tc.was)-1 && limited && end <= tc.was[i+1].after {
					t.Errorf("ends after %v already", end)
				}
			}
			if end != tc.end {
				t.Errorf("ends after %v, want %v", end, tc.end)
			}
		})
	}
}

// As after an hour in which the registry could not be read.
func TestWhatWasUndoneForLongIsForgottenInAMinute(t *testing.T) {
	var f fitness
	f.observe(0, fit{lacks: true}, true)
	f.observe(time.Hour, fit{}, true)
	if left, limited := f.observe(time.Hour+LateLimit, fit{lacks: true}, true); !limited || left != UndoneLimit {
		t.Errorf("ends after %v: %t, want after %v", left, limited, UndoneLimit)
	}
}

// What was seen may be behind, and what cannot be read says nothing.
func TestATermIsUnfitOnlyByWhatWasRead(t *testing.T) {
	unshared := testRegistry(Record{Holder: "me", Controllers: []string{"x", "y"}}, Record{Holder: "other"})
	shared := testRegistry(Record{Holder: "me", Controllers: []string{"x", "y"}})
	at := func(now time.Duration, registry Views) TermInput {
		return TermInput{Now: now, Registry: registry, Lists: listsBoth, Leads: true}
	}
	term := testCandidate.Term(sharing("x", "y"))
	expect := func(what string, got, want TermDecision) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	expect("as it begins", term.Decide(at(0, shared)), TermDecision{})
	expect("undone", term.Decide(at(time.Second, unshared)), TermDecision{Wake: time.Second + UndoneLimit})
	now := time.Second + UndoneLimit
	expect("undone for long", term.Decide(at(now, unshared)), TermDecision{Read: true})
	expect("it cannot be read", term.Answer(at(now+5*time.Second, Views{}), false), TermDecision{Wake: now + 5*time.Second + UnfitLimit})
	expect("news meanwhile", term.Decide(at(now+6*time.Second, unshared)), TermDecision{Wake: now + 5*time.Second + UnfitLimit})
	now += 7 * time.Second
	expect("when it is due", term.Decide(at(now, unshared)), TermDecision{Read: true})
	expect("what was seen was behind", term.Answer(at(now, shared), true), TermDecision{Wake: now + UnfitLimit})
	expect("still behind", term.Decide(at(now+1, unshared)), TermDecision{Wake: now + UnfitLimit})
	now += UnfitLimit
	expect("still", term.Decide(at(now, unshared)), TermDecision{Read: true})
	expect("it is so", term.Answer(at(now, unshared), true), TermDecision{Unfit: true})
}

func TestACandidateWaitsForItsRecordsWhereTheyMakeADifference(t *testing.T) {
	me, other := Record{Holder: "me", Controllers: []string{"x", "y"}}, Record{Holder: "other", Controllers: []string{"x", "y"}}
	empty, own, others := testRegistry(), testRegistry(me), testRegistry(other)
	for name, tc := range map[string]struct {
		registry *Views
		lists    []RingControllers
		ready    time.Duration
		shared   []string
	}{
		"it is not read":            {nil, listsBoth, RegistrationLimit, []string{"x", "y"}},
		"its own record":            {&own, listsBoth, 0, []string{"x", "y"}},
		"another's makes the same":  {&others, listsBoth, RegistrationLimit, []string{"x", "y"}},
		"nobody's":                  {&empty, listsBoth, LateLimit, nil},
		"nobody's, and no own ring": {&empty, nil, 0, nil},
	} {
		for _, waited := range []time.Duration{0, RegistrationLimit - 1, RegistrationLimit, LateLimit - 1, LateLimit} {
			signs, ready := testCandidate.Prepare(tc.registry, tc.lists, waited)
			if want := sharing(tc.shared...); !slices.Equal(signs, want) || ready != (waited >= tc.ready) {
				t.Errorf("%s, after %v: signs %q, want %q, and is ready: %t", name, waited, signs, want, ready)
			}
		}
	}
}

func TestALeaderBeginsWhatNoRingMayBeWorkingOn(t *testing.T) {
	idle := testRegistry(Record{Holder: "a"})
	on := func(ring string, controllers ...string) *Views {
		views := NewViews(0, Record{Name: ring + "-a", Ring: ring, Working: controllers})
		return &views
	}
	for name, tc := range map[string]struct {
		registry   *Views
		now, later []string
	}{
		"there is no registry": {nil, []string{"off", "other"}, []string{"x"}},
		"none works":           {&idle, []string{"off", "other", "x"}, nil},
		"one works on what the leader does not run":   {on("workloads", "y"), []string{"off", "other", "x"}, nil},
		"one works on its controller":                 {on("workloads", "x"), []string{"off", "other"}, []string{"x"}},
		"another version has another on a ring":       {on("claims", "other"), []string{"off"}, []string{"other", "x"}},
		"another version has what the leader may not": {on("claims", "off", "x"), []string{"off", "other"}, []string{"x"}},
		"it is a ring of somebody else's":             {on("machines", "x", "other"), []string{"off", "other", "x"}, nil},
	} {
		leader := Leader{Holder: SignLeader("me", []string{"*", "-off", "-y"})}
		now, later := testCandidate.Begin(leader, []string{"off", "other", "x", "y"}, tc.registry)
		if !slices.Equal(now, tc.now) || !slices.Equal(later, tc.later) {
			t.Errorf("%s: begins %q now and %q later, want %q and %q", name, now, later, tc.now, tc.later)
		}
	}
}
