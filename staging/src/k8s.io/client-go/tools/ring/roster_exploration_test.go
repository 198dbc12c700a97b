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

// rosterRules keep the leader and the ring apart. With all of them the exploration must find
// no violation, and without any one of them it must find one.
type rosterRules struct {
	// tellFirst: an instance asks who leads once its record says that it works.
	tellFirst bool
	// recordFirst: it asks once it has a record.
	recordFirst bool
	// quorum: it begins by what the Lease says, not by what it has seen of it.
	quorum bool
	// presentEpoch: what its record says counts once that has the instance's present epoch.
	presentEpoch bool
	// idle: it ceases once its work has ended.
	idle bool
	// raise: it raises its epoch when it ceases.
	raise bool
	// instanceCaches: it begins with caches as of a moment after the answer.
	instanceCaches bool
	// precondition: a status is refused if the record has changed since it was sent.
	precondition bool
	// noRecord: a stock manager gets the Lease only where there is no record.
	noRecord bool
	// wait: a leader begins once no record says that an instance works.
	wait bool
	// readAfter: it reads the records after it has the Lease.
	readAfter bool
	// leaderCaches: it begins with caches as of a moment after that.
	leaderCaches bool
	// allList: an instance works on what all list. No safety rests on it: the ring would
	// work on a part of the keys only.
	allList bool
}

var allRosterRules = rosterRules{tellFirst: true, recordFirst: true, quorum: true, presentEpoch: true, idle: true, raise: true,
	instanceCaches: true, precondition: true, noRecord: true, wait: true, readAfter: true, leaderCaches: true, allList: true}

// rosterScene says where an exploration of the Roster begins and what may happen from there
// on.
type rosterScene struct {
	name string
	// lease and lists are who leads and what each instance lists, at rest.
	lease leaseHolder
	lists []controllerSet
	// all are the controllers of the scene, spared those that no candidate runs.
	all, spared controllerSet
	rosterBudget
	short, long reach
}

const (
	justX controllerSet = 1 + iota
	justY
	xAndY
)

var rosterScenes = []rosterScene{
	{name: "one instance, and all else without end", all: justX, lease: leaseHolder{kind: stock},
		rosterBudget: rosterBudget{takes: unlimited, stock: unlimited, starts: 1, leaves: 1}, short: reach{0, unlimited}, long: reach{0, unlimited}},
	{name: "one instance beside the record of another", all: justX, lists: []controllerSet{justX},
		rosterBudget: rosterBudget{takes: unlimited, stock: unlimited, starts: 1, leaves: 1}, short: reach{13, 1}, long: reach{20, 1}},
	{name: "two instances beside a stock leader", all: justX, lease: leaseHolder{kind: stock},
		rosterBudget: rosterBudget{takes: 2, stock: 1, starts: 2, leaves: 1}, short: reach{9, 1}, long: reach{16, 1}},
	{name: "two instances", all: justX, lists: []controllerSet{justX, justX},
		rosterBudget: rosterBudget{takes: 2, stock: 1, leaves: 2}, short: reach{11, 1}, long: reach{20, 2}},
	{name: "an instance that lists the controller beside one that does not", all: justX, lists: []controllerSet{justX, 0},
		rosterBudget: rosterBudget{takes: 2, starts: 1, leaves: 1}, short: reach{10, 1}, long: reach{16, 1}},
	{name: "an instance with two controllers", all: xAndY, lists: []controllerSet{xAndY},
		rosterBudget: rosterBudget{takes: 2, leaves: 1}, short: reach{10, 1}, long: reach{16, 1}},
	{name: "two instances with two controllers, of which each lists one", all: xAndY, lists: []controllerSet{justX, justY},
		rosterBudget: rosterBudget{takes: 1, starts: 1, leaves: 1}, short: reach{7, 1}, long: reach{11, 1}},
	{name: "a controller that no candidate runs", all: xAndY, spared: justY, lists: []controllerSet{xAndY, justX},
		rosterBudget: rosterBudget{takes: 1, starts: 1, leaves: 1}, short: reach{7, 1}, long: reach{11, 1}},
}

// begin returns the world of the scene, at rest.
func (s rosterScene) begin(t testing.TB, r *rosterRules, trace *[]string) *rosterWorld {
	w := &rosterWorld{rules: &allRosterRules, all: s.all, enabled: s.all &^ s.spared}
	if s.lease.kind != nobody {
		w.elect(s.lease, true)
	}
	for _, lists := range s.lists {
		w.start(lists)
	}
	if v := w.settle(); v != nil {
		t.Fatalf("%s does not begin: %v", s.name, v)
	}
	w.rules, w.trace = r, trace
	if trace != nil {
		*trace = append(*trace, "at rest; "+w.lease.String())
		for _, p := range w.places {
			if p != nil {
				*trace = append(*trace, fmt.Sprintf("    %s lists %v and works on %v", p.name, p.lists, p.serving))
			}
		}
	}
	w.rosterBudget = s.rosterBudget
	return w
}

// rosterExplorer visits the states that can be reached from a scene, breadth first, so that it
// finds a violation on a shortest way.
type rosterExplorer struct {
	rosterScene
	reach
	t     testing.TB
	rules *rosterRules
	// settleEvery, if not 0, is one in how many new states faults stop and the world must
	// come to rest.
	settleEvery int
	// deadline is when the exploration is cut off; zero: never.
	deadline time.Time

	// way holds the step to each state that was reached.
	way     []rosterStep
	depth   int
	actions int
	settled int
	// how is how the exploration has ended: at its reach, at the last state or cut off.
	how string
}

// rosterStep is the action by which a state was reached first, from the state of another step;
// the first one is the beginning.
type rosterStep struct {
	from int32
	rosterAction
}

// explore returns how a violation came about, and which; nil if none was found.
func (e *rosterExplorer) explore() (transcript string, found *violation) {
	seen := map[[2]uint64]struct{}{}
	var buf []byte
	isNew := func(w *rosterWorld) bool {
		buf = w.encode(buf[:0])
		h := hash(buf)
		_, ok := seen[h]
		seen[h] = struct{}{}
		return !ok
	}
	type unexplored struct {
		*rosterWorld
		step int32
	}
	first := e.begin(e.t, e.rules, nil)
	first.faults = e.reach.faults
	isNew(first)
	e.way = []rosterStep{{}}
	var acts []rosterAction
	for layer := []unexplored{{first, 0}}; len(layer) > 0; e.depth++ {
		if e.reach.steps > 0 && e.depth == e.reach.steps {
			return "", nil
		}
		var next []unexplored
		for i, from := range layer {
			if i%256 == 0 && !e.deadline.IsZero() && time.Now().After(e.deadline) {
				e.how = "cut off"
				return "", nil
			}
			layer[i].rosterWorld = nil
			acts = from.actions(acts[:0])
			for _, a := range acts {
				reached := *from.rosterWorld
				v := reached.do(a)
				e.actions++
				if v == nil && !isNew(&reached) {
					continue
				}
				step := int32(len(e.way))
				e.way = append(e.way, rosterStep{from.step, a})
				if v != nil {
					return e.transcript(step, false), v
				}
				next = append(next, unexplored{&reached, step})
				if e.settleEvery > 0 && len(e.way)%e.settleEvery == 0 {
					e.settled++
					rested := reached
					rested.rosterBudget = rosterBudget{}
					if v := rested.settle(); v != nil {
						return e.transcript(step, true), v
					}
				}
			}
		}
		layer = next
	}
	e.how = "end"
	return "", nil
}

// transcript tells the way to a state and what is wrong there. If settle is set, it goes on to
// rest, where the violation is.
func (e *rosterExplorer) transcript(step int32, settle bool) string {
	var acts []rosterAction
	for ; step > 0; step = e.way[step].from {
		acts = append(acts, e.way[step].rosterAction)
	}
	var lines []string
	w := e.begin(e.t, e.rules, &lines)
	w.faults = e.reach.faults
	var v *violation
	for i := len(acts) - 1; i >= 0; i-- {
		v = w.do(acts[i])
	}
	if settle {
		lines = append(lines, "faults stop")
		w.rosterBudget = rosterBudget{}
		v = w.settle()
	}
	return strings.Join(append(lines, "=> "+v.text), "\n") + "\n"
}

// TestRosterExploration drives the real Roster of up to two instances, and leaders, ours and
// stock ones, through interleavings of what can happen around them. No instance works on a
// controller, nor can a request of it be stored, while a leader works on that; and who begins
// has caches that hold what the other side did. From every fiftieth state faults stop, and
// one fair run must come to rest, with each controller worked on by all instances or by the
// leader.
//
// One instance and its leaders are explored to the end, with any number of leaders and faults;
// the other scenes as far as they say. The environment says how far instead, as for
// TestExploration, which does not share its time.
func TestRosterExploration(t *testing.T) {
	how, err := readExtent(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	t.Log("  states  actions  depth          to rest  seconds  scene")
	began := time.Now()
	for i, s := range rosterScenes {
		e := &rosterExplorer{rosterScene: s, reach: how.of(scene{short: s.short, long: s.long}), t: t, rules: &allRosterRules, settleEvery: 50}
		sceneBegan := time.Now()
		if how.time > 0 {
			e.deadline = sceneBegan.Add((how.time - time.Since(began)) / time.Duration(len(rosterScenes)-i))
		}
		t.Run(s.name, func(t *testing.T) {
			if transcript, v := e.explore(); v != nil {
				t.Error(transcript)
			}
		})
		t.Logf("%8d %8d  %2d %-10s  %8d  %7.1f  %s (%d faults)", len(e.way), e.actions, e.depth, e.how, e.settled, time.Since(sceneBegan).Seconds(), s.name, e.reach.faults)
	}
}

// TestRosterExplorationNeedsEveryRule switches off one rule at a time. Each time the
// exploration must find the ring and the leader at work on one controller, or one at work with
// caches that lack what the other did. Without the rule that all list the controller it must
// find only that the ring comes to rest with a part of the keys. The transcripts are in
// testdata.
func TestRosterExplorationNeedsEveryRule(t *testing.T) {
	var found strings.Builder
	found.WriteString("The shortest ways to a violation if one rule is left out.\n\n")
	one := rosterScene{all: justX, lists: []controllerSet{justX}, rosterBudget: rosterBudget{takes: unlimited, stock: unlimited}}
	faulty := one
	faulty.short.faults = 1
	fresh := rosterScene{all: justX, rosterBudget: rosterBudget{takes: unlimited, stock: unlimited, starts: 1}}
	split := rosterScene{all: justX, spared: justX, lists: []controllerSet{justX, 0}, rosterBudget: rosterBudget{takes: unlimited}}
	for _, tc := range []struct {
		name string
		off  func(*rosterRules)
		want invariant
		rosterScene
	}{
		{"an instance asks who leads before its record says that it works", func(r *rosterRules) { r.tellFirst = false }, oneWorker, fresh},
		{"an instance asks who leads before it has a record", func(r *rosterRules) { r.recordFirst = false }, oneWorker, fresh},
		{"an instance begins by what it has seen of the Lease", func(r *rosterRules) { r.quorum = false }, oneWorker, fresh},
		{"what a record of an earlier epoch says counts", func(r *rosterRules) { r.presentEpoch = false }, oneWorker, faulty},
		{"an instance ceases before its work has ended", func(r *rosterRules) { r.idle = false }, oneWorker, one},
		{"an instance ceases without raising its epoch", func(r *rosterRules) { r.raise = false }, oneWorker, one},
		{"an instance begins with caches older than the answer", func(r *rosterRules) { r.instanceCaches = false }, cachesCurrent, one},
		{"a status is stored though the record has changed since it was sent", func(r *rosterRules) { r.precondition = false }, oneWorker, faulty},
		{"a stock manager gets the Lease though there is a record", func(r *rosterRules) { r.noRecord = false }, oneWorker, one},
		{"a leader begins though a record says that an instance works", func(r *rosterRules) { r.wait = false }, oneWorker, one},
		{"a leader has read the records before it took the Lease", func(r *rosterRules) { r.readAfter = false }, oneWorker, fresh},
		{"a leader begins with caches older than its reading of the records", func(r *rosterRules) { r.leaderCaches = false }, cachesCurrent, one},
		{"an instance works on what another does not list", func(r *rosterRules) { r.allList = false }, rest, split},
	} {
		broken := allRosterRules
		tc.off(&broken)
		e := &rosterExplorer{rosterScene: tc.rosterScene, t: t, reach: tc.short, rules: &broken, deadline: time.Now().Add(time.Minute)}
		if tc.want == rest {
			e.settleEvery = 1
		}
		transcript, v := e.explore()
		if v == nil || v.invariant != tc.want {
			t.Errorf("%s: %d states, %s, want another violation than %v\n%s", tc.name, len(e.way), e.how, v, transcript)
			continue
		}
		// With the rule, nothing is wrong as far as that.
		e = &rosterExplorer{rosterScene: tc.rosterScene, t: t, reach: reach{e.depth + 1, tc.short.faults}, rules: &allRosterRules, settleEvery: 50}
		if transcript, v := e.explore(); v != nil {
			t.Errorf("%s, put right:\n%s", tc.name, transcript)
		}
		fmt.Fprintf(&found, "# %s\n%s\n", tc.name, transcript)
	}
	const golden = "testdata/missing-roster-rules.txt"
	want, err := os.ReadFile(golden)
	if err != nil || string(want) != found.String() {
		t.Errorf("%s is not what was found, %v; want:\n%s", golden, err, &found)
	}
}
