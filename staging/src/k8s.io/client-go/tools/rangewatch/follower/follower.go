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
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/hashkey"
)

// ID is the name of an object. It needs no UID, because revisions tell apart the objects that have
// had a name one after another.
type ID struct{ Namespace, Name string }

// Key is the hash key of an object, or none. The zero value is none.
type Key struct{ afterZero uint64 }

// KeyOf returns the Key of an object with that hash key.
func KeyOf(hashKey int64) Key { return Key{uint64(hashKey) + 1} }

// In says whether an object with this key is in r. One without a key is in every range.
func (k Key) In(r hashkey.Ranges) bool {
	if k == (Key{}) {
		return !r.Empty()
	}
	return r.Contains(int64(k.afterZero - 1))
}

// Object is what a Follower knows of an object of the server.
type Object struct {
	ID       ID
	Revision uint64
	Key      Key
}

// Waiter is the number of somebody who waits until the store is as of a moment of the future.
type Waiter uint64

// Follower decides what an informer that follows ranges of a collection does next. Its methods tell
// it what has happened, and Next says what is to be done about it. It has no goroutine, clock or
// client, and is not safe for concurrent use.
type Follower struct {
	// oneByOne says that there is no store to be replaced.
	oneByOne bool
	steps    []Step

	// wanted are the ranges to follow.
	wanted  hashkey.Ranges
	waiters []waiter
	// questions counts the questions that were asked. A question is a request whose answer shows
	// the collection as of the moment of the request or later: a consistent list, or a watch that
	// asks how far the server is.
	questions uint64
	// refused is how much of what a request may ask for the server refuses.
	refused refusal
	// reported is what Report last said, limited to what was wanted ever since.
	reported hashkey.Ranges

	delivered

	// target is wanted, as of the last Step.
	target hashkey.Ranges
	// following says that there is a watch whose events are delivered. It selects selected, and its
	// answer to question is outstanding, unless that is 0.
	following bool
	selected  hashkey.Ranges
	question  uint64
	// floor is what newest was when the question was asked.
	floor uint64
	// doubts is set once a watch has ended, until a question is answered: the server may have been
	// restored to an earlier revision meanwhile, and would say nothing on a watch from a later one.
	doubts bool
	// lively is set once a watch has brought anything since the last list of everything.
	lively bool
	// opening is the watch that is to replace the one that is followed, or nil.
	opening *opening
	// listing is the list of ranges that are missing, or of everything, or nil. It runs, or is
	// complete and waits for its watch.
	listing *listing
	// plainly is set once the server could not open a watch that asks. Until one is open, none asks.
	plainly bool
	// silent is set once the server has refused a question or left one unanswered for long, until it
	// answers one.
	silent bool
	// watchWaits and listWaits are set from a failure until it is time for another attempt.
	watchWaits, listWaits bool
}

// delivered is what the informer has been given so far. It passes everything on to the store, in
// the same order.
type delivered struct {
	// ranges are followed by a watch that has reached revision.
	ranges   hashkey.Ranges
	revision uint64
	// past lists ranges that were delivered as of later revisions. What the watch brings for them
	// up to those is a repetition.
	past []part
	// pending is the part of ranges that was listed as of a later revision. It is complete once the
	// watch has reached pending.revision.
	pending part
	// answered is the latest question as of which everything in ranges but pending is complete.
	answered uint64
	// known has the objects that are in the store once it has processed everything: those in
	// ranges, and those that a growth in progress has delivered.
	known map[ID]entry
	// last is the revision that the store has then.
	last uint64
	// given is the latest revision that the informer was given, which is later than last only if
	// the store was held.
	given uint64
	// held is set while the store stays at its revision, because it has newer objects already.
	held bool
	// unconfirmed is set while the store may not yet have processed everything.
	unconfirmed bool
	// replacing is set while everything has to be listed, because the server does not have the
	// events from revision on, or because the informer waits for a list.
	replacing bool
	// wantsList is set while the informer waits for a list. It takes nothing else. Once Replace is
	// its list, replaced is set until it watches.
	wantsList, replaced bool
	// kept has the objects of the list of everything that the store does not have.
	kept map[ID]entry
}

// entry is what is kept of an object while the store has it.
type entry struct {
	revision uint64
	key      Key
	// seen is the number of the last list that contained the object, or 0.
	seen uint64
}

// waiter waits for an answer to a later question than after.
type waiter struct {
	number Waiter
	ranges hashkey.Ranges
	after  uint64
}

// refusal is how much of what a request may ask for the server refuses. A server may refuse in any
// words, so whatever may be a refusal is tried with less, at once. All is asked for again when the
// watch has ended, since the server may have been upgraded.
type refusal int

const (
	refusesNothing refusal = iota
	// refusesQuestions: the server does not say how far it is.
	refusesQuestions
	// refusesRanges: it does not know the selector, and everything is filtered here.
	refusesRanges
)

// firstRevision is lower than any object's revision: the first write to etcd has revision 2.
const firstRevision uint64 = 1

// opening is a watch that is being opened.
type opening struct {
	ranges hashkey.Ranges
	from   uint64
	// question is its number if it asks how far the server is, or 0. newest was floor then.
	question, floor uint64
}

// listing is a list. Its part has the ranges and, once listed, the revision.
type listing struct {
	part
	// number is that of the question that the list is. newest was floor when it was asked.
	number, floor uint64
	// base is the revision up to which objects are delivered from the list.
	base uint64
	// left has the objects that the watch has seen leave meanwhile. The list may have them in an
	// older state.
	left map[ID]bool
	// complete is set once all objects have come.
	complete bool
}

// alone says that no watch goes on beside the list, so that what was known before is not newer than
// what it says.
func (l *listing) alone() bool { return l.base == math.MaxUint64 }

// New returns a Follower for an informer, which is about to list.
func New() *Follower {
	return &Follower{delivered: delivered{revision: firstRevision, known: map[ID]entry{}}}
}

// NewOneByOne returns a Follower for a reader without a store. It never lists, and there is no
// Replace, Hold or Keep for it. Once a watch has expired, nothing is held until what has changed
// has been added, updated and removed one by one.
func NewOneByOne() *Follower {
	f := New()
	f.oneByOne = true
	return f
}

// Next returns what is to be done next, in this order, or false if nothing is. All of it has to be
// done before the Follower is told what happened meanwhile.
func (f *Follower) Next() (Step, bool) {
	if len(f.steps) == 0 {
		f.advance()
	}
	if len(f.steps) == 0 {
		return Step{}, false
	}
	step := f.steps[0]
	if f.steps = f.steps[1:]; len(f.steps) == 0 {
		f.steps = nil
	}
	return step, true
}

func (f *Follower) emit(s Step) { f.steps = append(f.steps, s) }

// Want sets the ranges to follow. Of what was reported, only these count from now on.
func (f *Follower) Want(r hashkey.Ranges) {
	f.wanted = r
	f.reported = f.reported.Intersect(r)
}

// Wait begins to wait until the store has r as of this moment or later. Report says when it has.
func (f *Follower) Wait(number Waiter, r hashkey.Ranges) {
	f.waiters = append(f.waiters, waiter{number: number, ranges: r, after: f.questions})
}

// StopWaiting says that the waiter is gone.
func (f *Follower) StopWaiting(number Waiter) {
	f.waiters = slices.DeleteFunc(f.waiters, func(w waiter) bool { return w.number == number })
}

// List says that the informer waits for a list, which Replace is. If the last Step was Replace,
// that is the list, and List must not be called. Otherwise the store may lack anything, and
// whatever was under way on the server is gone.
func (f *Follower) List() {
	f.steps, f.following, f.opening, f.listing = nil, false, nil, nil
	f.watchWaits, f.listWaits = false, false
	f.delivered = delivered{revision: firstRevision, last: f.last, given: f.given, held: f.held, known: map[ID]entry{}, replacing: true, wantsList: true}
	f.target = nil
}

// newest is the latest revision that the collection is known to have had.
func (f *Follower) newest() uint64 { return max(f.revision, f.last, f.given) }

// diverges says whether the server has another history than the store, and gives everything up
// then: it says that it is at this revision, and has been at a later one.
func (f *Follower) diverges(revision, floor uint64) bool {
	if revision >= floor {
		return false
	}
	f.emit(Step{Do: Diverge, Revision: revision})
	f.reported = nil
	return true
}

// Watch says that the informer watches: it takes single objects.
func (f *Follower) Watch() {
	f.replaced = false
	f.release()
}

// advance starts what is to be done next, and passes progress on to the store and to waiters.
func (f *Follower) advance() {
	if f.replaced {
		return
	}
	if !f.wanted.Equal(f.target) {
		f.retarget()
	}
	f.askByList()
	f.startList()
	f.startWatch()
	if f.wantsList {
		return
	}
	if reached := f.completed().reached(); reached > f.last {
		f.bookmark(reached)
	}
	f.report()
}

// retarget gives up a change to other ranges that is in progress, and removes the objects that are
// no longer wanted at once.
func (f *Follower) retarget() {
	f.target = f.wanted
	f.cancelList()
	f.cancelOpening()
	f.listWaits, f.watchWaits = false, false
	at := f.completed().reached()
	f.restrict(f.target)
	if f.ranges.Empty() {
		f.stopFollowing()
	}
	f.remove(f.knownThat(func(e entry) bool { return !e.key.In(f.target) }), at)
}

// Known returns the number of objects that the informer has, and all of them.
func (f *Follower) Known() (int, iter.Seq[ID]) { return len(f.known), maps.Keys(f.known) }

// knownThat returns the known objects of a kind, by name.
func (f *Follower) knownThat(is func(entry) bool) []ID {
	var ids []ID
	for id, e := range f.known {
		if is(e) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b ID) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return ids
}
