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
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/hashkey"
)

// This is the world in which the exploration drives the Follower: a collection with its history, a
// server that lists and watches it and forgets old events, an informer whose store lags behind what
// it is given, and somebody who wants ranges and waits. A state is a value. A copy is a world of
// its own, and shares with the original only what neither changes.

// ids are the objects that there may be.
var ids = []ID{{Name: "x"}, {Name: "y"}}

// A, B and both of them are the ranges that are wanted. An object is in A, in B or without a key.
var (
	rangeA  = hashkey.NewRanges(hashkey.Range{Start: 0, End: hashkey.Limit / 2})
	rangeB  = hashkey.NewRanges(hashkey.Range{Start: hashkey.Limit / 2, End: hashkey.Limit})
	rangeAB = hashkey.All()

	keys = []Key{KeyOf(1), KeyOf(hashkey.Max), {}}
)

func rangesName(r hashkey.Ranges) string {
	switch {
	case r.Empty():
		return "nothing"
	case r.Equal(rangeA):
		return "A"
	case r.Equal(rangeB):
		return "B"
	}
	return "A and B"
}

func keyName(k Key) string { return []string{"in A", "in B", "without a key"}[slices.Index(keys, k)] }

// change is a write to the collection, which has the revision of its place in the history.
type change struct {
	id     ID
	key    Key
	exists bool
}

// serverWatch is a watch that the server has, or a list that is a stream.
type serverWatch struct {
	ranges     hashkey.Ranges
	everything bool
	// sent is the revision up to which everything was sent.
	sent uint64
	// asked is the revision that the collection had when the watch asked, or 0.
	asked uint64
}

// serverList is a list that the server answers.
type serverList struct {
	serverWatch
	// answered is set once the server has taken the snapshot at sent, of which rest is to come.
	answered bool
	rest     []Object
}

// delta is what the informer has yet to do to its store.
type delta struct {
	do       Action
	object   Object
	revision uint64
	// all is what the store is to have, for Replace.
	all map[ID]Object
}

// world is one state of the world.
type world struct {
	*Follower
	// trace, if not nil, takes what happens, for people.
	trace *[]string

	history   []change
	compacted uint64
	// lost is the history before a restore, as long as the store is of that; nil: it is not.
	lost []change
	// rewound is set once the server was restored to an earlier revision and goes on after that, over
	// once that has been noticed: the process exits.
	rewound, over bool
	opening       *Step
	// openAsked is the revision at which the watch was asked for.
	openAsked uint64
	watch     *serverWatch
	list      *serverList
	retryL    bool
	retryW    bool
	// refused is set once the server has refused something since the last watch ended.
	refused bool
	// mute says that the server sends no bookmarks, and so answers no question.
	mute bool

	queue []delta
	store map[ID]Object
	rv    uint64
	hold  bool
	// newest has the highest revision of each object that the store has had.
	newest map[ID]uint64
	kept   map[ID]Object
	held   hashkey.Ranges
	// waiting is what somebody waits for, as of waitsFrom; nil: nobody does.
	waiting   hashkey.Ranges
	waitsFrom uint64
	violation string

	budget
}

// budget says how often things may still happen that could otherwise happen without end.
type budget struct {
	writes, wants, waits, faults, restores, rewinds byte
}

func (w *world) copy() *world {
	c := *w
	f := *w.Follower
	f.steps, f.waiters = slices.Clone(f.steps), slices.Clone(f.waiters)
	f.known, f.kept = maps.Clone(f.known), maps.Clone(f.kept)
	if f.listing != nil {
		l := *f.listing
		l.left = maps.Clone(l.left)
		f.listing = &l
	}
	c.Follower = &f
	c.history, c.lost = slices.Clip(w.history), slices.Clip(w.lost)
	if w.watch != nil {
		watch := *w.watch
		c.watch = &watch
	}
	if w.list != nil {
		list := *w.list
		c.list = &list
	}
	c.queue = slices.Clip(w.queue)
	c.store, c.newest, c.kept = maps.Clone(w.store), maps.Clone(w.newest), maps.Clone(w.kept)
	return &c
}

// now is the revision of the collection.
func (w *world) now() uint64 { return firstRevision + uint64(len(w.history)) }

// at returns the last change of an object up to a revision, and when that was; 0 if there is none.
func (w *world) at(id ID, revision uint64) (change, uint64) { return lastOf(w.history, id, revision) }

func lastOf(history []change, id ID, revision uint64) (change, uint64) {
	for r := min(revision, firstRevision+uint64(len(history))); r > firstRevision; r-- {
		if c := history[r-firstRevision-1]; c.id == id {
			return c, r
		}
	}
	return change{id: id}, 0
}

// restore has the server forget all that came after a revision, and go on after what it had come
// to, without a history: what remains has the revisions that it had. It restarts for that.
func (w *world) restore(revision uint64) {
	w.lost = w.history
	w.history = slices.Clone(w.history[:revision-firstRevision])
	for len(w.history) <= len(w.lost) {
		w.history = append(w.history, change{})
	}
	w.compacted = w.now()
}

// rewind has the server forget all that came after a revision, and go on after that.
func (w *world) rewind(revision uint64) {
	w.lost, w.rewound = w.history, true
	w.history = slices.Clone(w.history[:revision-firstRevision])
	w.compacted = min(w.compacted, revision)
}

// knows says whether an object has changed at a revision, as far as the server knows.
func (w *world) knows(id ID, revision uint64) bool {
	return revision > firstRevision && revision <= w.now() && w.history[revision-firstRevision-1].id == id
}

func (w *world) say(format string, args ...any) {
	if w.trace != nil {
		*w.trace = append(*w.trace, fmt.Sprintf(format, args...))
	}
}

func (w *world) fail(format string, args ...any) {
	if w.violation == "" {
		w.violation = fmt.Sprintf(format, args...)
	}
}

// run does what the Follower says, as the driver does. event is the object of the event, if any.
func (w *world) run(event Object) {
	for n := 0; ; n++ {
		step, ok := w.Next()
		if !ok || w.over {
			return
		}
		if n > 100 {
			w.fail("the Follower does not come to rest")
			return
		}
		w.do(step, event)
	}
}

func (w *world) do(s Step, event Object) {
	switch s.Do {
	case Add, Update, Delete:
		w.say("    %s %s of revision %d", s.Do, event.ID.Name, event.Revision)
		w.queue = append(w.queue, delta{do: s.Do, object: event})
	case Remove:
		w.say("    %s %s, as of revision %d", s.Do, s.ID.Name, s.Revision)
		if slices.ContainsFunc(w.queue, func(d delta) bool { return d.object.ID == s.ID }) {
			w.fail("%s is to be removed, and the store's state of it is not known yet", s.ID.Name)
		}
		w.queue = append(w.queue, delta{do: Remove, object: Object{ID: s.ID, Revision: w.store[s.ID].Revision}, revision: s.Revision})
	case Bookmark:
		w.say("    %s %d", s.Do, s.Revision)
		w.queue = append(w.queue, delta{do: Bookmark, revision: s.Revision})
	case Confirm:
		w.say("    %s %d", s.Do, s.Revision)
		w.queue = append(w.queue, delta{do: Bookmark, revision: s.Revision})
		for len(w.queue) > 0 {
			w.process()
			w.check()
		}
	case Hold, Release:
		w.mayReplace()
		w.say("    %s", s.Do)
		w.hold = s.Do == Hold
	case Keep:
		w.mayReplace()
		w.say("    %s %s of revision %d", s.Do, event.ID.Name, event.Revision)
		w.kept[s.ID] = event
	case Forget:
		w.say("    %s %s", s.Do, s.ID.Name)
		delete(w.kept, s.ID)
	case ForgetAll:
		w.say("    %s", s.Do)
		clear(w.kept)
	case Replace:
		w.replaceAll(s)
	case Report:
		w.say("    %s: %s is held%s", s.Do, rangesName(s.Ranges), map[bool]string{true: ", and the wait has ended"}[len(s.Waiters) > 0])
		if len(w.queue) > 0 {
			w.fail("something is reported that the store does not have yet")
		}
		w.held = s.Ranges
		if len(s.Waiters) > 0 {
			w.checkWait()
			w.waiting = nil
		}
	case List:
		w.say("    %s %s", s.Do, rangesName(s.Ranges))
		if w.list != nil {
			w.fail("two lists at a time")
		}
		w.mayWantEverything(s)
		w.list = &serverList{serverWatch: serverWatch{ranges: s.Ranges, everything: s.Everything}}
	case CancelList:
		w.say("    %s", s.Do)
		w.list = nil
	case Watch:
		w.say("    %s %s from revision %d%s", s.Do, rangesName(s.Ranges), s.Revision, map[bool]string{true: ", and ask"}[s.Asks])
		if w.opening != nil {
			w.fail("two watches are opened at a time")
		}
		w.mayWantEverything(s)
		w.opening, w.openAsked = &s, w.now()
	case CancelWatch:
		w.say("    %s", s.Do)
		w.opening = nil
	case EndWatch:
		w.say("    %s", s.Do)
		w.watch = nil
	case RetryList:
		w.retryL = true
	case RetryWatch:
		w.retryW = true
	case Diverge:
		w.say("    %s", s.Do)
		if !w.rewound {
			w.fail("the server is said to have another history, and has the same")
		}
		w.over = true
	}
}

// mayWantEverything checks that a request for everything has a reason.
func (w *world) mayWantEverything(s Step) {
	if s.Everything && !w.refused {
		w.fail("everything is asked for, and nothing was refused since the last watch ended")
	}
}

// mayReplace checks that there is a store.
func (w *world) mayReplace() {
	if w.oneByOne {
		w.fail("the reader has no store")
	}
}

// replaceAll ends the informer's watch, gives it the list that it then asks for, and lets it watch.
func (w *world) replaceAll(s Step) {
	w.mayReplace()
	all := map[ID]Object{}
	for id := range w.known {
		if object, ok := w.kept[id]; ok {
			all[id] = object
		} else if object, ok := w.store[id]; ok && len(w.queue) == 0 {
			all[id] = object
		} else {
			w.fail("the list lacks %s", id.Name)
		}
	}
	w.say("    %s, as of revision %d, by %s", s.Do, s.Revision, strings.Join(names(all), ", "))
	clear(w.kept)
	w.queue = append(w.queue, delta{do: Replace, revision: s.Revision, all: all})
	w.Follower.Watch()
}

func names(all map[ID]Object) []string {
	list := []string{}
	for _, id := range ids {
		if object, ok := all[id]; ok {
			list = append(list, fmt.Sprintf("%s of revision %d", id.Name, object.Revision))
		}
	}
	return list
}

// process has the store take the next delta.
func (w *world) process() {
	d := w.queue[0]
	w.queue = slices.Clone(w.queue[1:])
	id := d.object.ID
	stored, exists := w.store[id]
	rv := d.object.Revision
	take := func(object Object) {
		if newest := w.newest[object.ID]; object.Revision < newest && w.knows(object.ID, newest) {
			w.fail("the store gets revision %d of %s after %d", object.Revision, object.ID.Name, w.newest[object.ID])
		}
		w.newest[object.ID] = object.Revision
	}
	switch d.do {
	case Add, Update:
		if exists != (d.do == Update) {
			w.fail("%s %s, which the store has: %t", d.do, id.Name, exists)
		}
		take(d.object)
		w.store[id] = d.object
	case Delete, Remove:
		if !exists {
			w.fail("%s is deleted, and the store does not have it", id.Name)
		}
		if d.do == Remove {
			d.object = stored
			rv = d.revision
		}
		delete(w.store, id)
	case Replace:
		w.store = map[ID]Object{}
		for _, id := range ids {
			if object, ok := d.all[id]; ok {
				take(object)
				w.store[id] = object
			}
		}
	}
	if d.do == Bookmark || d.do == Replace {
		if d.revision < w.rv {
			w.fail("the revision of the store goes back from %d to %d", w.rv, d.revision)
		}
		w.rv = d.revision
		if w.rv > firstRevision+uint64(len(w.lost)) {
			w.lost = nil
		}
	} else if rv > w.rv && !w.hold {
		w.rv = rv
	}
}

// check looks for what must never be.
func (w *world) check() {
	if w.over {
		return
	}
	history := w.history
	if w.lost != nil {
		history = w.lost
	}
	for _, id := range ids {
		stored, exists := w.store[id]
		was, changed := lastOf(history, id, w.rv)
		switch {
		case exists && stored.Key.In(w.held) && stored.Revision <= w.rv && (stored.Revision != changed || !was.exists):
			w.fail("the store claims revision %d, and has %s as of %d", w.rv, id.Name, stored.Revision)
		case !was.exists || !was.key.In(w.held):
		case exists && stored.Revision < changed:
			w.fail("the store claims revision %d, and has %s as of %d", w.rv, id.Name, stored.Revision)
		case !exists && !leaves(history, id, w.rv, w.held):
			w.fail("the store claims revision %d, and lacks %s", w.rv, id.Name)
		}
	}
}

// leaves says whether an object leaves ranges after a revision.
func leaves(history []change, id ID, after uint64, r hashkey.Ranges) bool {
	for _, c := range history[min(after-firstRevision, uint64(len(history))):] {
		if c.id == id && (!c.exists || !c.key.In(r)) {
			return true
		}
	}
	return false
}

// checkWait checks that the store is as of the beginning of the wait or later.
func (w *world) checkWait() {
	for _, id := range ids {
		was, changed := w.at(id, w.waitsFrom)
		stored, exists := w.store[id]
		switch {
		case was.exists && was.key.In(w.waiting) && exists && stored.Revision < changed,
			was.exists && was.key.In(w.waiting) && !exists && !leaves(w.history, id, w.waitsFrom, w.waiting),
			!was.exists && changed > 0 && exists && stored.Revision <= changed:
			w.fail("the wait began at revision %d, and ended with an older state of %s", w.waitsFrom, id.Name)
		}
	}
}
