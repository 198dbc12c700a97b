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
	"strings"
	"testing"
	"time"
)

// explorer visits the states that can be reached from a scene, breadth first, so that
// it finds a violation on a shortest way.
type explorer struct {
	scene
	reach
	t          testing.TB
	rules      *rules
	invariants invariant
	// settleEvery, if not 0, is one in how many new states faults stop and the ring must
	// come to rest.
	settleEvery int32
	// deadline is when the exploration is cut off; zero: never.
	deadline time.Time
	// progress, if not nil, is called every few seconds.
	progress func()

	seen    map[[2]uint64]struct{}
	buf     []byte
	nodes   []node
	actions int
	settled int
	// depth is how many steps from the beginnings have been explored completely.
	depth int
	// ended says that nothing is left to explore, cutOff that the deadline has passed
	// first.
	ended, cutOff bool
	lastProgress  time.Time
}

// node is the step by which a state was reached first. The parent of a beginning is
// -1-i, with i its place among all of them.
type node struct {
	parent int32
	act    action
}

// unexplored is a state from which nothing has been tried yet.
type unexplored struct {
	*state
	node int32
}

// allowed is what may happen from a beginning on.
func (e *explorer) allowed() budget {
	b := e.budget
	b.faults = e.reach.faults
	return b
}

// isNew says whether the state is seen for the first time.
func (e *explorer) isNew(s *state) bool {
	e.buf = s.encode(e.buf[:0])
	h := hash(e.buf)
	if _, ok := e.seen[h]; ok {
		return false
	}
	e.seen[h] = struct{}{}
	return true
}

// explore returns how a violation came about; "" if none was found.
func (e *explorer) explore() (transcript string) {
	layer := e.beginnings()
	for ; len(layer) > 0 && (e.steps == 0 || e.depth < e.steps); e.depth++ {
		if layer, transcript = e.step(layer); transcript != "" || e.cutOff {
			return transcript
		}
		e.ended = e.steps != e.depth+1 && len(layer) == 0
	}
	return ""
}

func (e *explorer) beginnings() (layer []unexplored) {
	e.seen = map[[2]uint64]struct{}{}
	e.lastProgress = time.Now()
	n := int32(0)
	e.play(e.t, e.rules, e.invariants, nil, func(s *state) bool {
		beginning := *s
		beginning.budget = e.allowed()
		if e.isNew(&beginning) {
			layer = append(layer, unexplored{&beginning, int32(len(e.nodes))})
			e.nodes = append(e.nodes, node{parent: -1 - n})
		}
		n++
		return true
	})
	return layer
}

// step explores one step from each state of a layer, and returns the next layer.
func (e *explorer) step(layer []unexplored) (next []unexplored, transcript string) {
	last := e.depth+1 == e.steps
	var acts []action
	for i, from := range layer {
		if i%256 == 0 && e.late() {
			e.cutOff = true
			return nil, ""
		}
		layer[i] = unexplored{}
		acts = from.state.actions(acts[:0])
		for _, a := range acts {
			reached := *from.state
			reached.do(a)
			e.actions++
			v := reached.check()
			if v == nil && !e.isNew(&reached) {
				continue
			}
			n := int32(len(e.nodes))
			e.nodes = append(e.nodes, node{from.node, a})
			if v != nil {
				return nil, e.transcript(n, false)
			}
			if !last {
				kept := reached
				next = append(next, unexplored{&kept, n})
			}
			if e.settleEvery > 0 && n%e.settleEvery == 0 {
				e.settled++
				reached.budget = budget{}
				if v := reached.settle(nil); v != nil {
					return nil, e.transcript(n, true)
				}
			}
		}
	}
	return next, ""
}

// late says whether the deadline has passed. It reports progress, too.
func (e *explorer) late() bool {
	now := time.Now()
	if e.progress != nil && now.Sub(e.lastProgress) >= 10*time.Second {
		e.lastProgress = now
		e.progress()
	}
	return !e.deadline.IsZero() && now.After(e.deadline)
}

// transcript tells the way to a node and what is wrong there. If settle is set, it goes
// on to rest, where the violation is.
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
