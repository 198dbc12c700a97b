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
	"maps"
	"slices"
)

// Changed tells of an object that the watch has sent: as it is now or, if deleted is set, as of its
// deletion.
func (f *Follower) Changed(object Object, deleted bool) {
	f.apply(object, deleted)
	f.reach(object.Revision)
}

// Reached tells that the watch has sent everything up to revision. If answers is set, that was so
// at some moment after the watch's question.
func (f *Follower) Reached(revision uint64, answers bool) {
	if answers && f.question > 0 {
		if f.diverges(revision, f.floor) {
			return
		}
		f.answered, f.question, f.doubts, f.silent = f.question, 0, false, false
	}
	f.reach(revision)
}

func (f *Follower) reach(revision uint64) {
	f.moveTo(max(f.revision, revision))
	f.lively = true
}

// apply delivers a change that is news as what it means for the ranges, since the server may have
// watched other ranges, or all.
func (f *Follower) apply(object Object, deleted bool) {
	old, known := f.known[object.ID]
	switch {
	case known && (object.Revision < old.revision || object.Revision == old.revision && !deleted):
		return
	case !deleted && object.Key.In(f.ranges) && !f.isPast(object):
		f.put(object, old.seen)
		return
	case !known || !old.key.In(f.ranges):
		return
	case deleted:
		f.emit(Step{Do: Delete})
		f.sent(object.Revision)
		delete(f.known, object.ID)
	default:
		f.remove([]ID{object.ID}, object.Revision)
	}
	if f.listing != nil {
		f.listing.left[object.ID] = true
	}
}

// isPast reports whether the watch repeats an outdated state of an object, whose range has been
// delivered as of the same or a later revision.
func (d *delivered) isPast(object Object) bool {
	return slices.ContainsFunc(d.past, func(p part) bool {
		return object.Revision <= p.revision && object.Key.In(p.ranges)
	})
}

// put delivers an object, as added or, if it is known, as updated.
func (f *Follower) put(object Object, seen uint64) {
	action := Add
	if _, known := f.known[object.ID]; known {
		action = Update
	}
	f.emit(Step{Do: action})
	f.sent(object.Revision)
	f.known[object.ID] = entry{revision: object.Revision, key: object.Key, seen: seen}
}

// remove reports objects that left the ranges at revision as deleted, in their last known state.
// That is the store's, so the store must have processed it. As in events of the API server, an
// object carries the revision of the event.
func (f *Follower) remove(ids []ID, revision uint64) {
	if len(ids) == 0 {
		return
	}
	f.confirm()
	defer f.shrink(len(f.known))
	for _, id := range ids {
		at := max(revision, f.known[id].revision)
		f.emit(Step{Do: Remove, ID: id, Revision: at})
		f.sent(at)
		delete(f.known, id)
	}
}

// shrink gives back the memory of known if it has less than half of what it had. Deleting does not
// shrink a map.
func (d *delivered) shrink(before int) {
	if len(d.known) < before/2 {
		known := make(map[ID]entry, len(d.known))
		maps.Copy(known, d.known)
		d.known = known
	}
}

// hold has the store stay at its revision while it gets objects of a list of everything, as they
// are newer than what it is complete as of.
func (f *Follower) hold() {
	if !f.held {
		f.emit(Step{Do: Hold})
		f.held = true
	}
}

// release lets the store go on, once it has the whole list.
func (f *Follower) release() {
	if f.held {
		f.confirm()
		f.emit(Step{Do: Release})
		f.held = false
	}
}

// sent says that the informer was given an object or its deletion, after which the store is at
// revision or later, unless it stays where it is.
func (d *delivered) sent(revision uint64) {
	d.unconfirmed = true
	d.given = max(d.given, revision)
	if !d.held {
		d.last = max(d.last, revision)
	}
}

func (f *Follower) bookmark(revision uint64) {
	f.emit(Step{Do: Bookmark, Revision: revision})
	f.last, f.unconfirmed = revision, true
}

// confirm waits until the store has processed everything that was sent.
func (f *Follower) confirm() {
	if f.unconfirmed {
		f.last = max(f.completed().reached(), f.last)
		f.emit(Step{Do: Confirm, Revision: f.last})
		f.unconfirmed = false
	}
}

// report publishes what is complete, once the store has it too, if that is news or ends a wait.
func (f *Follower) report() {
	completed := f.completed()
	var ended []Waiter
	for _, w := range f.waiters {
		if completed.satisfies(w) {
			ended = append(ended, w.number)
		}
	}
	if len(ended) == 0 && completed.ranges.Equal(f.reported) {
		return
	}
	f.confirm()
	f.emit(Step{Do: Report, Ranges: completed.ranges, Waiters: ended})
	f.reported = completed.ranges
	for _, number := range ended {
		f.StopWaiting(number)
	}
}
