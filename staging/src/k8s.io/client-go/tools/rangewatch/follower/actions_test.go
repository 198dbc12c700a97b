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
	"k8s.io/apimachinery/pkg/hashkey"
)

// action is something that happens in the world.
type action struct {
	kind   actionKind
	id     ID
	key    Key
	ranges hashkey.Ranges
	// revision is that to which the server is restored or rewound.
	revision uint64
}

type actionKind byte

const (
	writes actionKind = iota
	deletes
	touches
	wants
	wantsBriefly
	waits
	silences
	compacts
	restores
	rewinds
	opens
	openFails
	openIsRefused
	sends
	bookmarks
	answers
	watchFails
	watchEnds
	answersList
	sendsOfList
	listGoesOn
	endsList
	listFails
	listIsRefused
	retriesList
	retriesWatch
	stores
)

// actions appends what may happen next. In a fair run nothing is lost, and nobody wants anything
// new.
func (w *world) actions(fair bool) (all []action) {
	add := func(ok bool, kinds ...actionKind) {
		if ok {
			for _, kind := range kinds {
				all = append(all, action{kind: kind})
			}
		}
	}
	if w.over {
		return nil
	}
	lacks := w.Lacks()
	add((lacks.Listed > 0 || lacks.Waiter > 0) && w.list == nil && (w.mute || !fair && w.faults > 0), silences)
	add(len(w.queue) > 0, stores)
	if o := w.opening; o != nil {
		add(true, opens)
		add(!fair && w.faults > 0, openFails, openIsRefused)
	}
	if s := w.watch; s != nil {
		add(s.sent < w.now(), sends)
		add(!w.mute && (s.sent > w.Follower.revision || !fair && s.asked > 0), bookmarks)
		add(!w.mute && s.asked > 0 && s.sent >= s.asked, answers)
		add(!fair && w.faults > 0, watchFails, watchEnds)
	}
	if l := w.list; l != nil {
		add(!l.answered, answersList)
		add(l.answered && len(l.rest) > 0, sendsOfList)
		add(l.answered && len(l.rest) == 0 && l.sent < w.now(), listGoesOn)
		add(l.answered && len(l.rest) == 0, endsList)
		add(!fair && w.faults > 0, listFails, listIsRefused)
	}
	add(w.retryL, retriesList)
	add(w.retryW, retriesWatch)
	if fair {
		return all
	}
	if w.writes > 0 {
		for _, id := range ids {
			is, _ := w.at(id, w.now())
			for _, key := range keys {
				all = append(all, action{kind: writes, id: id, key: key})
			}
			if is.exists {
				all = append(all, action{kind: deletes, id: id})
			}
		}
	}
	// Where bookmarks come, this shows nothing new.
	add(w.mute && w.writes > 0, touches)
	if w.budget.wants > 0 {
		for _, r := range []hashkey.Ranges{nil, rangeA, rangeB, rangeAB} {
			if !r.Equal(w.wanted) {
				all = append(all, action{kind: wants, ranges: r})
			}
			if !r.Covers(w.wanted) {
				all = append(all, action{kind: wantsBriefly, ranges: r})
			}
		}
	}
	if w.budget.waits > 0 && w.waiting == nil && !w.wanted.Empty() {
		all = append(all, action{kind: waits, ranges: w.wanted})
	}
	add(w.faults > 0 && w.compacted < w.now(), compacts)
	if w.budget.restores > 0 {
		for revision := firstRevision; revision < w.now(); revision++ {
			all = append(all, action{kind: restores, revision: revision})
		}
	}
	if w.budget.rewinds > 0 {
		// It does not come to where it has been again before somebody asks.
		for revision := firstRevision; revision+uint64(w.writes) < w.now(); revision++ {
			all = append(all, action{kind: rewinds, revision: revision})
		}
	}
	return all
}

// act makes a happen, and does what follows.
func (w *world) act(a action) {
	var event Object
	switch a.kind {
	case writes:
		w.say("%s is written, %s, as revision %d", a.id.Name, keyName(a.key), w.now()+1)
		w.budget.writes--
		w.history = append(w.history, change{a.id, a.key, true})
	case deletes:
		is, _ := w.at(a.id, w.now())
		w.say("%s is deleted at revision %d", a.id.Name, w.now()+1)
		w.budget.writes--
		w.history = append(w.history, change{a.id, is.key, false})
	case touches:
		w.say("another collection is written, as revision %d", w.now()+1)
		w.budget.writes--
		w.history = append(w.history, change{})
	case wants:
		w.say("%s is wanted", rangesName(a.ranges))
		w.budget.wants--
		w.want(a.ranges)
	case wantsBriefly:
		w.say("%s is wanted, and at once %s again", rangesName(a.ranges), rangesName(w.wanted))
		w.budget.wants--
		before := w.wanted
		w.want(a.ranges)
		w.want(before)
	case waits:
		w.say("somebody waits for %s", rangesName(a.ranges))
		w.budget.waits--
		w.waiting, w.waitsFrom = a.ranges, w.now()
		w.Wait(1, a.ranges)
	case silences:
		w.say("nothing has come for long")
		if !w.mute {
			w.faults--
		}
		w.Silent()
	case compacts:
		w.say("the server forgets events up to %d", w.now())
		w.faults--
		w.compacted = w.now()
	case restores:
		w.budget.restores--
		w.restore(a.revision)
		w.say("the server is restored to revision %d, and goes on after %d", a.revision, w.now())
		w.hangUp()
	case rewinds:
		w.budget.rewinds--
		w.rewind(a.revision)
		w.say("the server is restored to revision %d, and goes on after that", a.revision)
		w.hangUp()
	case opens:
		w.open()
	case openFails:
		w.say("the watch cannot be opened")
		w.faults--
		w.opening = nil
		w.OpenFailed(Failed)
	case openIsRefused:
		w.say("the watch is refused")
		w.faults--
		w.refused = true
		w.opening = nil
		w.OpenFailed(Refused)
	case sends:
		event = w.send()
	case bookmarks:
		w.say("the server says that it has sent everything up to %d", w.watch.reached(w.now()))
		w.Reached(w.watch.reached(w.now()), false)
	case answers:
		w.say("the server answers that it has sent everything up to %d", w.watch.reached(w.now()))
		w.watch.asked = 0
		w.Reached(w.watch.reached(w.now()), true)
	case watchFails:
		w.say("the watch fails")
		w.faults--
		w.watch, w.refused = nil, false
		w.WatchFailed(Failed)
	case watchEnds:
		w.say("the watch ends")
		w.faults--
		w.watch, w.refused = nil, false
		w.WatchEnded(false)
	case answersList:
		l := w.list
		l.answered, l.sent = true, w.now()
		w.say("the server answers the list, as of revision %d", l.sent)
		for _, id := range ids {
			if is, revision := w.at(id, l.sent); is.exists && (l.everything || is.key.In(l.ranges)) {
				l.rest = append(l.rest, Object{ID: id, Revision: revision, Key: is.key})
			}
		}
	case sendsOfList:
		event = w.list.rest[0]
		w.list.rest = w.list.rest[1:]
		w.say("the list has %s of revision %d", event.ID.Name, event.Revision)
		w.Listed(event, false)
	case listGoesOn:
		event = w.goOn()
	case endsList:
		l := w.list
		w.say("the list ends, as of revision %d", l.sent)
		w.list = nil
		w.ListEnded(l.sent)
	case listFails:
		w.say("the list fails")
		w.faults--
		w.list = nil
		w.ListFailed(Failed)
	case listIsRefused:
		w.say("the list is refused")
		w.faults--
		w.refused = true
		w.list = nil
		w.ListFailed(Refused)
	case retriesList:
		w.say("time for another list")
		w.retryL = false
		w.RetryList()
	case retriesWatch:
		w.say("time for another watch")
		w.retryW = false
		w.RetryWatch()
	case stores:
		w.say("the store goes on")
		w.process()
	}
	w.run(event)
	w.check()
}

// hangUp has all requests fail that are under way.
func (w *world) hangUp() {
	w.refused = false
	if w.list != nil {
		w.list = nil
		w.ListFailed(Failed)
	}
	if w.opening != nil {
		w.opening = nil
		w.OpenFailed(Failed)
	}
	if w.watch != nil {
		w.watch = nil
		w.WatchFailed(Failed)
	}
}

// want sets what is wanted, which limits what is held.
func (w *world) want(r hashkey.Ranges) {
	w.Want(r)
	w.held = w.held.Intersect(r)
}

// open opens the watch that was asked for, if the server still has its events.
func (w *world) open() {
	o := w.opening
	w.opening = nil
	if o.Revision < w.compacted {
		w.say("the watch has expired")
		w.OpenFailed(Expired)
		return
	}
	w.say("the watch is open")
	w.watch = &serverWatch{ranges: o.Ranges, everything: o.Everything, sent: o.Revision}
	if o.Asks {
		w.watch.asked = w.openAsked
	}
	w.Opened()
}

// send sends the next change to the watch, as what it means for the ranges of that, and returns its
// object, if it has one.
func (w *world) send() Object {
	s := w.watch
	if s.sent < w.compacted {
		w.say("the watch has expired")
		w.watch, w.refused = nil, false
		w.WatchFailed(Expired)
		return Object{}
	}
	s.sent++
	if object, deleted, ok := w.eventOf(s.serverSelector(), s.sent); ok {
		w.say("the watch brings %s of revision %d, deleted: %t", object.ID.Name, object.Revision, deleted)
		w.Changed(object, deleted)
		return object
	}
	return Object{}
}

// goOn sends the next change to the list, and returns its object, if it has one.
func (w *world) goOn() Object {
	l := w.list
	l.sent++
	if object, ended, ok := w.eventOf(l.serverSelector(), l.sent); ok {
		w.say("the list has %s of revision %d, deleted: %t", object.ID.Name, object.Revision, ended)
		w.Listed(object, ended)
		return object
	}
	return Object{}
}

// reached returns up to what revision the server says that it has sent everything. A watch may
// begin at a later one than the server has.
func (s *serverWatch) reached(now uint64) uint64 { return min(s.sent, now) }

// serverSelector returns the ranges that the server selects by.
func (s *serverWatch) serverSelector() hashkey.Ranges {
	if s.everything {
		return hashkey.All()
	}
	return s.ranges
}

// eventOf returns the event of a change for a watch of ranges, if there is one.
func (w *world) eventOf(r hashkey.Ranges, revision uint64) (object Object, deleted, ok bool) {
	c := w.history[revision-firstRevision-1]
	before, _ := w.at(c.id, revision-1)
	was, is := before.exists && before.key.In(r), c.exists && c.key.In(r)
	object = Object{ID: c.id, Revision: revision, Key: c.key}
	if !is {
		object.Key = before.key
	}
	return object, !is, was || is
}

// settle lets all happen that is under way, in one order, and says what is wrong at the end.
func (w *world) settle() string {
	for n := 0; w.violation == ""; n++ {
		all := w.actions(true)
		if len(all) == 0 {
			break
		}
		if n > 200 {
			return "it does not come to rest"
		}
		w.act(all[len(all)-1])
	}
	if w.violation != "" {
		return w.violation
	}
	if w.over {
		return ""
	}
	if !w.held.Equal(w.wanted) {
		return "at rest, what is held is not what is wanted, but " + rangesName(w.held)
	}
	if w.wanted.Empty() && w.watch != nil {
		return "at rest, a watch is open and nothing is wanted"
	}
	if w.rv < w.Follower.revision && !w.held.Empty() {
		return "at rest, the store does not know how far it is"
	}
	for id, revision := range w.newest {
		if revision > w.rv {
			return "at rest, the store is behind with what it was given of " + id.Name
		}
	}
	if w.hold {
		return "at rest, the store still stays at its revision"
	}
	if w.waiting != nil && w.wanted.Covers(w.waiting) {
		return "at rest, somebody still waits"
	}
	for _, id := range ids {
		is, revision := w.at(id, w.now())
		stored, exists := w.store[id]
		if exists != (is.exists && is.key.In(w.wanted)) || exists && stored.Revision != revision {
			return "at rest, the store has another state of " + id.Name
		}
	}
	return ""
}
