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

package follower

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/hashkey"
)

// scene says where an exploration begins, what may happen from there on, and for how many steps.
type scene struct {
	name    string
	history []change
	wanted  hashkey.Ranges
	// oneByOne is set for a reader without a store. What is the store elsewhere is what it was told.
	oneByOne bool
	// mute is set for a server that sends no bookmarks.
	mute bool
	budget
	steps int
}

// begin returns the world of the scene: at rest, with what is wanted held, or before its first list
// if nothing is.
func (s scene) begin(t testing.TB, trace *[]string) *world {
	w := &world{Follower: New(), history: s.history, mute: s.mute, rv: firstRevision, store: map[ID]Object{}, newest: map[ID]uint64{}, kept: map[ID]Object{}}
	if s.oneByOne {
		w.Follower = NewOneByOne()
	} else {
		w.List()
	}
	w.Want(s.wanted)
	w.run(Object{})
	if what := w.settle(); what != "" {
		t.Fatalf("%s does not begin: %s", s.name, what)
	}
	w.trace, w.budget = trace, s.budget
	w.say("at rest: %s of %s", rangesName(w.held), strings.Join(names(w.store), ", "))
	return w
}

var scenes = []scene{
	{name: "writes, wants, waits", history: []change{{ids[0], keys[0], true}, {ids[1], keys[1], true}}, wanted: rangeA,
		budget: budget{writes: 2, wants: 1, waits: 1}, steps: 8},
	{name: "two changes of ranges", history: []change{{ids[0], keys[0], true}, {ids[1], keys[1], true}}, wanted: rangeA,
		budget: budget{writes: 1, wants: 2}, steps: 13},
	{name: "a relist", history: []change{{ids[0], keys[0], true}, {ids[1], keys[1], true}}, wanted: rangeAB,
		budget: budget{writes: 2, faults: 2}, steps: 14},
	{name: "a relist with new objects", history: []change{{ids[0], keys[0], true}}, wanted: rangeAB,
		budget: budget{writes: 2, faults: 2}, steps: 14},
	{name: "ranges that leave during a relist", history: []change{{ids[0], keys[0], true}}, wanted: rangeAB,
		budget: budget{writes: 2, wants: 1, faults: 1}, steps: 10},
	{name: "a wait during a relist", history: []change{{ids[0], keys[0], true}}, wanted: rangeA,
		budget: budget{writes: 2, waits: 1, faults: 1}, steps: 12},
	{name: "a reader without a store", history: []change{{ids[0], keys[0], true}, {ids[1], keys[1], true}}, wanted: rangeA, oneByOne: true,
		budget: budget{writes: 2, wants: 1, faults: 1}, steps: 9},
	{name: "a reader without a store that waits", history: []change{{ids[0], keys[0], true}}, wanted: rangeA, oneByOne: true,
		budget: budget{writes: 2, waits: 1, faults: 2}, steps: 9},
	{name: "a restored server", history: []change{{ids[0], keys[0], true}, {ids[1], keys[1], true}, {ids[0], keys[0], true}}, wanted: rangeAB,
		budget: budget{writes: 1, faults: 1, restores: 1}, steps: 14},
	{name: "a restored server, and changes of ranges", history: []change{{ids[0], keys[0], true}, {ids[1], keys[1], true}, {ids[0], keys[1], true}}, wanted: rangeA,
		budget: budget{writes: 1, wants: 1, restores: 1}, steps: 11},
	{name: "a restored server, and a reader without a store", history: []change{{ids[0], keys[0], true}, {ids[1], keys[1], true}, {ids[0], keys[0], true}}, wanted: rangeAB, oneByOne: true,
		budget: budget{writes: 1, faults: 1, restores: 1}, steps: 12},
	{name: "a rewound server", history: []change{{ids[0], keys[0], true}, {ids[1], keys[1], true}, {ids[0], keys[0], true}}, wanted: rangeAB,
		budget: budget{writes: 1, rewinds: 1}, steps: 12},
	{name: "a rewound server, changes of ranges, waits", history: []change{{ids[0], keys[0], true}, {ids[1], keys[1], true}, {ids[0], keys[1], true}}, wanted: rangeA,
		budget: budget{wants: 1, waits: 1, rewinds: 1}, steps: 11},
	{name: "a rewound server, and a reader without a store", history: []change{{ids[0], keys[0], true}, {ids[1], keys[1], true}, {ids[0], keys[0], true}}, wanted: rangeAB, oneByOne: true,
		budget: budget{writes: 1, wants: 1, rewinds: 1}, steps: 9},
	{name: "a server without bookmarks", history: []change{{ids[0], keys[0], true}, {ids[1], keys[1], true}}, wanted: rangeA, mute: true,
		budget: budget{writes: 2, wants: 1, waits: 1}, steps: 8},
	{name: "a server without bookmarks, and a reader without a store", history: []change{{ids[0], keys[0], true}, {ids[1], keys[1], true}}, wanted: rangeA, oneByOne: true, mute: true,
		budget: budget{writes: 1, wants: 1, waits: 1, faults: 1}, steps: 8},
	{name: "all at once", history: []change{{ids[0], keys[0], true}, {ids[1], keys[2], true}}, wanted: rangeA,
		budget: budget{writes: 2, wants: 1, waits: 1, faults: 1}, steps: 6},
}

// explorer visits the states that can be reached from a scene, breadth first, so that it finds a
// violation on a shortest way.
type explorer struct {
	scene
	t       testing.TB
	way     []way
	actions int
}

// way is the action by which a state was reached first, from the state of another; the first one is
// the beginning.
type way struct {
	from int32
	action
}

// explore returns how a violation came about; "" if none was found.
func (e *explorer) explore() string {
	type unexplored struct {
		*world
		n int32
	}
	seed := maphash.MakeSeed()
	seen := map[uint64]bool{}
	var buf []byte
	e.way = []way{{}}
	for layer, depth := []unexplored{{e.begin(e.t, nil), 0}}, 0; len(layer) > 0 && depth < e.steps; depth++ {
		var next []unexplored
		for i, from := range layer {
			layer[i].world = nil
			for _, a := range from.world.actions(false) {
				reached := from.world.copy()
				reached.act(a)
				e.actions++
				buf = reached.encode(buf[:0])
				h := maphash.Bytes(seed, buf)
				if reached.violation == "" && seen[h] {
					continue
				}
				seen[h] = true
				n := int32(len(e.way))
				e.way = append(e.way, way{from.n, a})
				if reached.violation != "" || reached.copy().settle() != "" {
					return e.transcript(n)
				}
				next = append(next, unexplored{reached, n})
			}
		}
		layer = next
	}
	return ""
}

// transcript tells the way to a state, and what is wrong there or after everything has happened
// that is under way there.
func (e *explorer) transcript(n int32) string {
	var acts []action
	for ; n > 0; n = e.way[n].from {
		acts = append(acts, e.way[n].action)
	}
	slices.Reverse(acts)
	var lines []string
	w := e.begin(e.t, &lines)
	for _, a := range acts {
		w.act(a)
	}
	what := w.violation
	if what == "" {
		w.say("nothing fails any more")
		what = w.settle()
	}
	return strings.Join(append(lines, "=> "+what), "\n")
}

// encode appends what distinguishes the state from others.
func (w *world) encode(b []byte) []byte {
	num := func(values ...uint64) {
		for _, v := range values {
			b = binary.AppendUvarint(b, v)
		}
	}
	flag := func(values ...bool) {
		for _, v := range values {
			if v {
				b = append(b, 1)
			} else {
				b = append(b, 0)
			}
		}
	}
	ranges := func(r hashkey.Ranges) { b = append(b, byte(len(rangesName(r)))) }
	ranges2 := func(r hashkey.Ranges) { // A or B
		ranges(r)
		flag(r.Equal(rangeA))
	}
	object := func(o Object, ok bool) {
		flag(ok)
		if ok {
			num(o.Revision, o.Key.afterZero)
		}
	}
	// Questions matter by their order alone.
	question := func(n uint64) { num(w.questions - n) }
	// Where nothing is rewound, all that is asked for is as of no earlier revision.
	floor := func(revision uint64) {
		if w.rewound || w.budget.rewinds > 0 {
			num(revision)
		}
	}
	for _, c := range w.history {
		num(uint64(slices.Index(ids, c.id)), c.key.afterZero)
		flag(c.exists)
	}
	flag(w.lost != nil, w.rewound, w.over)
	num(w.compacted, w.rv)
	b = append(b, w.budget.writes, w.budget.wants, w.budget.waits, w.faults, w.budget.restores, w.budget.rewinds)
	f := w.Follower
	ranges2(f.wanted)
	ranges2(f.target)
	ranges2(f.reported)
	ranges2(w.held)
	flag(w.hold, w.retryL, w.retryW, w.refused, w.waiting != nil)
	if w.waiting != nil {
		ranges2(w.waiting)
		num(w.waitsFrom)
		question(f.waiters[0].after)
	}
	flag(w.opening != nil)
	if o := w.opening; o != nil {
		ranges2(o.Ranges)
		num(o.Revision, w.openAsked)
		flag(o.Asks, o.Everything)
		question(f.opening.question)
		floor(f.opening.floor)
	}
	flag(w.watch != nil)
	if s := w.watch; s != nil {
		ranges2(s.ranges)
		num(s.sent, s.asked)
		flag(s.everything)
	}
	flag(w.list != nil)
	if l := w.list; l != nil {
		ranges2(l.ranges)
		flag(l.answered, l.everything)
		num(l.sent, uint64(len(l.rest)))
	}
	for _, d := range w.queue {
		num(uint64(d.do), d.revision, uint64(len(d.object.ID.Name)), d.object.Revision, d.object.Key.afterZero)
		if d.object.ID.Name != "" {
			b = append(b, d.object.ID.Name...)
		}
		for _, id := range ids {
			o, ok := d.all[id]
			object(o, ok)
		}
	}
	b = append(b, 255)
	for _, id := range ids {
		o, ok := w.store[id]
		object(o, ok)
		o, ok = w.kept[id]
		object(o, ok)
		num(w.newest[id])
		k, ok := f.known[id]
		object(Object{Revision: k.revision, Key: k.key}, ok)
		k2, ok := f.kept[id]
		object(Object{Revision: k2.revision, Key: k2.key}, ok)
		if f.listing != nil {
			flag(k.seen == f.listing.number, k2.seen == f.listing.number, f.listing.left[id])
		}
	}
	ranges2(f.ranges)
	num(f.revision, f.last, f.given)
	for _, p := range f.past {
		ranges2(p.ranges)
		num(p.revision)
	}
	b = append(b, 254)
	ranges2(f.pending.ranges)
	num(f.pending.revision)
	question(f.answered)
	question(f.question)
	floor(f.floor)
	flag(f.unconfirmed, f.replacing, f.wantsList, f.replaced, f.delivered.held, f.following, f.plainly, f.doubts, f.silent, f.lively, f.watchWaits, f.listWaits)
	ranges2(f.selected)
	num(uint64(f.refused))
	flag(f.listing != nil)
	if l := f.listing; l != nil {
		ranges2(l.ranges)
		num(l.revision, l.base)
		flag(l.complete)
		question(l.number)
		floor(l.floor)
	}
	return b
}

// TestExploration: whatever happens, in any order, the store has what the Follower says.
func TestExploration(t *testing.T) {
	for _, s := range scenes {
		t.Run(s.name, func(t *testing.T) {
			start := time.Now()
			e := explorer{scene: s, t: t}
			if found := e.explore(); found != "" {
				t.Fatal("a violation:\n" + found)
			}
			t.Logf("%d states and %d actions within %d steps, in %v", len(e.way), e.actions, s.steps, time.Since(start).Round(time.Millisecond))
		})
	}
}
