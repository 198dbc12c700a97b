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

package store

import (
	"cmp"
	"slices"
	"sort"
	"sync/atomic"
)

const (
	// runGrowth is the least factor by which a run is longer than the next. A higher
	// factor makes fewer runs to search, but more copies of each entry on its way to the
	// longest run.
	runGrowth = 8
	// An order puts off at most slack entries, and one more for every slackShare entries
	// in its runs. What comes while earlier entries are being sorted counts as well, but
	// has to wait for those.
	slack, slackShare = 64, 8
	// manyUnsorted is how many entries a reader looks through, time and again, before it
	// asks for them to be sorted.
	manyUnsorted = 512
	// chunkSize is the number of entries in a chunk of a tail.
	chunkSize = 512
)

// hashKeyEntry is an object at its place in an order.
type hashKeyEntry struct {
	key int64
	*indexedObject
}

func (e hashKeyEntry) isGone() bool { return e.gone.Load() }

// hashKeyOrder holds objects in the order of a key. Writes are many, and spread over all
// keys; reads are few, and want neighbours. So a write only appends its entry, or counts
// an object as gone. Many entries are sorted at once, when a reader meets them or when
// there are too many. That is done beside the store's lock (hashKeyIndex.settle): seal
// tells what is to be done, and publish puts the result in place.
//
// It is a log-structured merge tree of sorted runs. Each run is at least runGrowth times
// as long as the next, so there are few, and entries are copied seldom. A run never
// changes, so reading it takes no lock.
type hashKeyOrder struct {
	runs [][]hashKeyEntry
	// sealed has the entries that are being sorted, and tail those that were added since.
	sealed, tail hashKeyTail
	// gone counts the objects that have left, of which some may have no entry.
	gone int
	// ready is set when all objects of the store have their entries.
	ready bool
	// settling is set while a goroutine builds or settles the order.
	settling atomic.Bool
}

// hashKeyTail has entries in no order. It is only appended to, so a copy does not change.
type hashKeyTail struct {
	full    [][]hashKeyEntry
	current []hashKeyEntry
}

func (t *hashKeyTail) add(entry hashKeyEntry) {
	if t.current == nil {
		t.current = make([]hashKeyEntry, 0, chunkSize)
	}
	t.current = append(t.current, entry)
	if len(t.current) == chunkSize {
		t.full, t.current = append(t.full, t.current), nil
	}
}

func (t *hashKeyTail) len() int { return len(t.full)*chunkSize + len(t.current) }

func (t *hashKeyTail) each(f func(hashKeyEntry)) {
	for _, chunk := range append(slices.Clip(t.full), t.current) {
		for _, entry := range chunk {
			f(entry)
		}
	}
}

func (o *hashKeyOrder) add(entry hashKeyEntry) { o.tail.add(entry) }

// leave takes note that an object has been marked as gone.
func (o *hashKeyOrder) leave() { o.gone++ }

// overdue says whether the order has put off too much.
func (o *hashKeyOrder) overdue() bool { return o.tooMany(o.tail.len()) || o.tooMany(o.gone) }

func (o *hashKeyOrder) tooMany(putOff int) bool {
	settled := 0
	for _, run := range o.runs {
		settled += len(run)
	}
	return putOff > slack+settled/slackShare
}

// sealedOrder is what an order had when it was sealed. It does not change.
type sealedOrder struct {
	runs [][]hashKeyEntry
	tail hashKeyTail
	// compact is set if the entries of all objects that are gone are to be dropped.
	compact bool
	gone    int
}

// seal returns the work that the order has put off. Until publish the order must not be
// sealed again.
func (o *hashKeyOrder) seal() sealedOrder {
	o.sealed, o.tail = o.tail, hashKeyTail{}
	return sealedOrder{runs: o.runs, tail: o.sealed, compact: o.tooMany(o.gone), gone: o.gone}
}

// settle returns the runs with the tail sorted into them, and how many objects that have
// left are no longer to be counted.
func (s sealedOrder) settle() (runs [][]hashKeyEntry, forgotten int) {
	run := make([]hashKeyEntry, 0, s.tail.len())
	s.tail.each(func(entry hashKeyEntry) {
		if !entry.isGone() {
			run = append(run, entry)
		}
	})
	forgotten = s.tail.len() - len(run)
	sortByKey(run)
	runs = slices.Clone(s.runs) // views have the old slice
	for len(runs) > 0 && (s.compact || len(runs[len(runs)-1]) < runGrowth*len(run)) {
		run = merge(runs[len(runs)-1], run)
		runs = runs[:len(runs)-1]
	}
	if s.compact {
		run = slices.DeleteFunc(run, hashKeyEntry.isGone)
		forgotten = s.gone
	}
	if len(run) > 0 {
		runs = append(runs, run)
	}
	return runs, forgotten
}

// publish puts the result of settle in place.
func (o *hashKeyOrder) publish(runs [][]hashKeyEntry, forgotten int) {
	o.runs, o.sealed = runs, hashKeyTail{}
	o.gone -= forgotten
}

func sortByKey(entries []hashKeyEntry) {
	slices.SortFunc(entries, func(a, b hashKeyEntry) int { return cmp.Compare(a.key, b.key) })
}

// merge returns the entries of two runs in order.
func merge(a, b []hashKeyEntry) []hashKeyEntry {
	merged := make([]hashKeyEntry, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if a[0].key <= b[0].key {
			merged = append(merged, a[0])
			a = a[1:]
		} else {
			merged = append(merged, b[0])
			b = b[1:]
		}
	}
	return append(append(merged, a...), b...)
}

// orderView is an order as it was at one moment. Reading it takes no lock.
type orderView struct {
	runs         [][]hashKeyEntry
	sealed, tail hashKeyTail
}

// view returns the order as it is now.
func (o *hashKeyOrder) view() *orderView {
	return &orderView{runs: o.runs, sealed: o.sealed, tail: o.tail}
}

// unsorted returns the number of entries that find has to look through.
func (v *orderView) unsorted() int { return v.sealed.len() + v.tail.len() }

// keyBounds are keys from start to the one before end; end is exclusive and negative for 2^63,
// which does not fit.
type keyBounds struct{ start, end int64 }

func (b keyBounds) contain(key int64) bool { return key >= b.start && (b.end < 0 || key < b.end) }

// find returns the entries whose key is within any of bounds, which must not overlap, and
// their number. Entries of objects that are gone are among them. The caller must not change
// the entries.
func (v *orderView) find(bounds []keyBounds) (found [][]hashKeyEntry, n int) {
	take := func(entries []hashKeyEntry) {
		if len(entries) > 0 {
			found, n = append(found, entries), n+len(entries)
		}
	}
	for _, run := range v.runs {
		for _, b := range bounds {
			first := sort.Search(len(run), func(i int) bool { return run[i].key >= b.start })
			end := len(run)
			if b.end >= 0 {
				end = first + sort.Search(len(run)-first, func(i int) bool { return run[first+i].key >= b.end })
			}
			take(run[first:end])
		}
	}
	var unsorted []hashKeyEntry
	visit := func(entry hashKeyEntry) {
		// The first bounds that end beyond the key are the only ones that can have it.
		i := sort.Search(len(bounds), func(i int) bool { return bounds[i].end < 0 || entry.key < bounds[i].end })
		if i < len(bounds) && bounds[i].contain(entry.key) {
			unsorted = append(unsorted, entry)
		}
	}
	v.sealed.each(visit)
	v.tail.each(visit)
	take(unsorted)
	return found, n
}
