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

// scene is where an exploration begins and what may happen on its way.
type scene struct {
	name string
	// instances is the size of a ring at rest. What is in opening happens there.
	instances int
	opening   []action
	// along says that the exploration begins not only after the opening but also at
	// each state of the fair and faultless way from there to rest.
	along bool
	budget
	short, long reach
}

// reach is how far an exploration goes: to so many steps from each beginning, with
// so many faults. Without steps it goes to the end.
type reach struct {
	steps  int
	faults byte
}

// The actions of openings. The processes of a ring at rest are numbered in the
// order in which they came. Of two, 0 owns 4-7 and 1 owns 0-3; of three, 0 owns
// 4-7, 1 owns 2-3, and 2 owns 0-1.
func starts() action                 { return action{kind: start} }
func leaves(proc byte) action        { return action{kind: leave, proc: proc} }
func moves(proc, to byte) action     { return action{kind: move, proc: proc, arg: to} }
func crashes(proc byte) action       { return action{kind: crash, proc: proc} }
func arrives(proc byte) action       { return action{kind: land, proc: proc} }
func reads(proc, events byte) action { return action{kind: deliver, proc: proc, arg: events} }

// untilGrant lets everything go its way until the process has sent a grant.
func untilGrant(proc byte) action { return action{kind: opening, proc: proc} }

const opening actionKind = 255

var scenes = []scene{
	// Without faults, all there is.
	{name: "join", instances: 2, budget: budget{starts: 1}},
	{name: "move, any and anywhere", instances: 3, budget: budget{moves: 1}},
	{name: "leave", instances: 3, budget: budget{leaves: 1}},
	// The donor has died with its grant under way.
	{name: "join after a death", instances: 2, opening: []action{starts(), untilGrant(1), crashes(1)}, short: reach{steps: 7}},
	{name: "two join after the death of the only other", instances: 1, short: reach{steps: 8},
		opening: []action{starts(), starts(), arrives(2), reads(0, 3), arrives(0), untilGrant(0), crashes(0)}},
	{name: "move up after a death", instances: 3, opening: []action{moves(1, 5), untilGrant(0), crashes(0)}},
	{name: "move up after a death, a move", instances: 3, opening: []action{moves(1, 5), untilGrant(0), crashes(0)},
		budget: budget{moves: 1}, short: reach{6, 0}, long: reach{8, 1}},
	// One change, with faults.
	{name: "a join", instances: 2, opening: []action{starts()}, along: true, short: reach{6, 1}, long: reach{7, 2}},
	{name: "move down", instances: 3, opening: []action{moves(0, 5)}, along: true, short: reach{6, 1}, long: reach{7, 2}},
	{name: "move up", instances: 3, opening: []action{moves(1, 5)}, along: true, short: reach{6, 1}, long: reach{7, 2}},
	{name: "move up across the seam", instances: 3, opening: []action{moves(0, 0)}, along: true, short: reach{6, 1}, long: reach{7, 2}},
	{name: "a leave", instances: 3, opening: []action{leaves(1)}, along: true, short: reach{8, 1}, long: reach{9, 2}},
	{name: "crash and restart", instances: 2, opening: []action{crashes(0), starts()}, along: true, short: reach{3, 1}, long: reach{5, 1}},
	// One change, and another at any moment.
	{name: "join, a move, a leave", instances: 2, opening: []action{starts()}, along: true, budget: budget{moves: 1, leaves: 1}, short: reach{3, 0}, long: reach{4, 1}},
	{name: "move up, a move, a leave", instances: 3, opening: []action{moves(1, 5)}, along: true, budget: budget{moves: 1, leaves: 1}, short: reach{3, 0}, long: reach{4, 1}},
	// Two changes, with faults.
	{name: "two join at one donor", instances: 1, opening: []action{starts(), starts()}, along: true, short: reach{3, 1}, long: reach{5, 1}},
	{name: "three join an empty ring", opening: []action{starts(), starts(), starts()}, along: true, short: reach{3, 1}, long: reach{5, 1}},
	{name: "join while the donor's boundary is to move down", instances: 2, opening: []action{starts(), moves(1, 1)}, along: true, short: reach{3, 1}, long: reach{5, 1}},
	{name: "join while a boundary is to move up into the donor's range", instances: 2, opening: []action{starts(), moves(0, 1)}, along: true, short: reach{3, 1}, long: reach{5, 1}},
	{name: "join while the donor leaves", instances: 2, opening: []action{starts(), leaves(1)}, along: true, short: reach{3, 1}, long: reach{6, 1}},
	{name: "join next to an instance that leaves", instances: 2, opening: []action{starts(), leaves(0)}, along: true, short: reach{3, 1}, long: reach{6, 1}},
	{name: "two adjacent boundaries move", instances: 3, opening: []action{moves(1, 5), moves(2, 2)}, along: true, short: reach{3, 1}, long: reach{5, 1}},
	{name: "move up while the donor leaves", instances: 3, opening: []action{moves(1, 5), leaves(0)}, along: true, short: reach{5, 1}, long: reach{8, 1}},
}

// play makes the ring and plays the scene to rest. At each state where the
// exploration may begin it calls visit, and stops where that returns false.
func (s scene) play(t testing.TB, r *rules, checked invariant, trace *[]string, visit func(*state) bool) {
	w := &state{rules: &allRules, invariants: allInvariants, head: NewView(0)}
	for range s.instances {
		w.start()
		if v := w.settle(nil); v != nil {
			t.Fatalf("making a ring of %d: %v", s.instances, v)
		}
	}
	w.rules, w.invariants, w.trace = r, checked, trace
	if trace != nil {
		*trace = append(*trace, "at rest; the ring is "+describeRing(w.head))
	}
	for _, a := range s.opening {
		if a.kind == opening {
			w.budget = budget{}
			w.settle(func() bool {
				reason := w.proc[a.proc].flying.Reason
				return reason != ReasonGrant && reason != ReasonMove
			})
			continue
		}
		w.budget = budget{1, 1, 1, 1}
		w.do(a)
		w.check()
	}
	w.budget = budget{}
	if visit(w) && s.along {
		if v := w.settle(func() bool { return visit(w) }); v != nil {
			t.Fatalf("%s: %v", s.name, v)
		}
	}
}

// explorer visits the states that can be reached from a scene, in breadth: what it
// finds wrong it finds on a shortest way.
type explorer struct {
	scene
	reach
	t          testing.TB
	rules      *rules
	invariants invariant
	// settleEvery: from one state in so many faults stop, and the ring must come to rest.
	settleEvery int32

	seen    map[[2]uint64]struct{}
	nodes   []node
	actions int
	settled int
	// done counts the steps from the beginnings.
	done int
}

// node is how a state was come to first. A beginning's parent is -1-i, i its place
// among all of them.
type node struct {
	parent int32
	act    action
}

// open is a state from which nothing has been tried yet.
type open struct {
	*state
	node int32
}

// allowed is what may happen from a beginning on.
func (e *explorer) allowed() budget {
	b := e.budget
	b.faults = e.reach.faults
	return b
}

// explore returns how a violation came about, "" if there is none.
func (e *explorer) explore() (transcript string) {
	e.seen = map[[2]uint64]struct{}{}
	var buf []byte
	isNew := func(s *state) bool {
		buf = s.encode(buf[:0])
		h := hash(buf)
		if _, ok := e.seen[h]; ok {
			return false
		}
		e.seen[h] = struct{}{}
		return true
	}
	var layer []open
	beginnings := int32(0)
	e.play(e.t, e.rules, e.invariants, nil, func(w *state) bool {
		beginning := *w
		beginning.budget = e.allowed()
		if isNew(&beginning) {
			layer = append(layer, open{&beginning, int32(len(e.nodes))})
			e.nodes = append(e.nodes, node{parent: -1 - beginnings})
		}
		beginnings++
		return true
	})
	var acts []action
	for ; len(layer) > 0 && (e.steps == 0 || e.done < e.steps); e.done++ {
		var next []open
		for i, o := range layer {
			layer[i] = open{}
			acts = o.state.actions(acts[:0])
			for _, a := range acts {
				reached := *o.state
				reached.do(a)
				e.actions++
				v := reached.check()
				if v == nil && !isNew(&reached) {
					continue
				}
				n := int32(len(e.nodes))
				e.nodes = append(e.nodes, node{o.node, a})
				if v != nil {
					return e.transcript(n, false)
				}
				if e.done+1 != e.steps {
					kept := reached
					next = append(next, open{&kept, n})
				}
				if e.settleEvery > 0 && n%e.settleEvery == 0 {
					e.settled++
					reached.budget = budget{}
					if v := reached.settle(nil); v != nil {
						return e.transcript(n, true)
					}
				}
			}
		}
		layer = next
	}
	return ""
}

// transcript tells the way to a state, and from there to rest if that is where the
// violation is.
func (e *explorer) transcript(n int32, settle bool) string {
	var way []action
	for ; e.nodes[n].parent >= 0; n = e.nodes[n].parent {
		way = append(way, e.nodes[n].act)
	}
	var lines []string
	left := -1 - e.nodes[n].parent
	e.play(e.t, e.rules, e.invariants, &lines, func(w *state) bool {
		if left--; left >= 0 {
			return true
		}
		s := *w
		s.budget = e.allowed()
		v := s.check()
		for i := len(way) - 1; i >= 0; i-- {
			s.do(way[i])
			v = s.check()
		}
		if settle {
			lines = append(lines, "faults stop")
			s.budget = budget{}
			v = s.settle(nil)
		}
		lines = append(lines, "=> "+v.text)
		return false
	})
	return strings.Join(lines, "\n") + "\n"
}

// TestExploration drives the real Machine of up to three instances, over eight
// keys, through every interleaving of what can happen around it: each instance
// reads the log at its own pace; writes arrive late, conflict, or arrive though
// their answer is lost; caches and drains take their time; instances crash, are
// silent until their gate shuts or their lease ends, lose their watch, restart,
// leave; an administrator moves boundaries. A pause is an instance to which
// nothing happens for long. States that can go on in the same ways are visited once.
//
// RING_EXPLORATION=long goes further; -run TestExploration/join explores some scenes
// alone:
//
//	RING_EXPLORATION=long go test -v -timeout 1h -run TestExploration$ k8s.io/client-go/tools/ring
func TestExploration(t *testing.T) {
	long := os.Getenv("RING_EXPLORATION") == "long"
	t.Log("  states    steps  depth  to rest  seconds  scene (and how often what may happen)")
	began := time.Now()
	states := 0
	for _, s := range scenes {
		e := &explorer{scene: s, reach: s.short, rules: &allRules, invariants: allInvariants, settleEvery: 50}
		if long {
			e.reach = s.long
		}
		sceneBegan := time.Now()
		if !t.Run(s.name, func(t *testing.T) {
			e.t = t
			if transcript := e.explore(); transcript != "" {
				t.Error(transcript)
			}
		}) || len(e.nodes) == 0 {
			continue
		}
		depth := fmt.Sprint(e.done)
		if e.steps == 0 {
			depth = "all"
		}
		b := e.allowed()
		t.Logf("%8d %8d  %5s  %7d  %7.1f  %s (starts %d, moves %d, leaves %d, faults %d)", len(e.nodes), e.actions, depth, e.settled, time.Since(sceneBegan).Seconds(),
			s.name, b.starts, b.moves, b.leaves, b.faults)
		states += len(e.nodes)
	}
	t.Logf("%8d states in %.1f s", states, time.Since(began).Seconds())
}

// TestExplorationNeedsEveryRule switches off one rule at a time. Each time two
// instances must be found at work on one key, or one at work with caches that do
// not tell it what another did. The transcripts are in testdata.
func TestExplorationNeedsEveryRule(t *testing.T) {
	var found strings.Builder
	for _, tc := range []struct {
		name string
		off  func(*rules)
		want invariant
		scene
	}{
		{"without the drain", func(r *rules) { r.drain = false }, oneWorker,
			scene{instances: 2, opening: []action{starts()}}},
		{"without the revision of the grant", func(r *rules) { r.grantRevision = false }, cachesTell,
			scene{instances: 2, opening: []action{starts()}}},
		{"without the precondition of writes", func(r *rules) { r.precondition = false }, oneWorker,
			scene{instances: 3, opening: []action{moves(1, 5)}, along: true, budget: budget{moves: 1}}},
		{"without the self-fence", func(r *rules) { r.selfFence = false }, oneWorker,
			scene{instances: 2, short: reach{faults: 1}}},
		{"without the fence in the server", func(r *rules) { r.serverFence = false }, oneWorker,
			scene{instances: 2, short: reach{faults: 1}}},
		{"taking over from a silent instance before its record is gone", func(r *rules) { r.death = false }, oneWorker,
			scene{instances: 2, short: reach{faults: 1}}},
	} {
		broken := allRules
		tc.off(&broken)
		e := &explorer{scene: tc.scene, t: t, reach: tc.short, rules: &broken, invariants: tc.want}
		transcript := e.explore()
		if transcript == "" {
			t.Errorf("%s: %d states, nothing is wrong with them", tc.name, len(e.nodes))
			continue
		}
		// With the rule nothing is wrong as far as that.
		e = &explorer{scene: tc.scene, t: t, reach: reach{e.done + 1, tc.short.faults}, rules: &allRules, invariants: allInvariants}
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
