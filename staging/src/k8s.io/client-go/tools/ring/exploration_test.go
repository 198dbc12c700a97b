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
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestExploration drives the real Machine of up to three instances, over eight keys,
// through interleavings of what can happen around it. Each instance reads the log at its
// own pace; writes arrive late, conflict, or arrive though their answer is lost; caches
// and drains take their time; instances crash, cannot renew until their gate shuts or
// their lease ends, lose their watch, restart and leave; an administrator moves
// boundaries. An instance pauses where nothing happens to it for long.
//
// Each scene is explored breadth first, and states from which the same can happen are
// visited once. What is explored:
//
//   - To the end, every interleaving without faults: a join at a ring of two, one move of
//     any boundary of a ring of three to any key, a leave from a ring of three, and a move
//     up whose donor died with its grant in flight. The long exploration adds two scenes
//     of joins whose donor died so.
//   - All other scenes: every way of so many steps with at most so many faults, moves and
//     leaves, as the scene says (3 to 8 steps, 4 to 9 in the long exploration). Ways begin
//     after the scene's opening; where the scene goes along, they begin at every state
//     of one fair run from there to rest as well.
//
// After each step all invariants but rest are checked. From every fiftieth new state
// faults stop, and one fair run must come to rest.
//
// -run TestExploration/join explores some scenes alone. The environment says how far:
//
//	RING_EXPLORATION=long        the scenes' long reach
//	RING_EXPLORATION_STEPS=n     n steps in every scene; 0: to the end
//	RING_EXPLORATION_FAULTS=n    at most n faults in every scene
//	RING_EXPLORATION_TIME=10m    goes no deeper after that time, which the scenes share:
//	                             each may use an equal part of what is left when it begins
//
// With -v the table of scenes appears as it grows, with the depth that each has come to,
// in steps ("end": no state is left; "cut off": the time was up). What takes long shows its
// progress:
//
//	RING_EXPLORATION=long go test -v -timeout 1h -run 'TestExploration$' k8s.io/client-go/tools/ring
func TestExploration(t *testing.T) {
	how, err := readExtent(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	t.Log("  states  actions      depth  to rest  seconds  scene (and how often what may happen)")
	began := time.Now()
	states, explored, cutOff := 0, 0, 0
	for i, s := range scenes {
		sceneBegan := time.Now()
		e := &explorer{scene: s, reach: how.of(s), rules: &allRules, invariants: allInvariants, settleEvery: 50}
		if how.time > 0 {
			left := how.time - time.Since(began)
			e.deadline = sceneBegan.Add(left / time.Duration(len(scenes)-i))
		}
		if !t.Run(s.name, func(t *testing.T) {
			e.t = t
			e.progress = func() {
				t.Logf("%d steps complete, %d states so far, %.0f s", e.depth, len(e.nodes), time.Since(sceneBegan).Seconds())
			}
			if transcript := e.explore(); transcript != "" {
				t.Error(transcript)
			}
		}) || len(e.nodes) == 0 {
			continue
		}
		depth := fmt.Sprint(e.depth)
		switch {
		case e.cutOff:
			depth += " cut off"
			cutOff++
		case e.ended:
			depth += " end"
		}
		b := e.allowed()
		t.Logf("%8d %8d %10s  %7d  %7.1f  %s (starts %d, moves %d, leaves %d, faults %d)", len(e.nodes), e.actions, depth, e.settled, time.Since(sceneBegan).Seconds(),
			s.name, b.starts, b.moves, b.leaves, b.faults)
		states += len(e.nodes)
		explored++
	}
	t.Logf("%8d states in %.1f s", states, time.Since(began).Seconds())
	if cutOff > 0 {
		t.Logf("cut off by RING_EXPLORATION_TIME=%v: %d of %d scenes, explored completely to the depth in the table", how.time, cutOff, explored)
	} else {
		t.Logf("complete: %d scenes, explored to the depth in the table", explored)
	}
}

// extent is how far the environment asks TestExploration to go.
type extent struct {
	long bool
	// steps and faults replace those of every scene; nil: they do not.
	steps, faults *uint64
	// time bounds the whole exploration; 0: it is not bounded.
	time time.Duration
}

func readExtent(getenv func(string) string) (extent, error) {
	e := environment{getenv: getenv}
	how := extent{
		long:   e.long("RING_EXPLORATION"),
		steps:  e.number("RING_EXPLORATION_STEPS", 0, 1<<31-1),
		faults: e.number("RING_EXPLORATION_FAULTS", 0, 1<<8-1),
	}
	if value := getenv("RING_EXPLORATION_TIME"); value != "" {
		var err error
		if how.time, err = time.ParseDuration(value); err != nil || how.time <= 0 {
			e.fail("RING_EXPLORATION_TIME is %q, want a duration above 0 such as 10m", value)
		}
	}
	return how, e.err()
}

// of returns how far the scene is to be explored.
func (x extent) of(s scene) reach {
	r := s.short
	if x.long {
		r = s.long
	}
	if x.steps != nil {
		r.steps = int(*x.steps)
	}
	if x.faults != nil {
		r.faults = byte(*x.faults)
	}
	return r
}

func TestTheEnvironmentSaysHowFarToExplore(t *testing.T) {
	s := scene{short: reach{3, 1}, long: reach{5, 2}}
	for name, tc := range map[string]struct {
		env  map[string]string
		want reach
		time time.Duration
		err  string
	}{
		"nothing set":         {want: reach{3, 1}},
		"long":                {env: map[string]string{"": "long"}, want: reach{5, 2}},
		"steps":               {env: map[string]string{"_STEPS": "9"}, want: reach{9, 1}},
		"to the end":          {env: map[string]string{"": "long", "_STEPS": "0"}, want: reach{0, 2}},
		"faults":              {env: map[string]string{"": "long", "_FAULTS": "0"}, want: reach{5, 0}},
		"time":                {env: map[string]string{"_TIME": "90s"}, want: reach{3, 1}, time: 90 * time.Second},
		"an unknown word":     {env: map[string]string{"": "deep"}, err: `RING_EXPLORATION is "deep", want long or nothing`},
		"steps below 0":       {env: map[string]string{"_STEPS": "-1"}, err: `RING_EXPLORATION_STEPS is "-1", want a number from 0 to 2147483647`},
		"more faults than do": {env: map[string]string{"_FAULTS": "256"}, err: `RING_EXPLORATION_FAULTS is "256", want a number from 0 to 255`},
		"time without a unit": {env: map[string]string{"_TIME": "10"}, err: `RING_EXPLORATION_TIME is "10", want a duration above 0 such as 10m`},
		"no time":             {env: map[string]string{"_TIME": "0s"}, err: `RING_EXPLORATION_TIME is "0s", want a duration above 0 such as 10m`},
	} {
		t.Run(name, func(t *testing.T) {
			how, err := readExtent(func(variable string) string { return tc.env[strings.TrimPrefix(variable, "RING_EXPLORATION")] })
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Errorf("error %v, want %s", err, tc.err)
				}
				return
			}
			if err != nil || how.of(s) != tc.want || how.time != tc.time {
				t.Errorf("explores %+v for %v, %v; want %+v for %v", how.of(s), how.time, err, tc.want, tc.time)
			}
		})
	}
}

// TestExplorationNeedsEveryRule switches off one rule at a time. Each time the
// exploration must find two instances at work on one key, or one at work with caches
// that lack what another did. The transcripts are in testdata.
func TestExplorationNeedsEveryRule(t *testing.T) {
	var found strings.Builder
	found.WriteString("The shortest ways to a violation if one rule is left out. Keys go from 0 to 7.\n\n")
	for _, tc := range []struct {
		name string
		off  func(*rules)
		want invariant
		scene
	}{
		{"a donor grants without draining", func(r *rules) { r.drain = false }, oneWorker,
			scene{instances: 2, opening: []action{starts()}}},
		{"a gate opens with caches older than the grant", func(r *rules) { r.grantRevision = false }, cachesCurrent,
			scene{instances: 2, opening: []action{starts()}}},
		{"a write is applied though its record has changed since the decision", func(r *rules) { r.precondition = false }, ownerWorks,
			scene{instances: 3, opening: []action{moves(1, 5), reads(1, 1), fills(1), reports(1), reads(0, 2), waitsInVain(0), losesWrite(0)}}},
		{"a gate stays open when the lease ends", func(r *rules) { r.selfFence = false }, oneWorker,
			scene{instances: 2, short: reach{faults: 1}}},
		{"the transaction does not compare the instance's record", func(r *rules) { r.comparison = false }, oneWorker,
			scene{instances: 2, short: reach{faults: 1}}},
		{"the transaction compares the record, but not its epoch", func(r *rules) { r.epoch = false }, oneWorker,
			scene{instances: 2, opening: []action{starts(), isCut(1), untilGrant(1)}}},
		{"a grant is stored whatever its donor's record gives", func(r *rules) { r.fencedGrant = false }, oneWorker,
			scene{instances: 2, opening: []action{starts(), untilGrant(1), crashes(1)}}},
		{"a donor raises its epoch before its work has ended", func(r *rules) { r.raiseDrained = false }, oneWorker,
			scene{instances: 2, opening: []action{starts(), untilShut(1), reports(1), reads(1, 1), losesWork(1)}}},
		{"news is stored though the record has changed since it was sent", func(r *rules) { r.statusPrecondition = false }, oneWorker,
			scene{instances: 1, opening: []action{starts(), untilGiven(0), losesNews(0), isCut(0), starts(), untilGrant(0)}}},
		{"a successor takes over from a silent instance before its record is gone", func(r *rules) { r.death = false }, oneWorker,
			scene{instances: 2, short: reach{faults: 1}}},
	} {
		broken := allRules
		tc.off(&broken)
		e := &explorer{scene: tc.scene, t: t, reach: tc.short, rules: &broken, invariants: tc.want, deadline: time.Now().Add(time.Minute)}
		transcript := e.explore()
		if transcript == "" {
			t.Errorf("%s: %d states, nothing is wrong with them", tc.name, len(e.nodes))
			continue
		}
		// With the rule, nothing is wrong as far as that.
		e = &explorer{scene: tc.scene, t: t, reach: reach{e.depth + 1, tc.short.faults}, rules: &allRules, invariants: allInvariants}
		if transcript := e.explore(); transcript != "" {
			t.Errorf("%s, put right:\n%s", tc.name, transcript)
		}
		fmt.Fprintf(&found, "# %s\n%s\n", tc.name, transcript)
	}
	const golden = "testdata/missing-rules.txt"
	want, err := os.ReadFile(golden)
	if err != nil || string(want) != found.String() {
		t.Errorf("%s is not what was found, %v; want:\n%s", golden, err, &found)
	}
}
