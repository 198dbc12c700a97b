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
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/hashkey"
)

// completed returns what is complete in the store once it has processed everything.
func (d *delivered) completed() extent {
	return extent{ranges: d.ranges.Minus(d.pending.ranges), revision: d.revision, parts: slices.Clone(d.past), answered: d.answered}
}

// startList starts the list of the ranges that are missing.
func (f *Follower) startList() {
	missing := f.target
	if !f.replacing {
		missing = f.target.Minus(f.ranges)
	}
	if f.listing != nil || f.listWaits {
		return
	}
	if missing.Empty() {
		if f.replacing {
			// A store that has nothing lacks nothing of what it was given, and no watch would tell.
			f.replace(&listing{part: part{revision: max(f.last, f.given, firstRevision)}, number: f.ask()})
		}
		return
	}
	l := &listing{part: part{ranges: missing}, number: f.ask(), floor: f.newest(), base: math.MaxUint64, left: map[ID]bool{}}
	if !f.ranges.Empty() {
		l.base = f.revision
	}
	f.listing = l
	f.emit(Step{Do: List, Ranges: missing, Everything: f.refused >= refusesRanges})
}

// ask returns the number of a question that is about to be asked.
func (f *Follower) ask() uint64 {
	f.questions++
	return f.questions
}

// Listed tells of an object of a list. If ended is set, it was deleted during the list.
func (f *Follower) Listed(object Object, ended bool) {
	l := f.listing
	old, known := f.known[object.ID]
	in := !ended && object.Key.In(l.ranges)
	switch {
	case f.replacing:
		f.listedOfAll(object, in)
		return
	case !known && l.left[object.ID]:
		return // the watch brings any later state
	case !in:
		old.seen = 0 // so that what is gone is removed
	case object.Revision > l.base, known && old.revision == object.Revision,
		known && old.revision > object.Revision && !l.alone():
		old.seen = l.number // the watch brings any later state
	default:
		f.put(object, l.number)
		return
	}
	if known {
		f.known[object.ID] = old
	}
}

// listedOfAll takes an object of the list of everything. What the store has is updated in place,
// so that it is not in memory twice. What it does not have waits until the list is complete, and so
// does what it has as of a later revision: the server was restored, and has forgotten that.
func (f *Follower) listedOfAll(object Object, in bool) {
	old, known := f.known[object.ID]
	if in && (!known || object.Revision < old.revision) {
		if f.kept == nil {
			f.kept = map[ID]entry{}
		}
		f.kept[object.ID] = entry{revision: object.Revision, key: object.Key, seen: f.listing.number}
		f.emit(Step{Do: Keep, ID: object.ID})
		return
	}
	if _, kept := f.kept[object.ID]; kept {
		delete(f.kept, object.ID)
		f.emit(Step{Do: Forget, ID: object.ID})
	}
	if !known {
		return
	}
	old.seen = 0
	if in {
		if object.Revision > old.revision {
			f.hold()
			f.emit(Step{Do: Update})
			f.sent(object.Revision)
			old.revision, old.key = object.Revision, object.Key
		}
		old.seen = f.listing.number
	}
	f.known[object.ID] = old
}

// ListEnded tells that all objects of a list have come, which was consistent at revision.
func (f *Follower) ListEnded(revision uint64) {
	l := f.listing
	if f.diverges(revision, l.floor) {
		return
	}
	l.complete, l.revision, l.base = true, revision, min(l.base, revision)
	if f.replacing {
		f.replace(l)
		return
	}
	if f.ranges.Empty() {
		// Else what is followed already may be older.
		f.answered, f.doubts = l.number, false
	}
	// Those that an earlier growth delivered before it was given up, and that the list does not
	// have, are gone.
	f.remove(f.knownThat(func(e entry) bool {
		return e.seen != l.number && e.key.In(l.ranges) && !e.key.In(f.ranges)
	}), l.base)
	f.cancelOpening() // the next watch includes the growth
}

// replace makes a list of everything what the informer has.
func (f *Follower) replace(l *listing) {
	gone := f.knownThat(func(e entry) bool { return e.seen != l.number })
	swaps := f.wantsList || len(gone) > 0 || len(f.kept) > 0
	if swaps && !f.wantsList {
		f.confirm()
	}
	for _, id := range gone {
		delete(f.known, id)
	}
	maps.Copy(f.known, f.kept)
	f.kept, f.listing, f.replacing = nil, nil, false
	f.ranges, f.past, f.answered, f.doubts = l.ranges, nil, l.number, false
	f.pending = part{}
	f.moveTo(l.revision)
	if swaps {
		f.last = l.revision
		f.emit(Step{Do: Replace, Revision: f.last})
		f.unconfirmed, f.wantsList, f.replaced = true, false, true
	} else {
		f.release()
	}
}

// ListFailed tells that a list has failed. Everything stays as it is.
func (f *Follower) ListFailed(failure Failure) {
	f.forgetAll()
	f.listing = nil
	if failure == Refused && f.refused < refusesRanges {
		f.refused = refusesRanges
		return
	}
	f.refused = refusesNothing
	f.retryList()
}

func (f *Follower) retryList() {
	f.listWaits = true
	f.emit(Step{Do: RetryList})
}

// RetryList tells that it is time for the next list.
func (f *Follower) RetryList() { f.listWaits = false }

func (f *Follower) cancelList() {
	if f.listing == nil {
		return
	}
	f.forgetAll()
	if !f.listing.complete {
		f.emit(Step{Do: CancelList})
	}
	f.listing = nil
}

func (f *Follower) forgetAll() {
	if len(f.kept) > 0 {
		f.kept = nil
		f.emit(Step{Do: ForgetAll})
	}
}

// startWatch opens a watch if there is none or another one is needed.
func (f *Follower) startWatch() {
	ranges, from, waits := f.ranges, f.revision, !f.pending.ranges.Empty()
	grows := f.listing != nil && f.listing.complete
	if grows {
		ranges, from = ranges.Union(f.listing.ranges), f.listing.base
		waits = waits || f.pendingUntil(f.listing.revision) > from
	}
	asks := f.refused < refusesQuestions && !f.plainly && (waits || f.doubts || f.silent || f.awaited(ranges))
	if f.following && !grows && (f.selected.Equal(ranges) || !f.target.Equal(ranges)) && (!asks || f.question > 0) {
		return // it will do, at least until the growth has been listed or the question answered
	}
	if ranges.Empty() || f.replacing || f.wantsList || f.opening != nil || f.watchWaits {
		return
	}
	o := &opening{ranges: ranges, from: from}
	if asks {
		o.question, o.floor = f.ask(), f.newest()
	}
	f.opening = o
	f.emit(Step{Do: Watch, Ranges: ranges, Revision: from, Asks: asks, Everything: f.refused >= refusesRanges})
}

// askByList has everything listed in place of a question that a watch is to answer, if the server
// does not answer any: a list is as of a moment after it was asked for, too.
func (f *Follower) askByList() {
	if f.refused < refusesQuestions && !f.silent || f.replacing || f.ranges.Empty() || f.listing != nil && !f.listing.complete {
		return
	}
	if f.listing != nil || !f.pending.ranges.Empty() || !f.ranges.Covers(f.target) || f.awaited(f.ranges) {
		f.listAll()
	}
}

// Silent tells that for long nothing has come of what Lacks says is to come from a watch.
func (f *Follower) Silent() { f.silent = true }

// Lacks returns what has yet to come.
func (f *Follower) Lacks() Lacks {
	l := Lacks{Listed: f.pending.revision, Watch: !f.ranges.Empty() && !f.following && !f.replacing}
	if f.listing != nil && f.listing.complete {
		l.Listed, l.Watch = f.listing.revision, true
	} else {
		l.List = f.replacing && !f.target.Empty() || !f.ranges.Covers(f.target)
	}
	for _, w := range f.waiters {
		if f.target.Covers(w.ranges) {
			l.Waiter = w.number
			break
		}
	}
	return l
}

// awaited reports whether a waiter needs the answer to another question about ranges.
func (f *Follower) awaited(ranges hashkey.Ranges) bool {
	return slices.ContainsFunc(f.waiters, func(w waiter) bool { return w.after >= f.answered && ranges.Covers(w.ranges) })
}

// pendingUntil returns the revision that the watch has to reach before pending, or a growth that
// was listed as of revision, can be held. It is not below the store's revision, which never goes
// back and must not claim for these ranges what holds only for others.
func (d *delivered) pendingUntil(revision uint64) uint64 {
	return max(revision, d.pending.revision, d.revision, d.last)
}

func (f *Follower) cancelOpening() {
	if f.opening != nil {
		f.opening = nil
		f.emit(Step{Do: CancelWatch})
	}
}

func (f *Follower) stopFollowing() {
	if f.following {
		f.following = false
		f.emit(Step{Do: EndWatch})
	}
}

// Opened tells that the watch that was being opened is open. Its events come from now on.
func (f *Follower) Opened() {
	o := f.opening
	f.opening = nil
	f.following, f.selected, f.question, f.floor, f.plainly = true, o.ranges, o.question, o.floor, false
	// The new watch repeats what lies between its start and the revision that the old one reached.
	if !f.ranges.Empty() {
		f.past = append(slices.Clone(f.past), part{ranges: f.ranges, revision: f.revision})
	}
	if l := f.listing; l != nil && l.complete {
		f.pending = part{ranges: f.pending.ranges.Union(l.ranges), revision: f.pendingUntil(l.revision)}
		f.ranges = o.ranges
		f.listing = nil
	}
	f.moveTo(o.from)
}

// moveTo sets the revision that the watch has reached.
func (d *delivered) moveTo(revision uint64) {
	d.revision = revision
	d.past = slices.DeleteFunc(slices.Clone(d.past), func(p part) bool { return p.revision <= revision })
	if max(d.pending.revision, d.last) <= revision {
		d.pending = part{}
	}
}

// restrict drops all ranges but those in keep.
func (d *delivered) restrict(keep hashkey.Ranges) {
	d.ranges = d.ranges.Intersect(keep)
	d.past = slices.Clone(d.past)
	for i := range d.past {
		d.past[i].ranges = d.past[i].ranges.Intersect(keep)
	}
	d.pending.ranges = d.pending.ranges.Intersect(keep)
}

// OpenFailed tells that the watch that was being opened could not be.
func (f *Follower) OpenFailed(failure Failure) {
	asked := f.opening.question > 0
	f.opening = nil
	switch {
	case failure == Expired:
		f.expired()
	case failure == Refused && f.refused < refusesQuestions && asked:
		f.refused, f.silent = refusesQuestions, true
	case failure == Refused && f.refused < refusesRanges:
		f.refused = refusesRanges
	default:
		// A server whose cache lags cannot say how far it is, but it can send what it has.
		f.plainly = asked && !f.following
		f.refused, f.doubts = refusesNothing, true
		f.retryWatch()
	}
}

// WatchFailed tells that the watch that was followed has failed.
func (f *Follower) WatchFailed(failure Failure) {
	f.following, f.refused, f.doubts = false, refusesNothing, true
	if failure == Expired {
		f.expired()
		return
	}
	f.retryWatch()
}

// WatchEnded tells that the watch that was followed has ended. If it was short, the next one waits.
func (f *Follower) WatchEnded(short bool) {
	f.following, f.refused, f.doubts = false, refusesNothing, true
	if short {
		f.retryWatch()
	}
}

// listAll has everything listed that is wanted.
func (f *Follower) listAll() {
	f.stopFollowing()
	f.refused = refusesNothing
	f.cancelOpening()
	f.cancelList()
	if f.oneByOne {
		f.restrict(nil)
	} else {
		f.replacing = true
	}
}

// expired has everything listed, since the server no longer has the events that a watch needs.
func (f *Follower) expired() {
	f.listAll()
	if !f.lively {
		f.retryList() // nothing has come since the last list of everything
	}
	f.lively = false
}

func (f *Follower) retryWatch() {
	f.watchWaits = true
	f.emit(Step{Do: RetryWatch})
}

// RetryWatch tells that it is time for the next watch.
func (f *Follower) RetryWatch() { f.watchWaits = false }

// Failure is how a request failed.
type Failure int

const (
	// Failed is what another attempt may mend.
	Failed Failure = iota + 1
	// Refused is what may be due to something that the server does not know.
	Refused
	// Expired says that the server no longer has the events that a watch needs.
	Expired
)
