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
)

// scene says where an exploration begins and what may happen from there on.
type scene struct {
	name string
	// instances is the size of the ring at rest on which the opening happens.
	instances int
	opening   []action
	// along says that the exploration begins not only after the opening but also at
	// each state of the fair run without faults from there to rest.
	along bool
	// balance says that the instances even out their load once the ring is made.
	balance bool
	// budget is what may happen besides what the opening has set going. Its faults are
	// those of the reach.
	budget
	short, long reach
}

// reach says how far an exploration goes: to so many steps from each beginning, with at
// most so many faults. With no steps it goes to the end.
type reach struct {
	steps  int
	faults byte
}

// The steps of openings. The processes of a ring at rest are numbered in the order in
// which they came. Of two, 0 owns 4-7 and 1 owns 0-3; of three, 0 owns 4-7, 1 owns 2-3,
// and 2 owns 0-1.

func starts() action                 { return action{kind: start} }
func leaves(proc byte) action        { return action{kind: leave, proc: proc} }
func moves(proc, to byte) action     { return action{kind: move, proc: proc, arg: to} }
func drains(proc byte) action        { return action{kind: drain, proc: proc} }
func crashes(proc byte) action       { return action{kind: crash, proc: proc} }
func arrives(proc byte) action       { return action{kind: land, proc: proc} }
func reads(proc, events byte) action { return action{kind: deliver, proc: proc, arg: events} }

func fills(proc byte) action       { return action{kind: fill, proc: proc} }
func reports(proc byte) action     { return action{kind: report, proc: proc} }
func waitsInVain(proc byte) action { return action{kind: stall, proc: proc} }
func losesWrite(proc byte) action  { return action{kind: loseWrite, proc: proc} }
func losesNews(proc byte) action   { return action{kind: loseNews, proc: proc} }
func isCut(proc byte) action       { return action{kind: cut, proc: proc} }

func losesWork(proc byte) action { return action{kind: loseWork, proc: proc} }

// These make a fair run until the process has shut its gate on work, has sent a grant, or
// has sent the news that it gives something, or that it gives nothing. What is late stays on its
// way.
func untilShut(proc byte) action  { return action{kind: awaitShut, proc: proc} }
func untilGrant(proc byte) action { return action{kind: awaitGrant, proc: proc} }
func untilGives(proc byte) action { return action{kind: awaitGives, proc: proc} }
func untilGiven(proc byte) action { return action{kind: awaitGiven, proc: proc} }

// These are no actions of the world's: only an opening knows them.
const (
	awaitShut actionKind = 255 - iota
	awaitGrant
	awaitGives
	awaitGiven
)

var scenes = []scene{
	// To the end, without faults.
	{name: "join", instances: 2, budget: budget{starts: 1}, short: reach{steps: 14}},
	{name: "one move of any boundary to any key", instances: 3, budget: budget{moves: 1}, short: reach{steps: 9}},
	{name: "leave", instances: 3, budget: budget{leaves: 1}},
	// The donor has died while its grant was in flight.
	{name: "join after a death", instances: 2, opening: []action{starts(), untilGrant(1), crashes(1)}, short: reach{steps: 7}},
	{name: "two join after the death of the only other", instances: 1, short: reach{steps: 8},
		opening: []action{starts(), starts(), arrives(2), reads(0, 3), arrives(0), untilGrant(0), crashes(0)}},
	{name: "move up after a death", instances: 3, opening: []action{moves(1, 5), untilGrant(0), crashes(0)}},
	{name: "move up after a death, and another move", instances: 3, opening: []action{moves(1, 5), untilGrant(0), crashes(0)},
		budget: budget{moves: 1}, short: reach{6, 0}, long: reach{8, 1}},
	// What is late is of an earlier handover.
	{name: "join, with a report and a request of the donor's last handover late", instances: 1, short: reach{steps: 7}, long: reach{9, 1},
		opening: []action{starts(), untilGiven(0), losesNews(0), isCut(0), starts(), untilGrant(0)}},
	{name: "move up, with a calling off late", instances: 3, short: reach{steps: 7}, long: reach{9, 1},
		opening: []action{moves(1, 5), reads(1, 1), fills(1), reports(1), reads(0, 2), waitsInVain(0), losesWrite(0)}},
	{name: "join, called off while the donor's report is late", instances: 2, short: reach{steps: 7}, long: reach{9, 1},
		opening: []action{starts(), untilGives(1), losesNews(1), waitsInVain(1)}},
	{name: "join, called off while the grant is late", instances: 2, short: reach{steps: 7}, long: reach{9, 1},
		opening: []action{starts(), untilGrant(1), losesWrite(1), waitsInVain(1)}},
	// One change, with faults.
	{name: "join with faults", instances: 2, opening: []action{starts()}, along: true, short: reach{6, 1}, long: reach{7, 2}},
	{name: "move down with faults", instances: 3, opening: []action{moves(0, 5)}, along: true, short: reach{6, 1}, long: reach{7, 2}},
	{name: "move up with faults", instances: 3, opening: []action{moves(1, 5)}, along: true, short: reach{6, 1}, long: reach{7, 2}},
	{name: "move up across the seam with faults", instances: 3, opening: []action{moves(0, 0)}, along: true, short: reach{6, 1}, long: reach{7, 2}},
	{name: "leave with faults", instances: 3, opening: []action{leaves(1)}, along: true, short: reach{8, 1}, long: reach{9, 2}},
	{name: "crash and restart", instances: 2, opening: []action{crashes(0), starts()}, along: true, short: reach{3, 1}, long: reach{5, 1}},
	// One change, and another at any moment.
	{name: "join, with a move and a leave", instances: 2, opening: []action{starts()}, along: true, budget: budget{moves: 1, leaves: 1}, short: reach{3, 0}, long: reach{4, 1}},
	{name: "move up, with a move and a leave", instances: 3, opening: []action{moves(1, 5)}, along: true, budget: budget{moves: 1, leaves: 1}, short: reach{3, 0}, long: reach{4, 1}},
	// Two changes, with faults.
	{name: "two join at one donor", instances: 1, opening: []action{starts(), starts()}, along: true, short: reach{3, 1}, long: reach{5, 1}},
	{name: "three join an empty ring", opening: []action{starts(), starts(), starts()}, along: true, short: reach{3, 1}, long: reach{5, 1}},
	{name: "join while the donor's boundary is to move down", instances: 2, opening: []action{starts(), moves(1, 1)}, along: true, short: reach{3, 1}, long: reach{5, 1}},
	{name: "join while a boundary is to move up into the donor's range", instances: 2, opening: []action{starts(), moves(0, 1)}, along: true, short: reach{3, 1}, long: reach{5, 1}},
	{name: "join while the donor leaves", instances: 2, opening: []action{starts(), leaves(1)}, along: true, short: reach{3, 1}, long: reach{6, 1}},
	{name: "join next to an instance that leaves", instances: 2, opening: []action{starts(), leaves(0)}, along: true, short: reach{3, 1}, long: reach{6, 1}},
	{name: "join while all owners leave", instances: 2, opening: []action{starts(), leaves(0), leaves(1)}, along: true, short: reach{3, 1}, long: reach{5, 1}},
	{name: "two adjacent boundaries move", instances: 3, opening: []action{moves(1, 5), moves(2, 2)}, along: true, short: reach{3, 1}, long: reach{5, 1}},
	// The ring of three begins with four cells, two and two.
	{name: "balance with faults", instances: 3, balance: true, opening: []action{moves(0, 5)}, along: true, short: reach{4, 1}, long: reach{6, 2}},
	{name: "balance, with a move and a leave", instances: 3, balance: true, along: true, budget: budget{moves: 1, leaves: 1}, short: reach{3, 0}, long: reach{4, 1}},
	{name: "balance while another joins", instances: 2, balance: true, opening: []action{moves(0, 0), starts()}, along: true, short: reach{3, 1}, long: reach{5, 1}},
	{name: "balance after a death", instances: 3, balance: true, opening: []action{crashes(0)}, along: true, short: reach{3, 1}, long: reach{5, 1}},
	{name: "drain with faults", instances: 3, opening: []action{drains(1)}, along: true, short: reach{4, 1}, long: reach{6, 2}},
	{name: "drain while another joins", instances: 1, opening: []action{starts(), drains(0)}, along: true, short: reach{3, 1}, long: reach{5, 1}},
	{name: "drain of both", instances: 2, opening: []action{drains(0), drains(1)}, along: true, short: reach{3, 1}, long: reach{5, 1}},
	{name: "move up while the donor leaves", instances: 3, opening: []action{moves(1, 5), leaves(0)}, along: true, short: reach{5, 1}, long: reach{8, 1}},
}

// play makes the ring, opens the scene and lets it come to rest. It calls visit at each
// state where the exploration begins, and stops where that returns false.
func (s scene) play(t testing.TB, r *rules, checked invariant, trace *[]string, visit func(*state) bool) {
	w := &state{rules: &allRules, invariants: allInvariants, head: NewView(0)}
	for range s.instances {
		w.start()
		if v := w.settle(nil); v != nil {
			t.Fatalf("making a ring of %d: %v", s.instances, v)
		}
	}
	w.rules, w.invariants, w.trace = r, checked, trace
	if s.balance {
		w.evenOut()
	}
	if trace != nil {
		*trace = append(*trace, "at rest; the ring is "+describeRing(w.head))
	}
	for _, a := range s.opening {
		if a.kind >= awaitGiven {
			w.budget, w.lateHeld = budget{}, true
			w.settle(func() bool {
				p := w.proc[a.proc]
				switch a.kind {
				case awaitShut:
					return p.busy == 0
				case awaitGrant:
					return !isGrant(&p.flying)
				case awaitGives:
					return !p.news.sent || p.news.Gives == nil
				default:
					return !p.news.sent || p.news.Gives != nil
				}
			})
			w.lateHeld = false
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
