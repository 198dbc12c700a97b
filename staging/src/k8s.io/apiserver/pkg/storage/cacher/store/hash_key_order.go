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
)

const (
	// runGrowth is the least factor by which a run is longer than the next. A higher
	// factor makes fewer runs to search, but more copies of each entry on its way to the
	// longest run.
	runGrowth = 8
	// An order puts off at most slack entries, and one more for every slackShare entries
	// in its runs.
	slack, slackShare = 16, 8
)

// hashKeyEntry is an object at its place in an order.
type hashKeyEntry struct {
	key int64
	*indexedObject
}

// hashKeyOrder holds objects in the order of a key. Writes are many, and spread over all
// keys; reads are few, and want neighbours. So a write only appends its entry, or marks
// its object as gone. Many entries are sorted at once: when a reader needs them, or when
// there are too many.
//
// It is a log-structured merge tree of sorted runs. Each run is at least runGrowth times
// as long as the next, so there are few, and entries are copied seldom. A run never
// changes, so reading it takes no lock.
type hashKeyOrder struct {
	runs [][]hashKeyEntry
	// tail has the entries that were added since, in no order.
	tail []hashKeyEntry
	// gone counts the entries whose object has left.
	gone int
}

// newHashKeyOrder returns an order of entries. The caller must not use them any more.
func newHashKeyOrder(entries []hashKeyEntry) *hashKeyOrder {
	o := &hashKeyOrder{tail: entries}
	o.settle()
	return o
}

func (o *hashKeyOrder) add(entry hashKeyEntry) {
	o.tail = append(o.tail, entry)
	if o.tooMany(len(o.tail)) {
		o.settle()
	}
}

// leave takes note that an object of the order has been marked as gone.
func (o *hashKeyOrder) leave() {
	o.gone++
	if !o.tooMany(o.gone) {
		return
	}
	o.settle()
	var all []hashKeyEntry
	for _, run := range slices.Backward(o.runs) {
		all = merge(run, all)
	}
	o.runs, o.gone = [][]hashKeyEntry{slices.DeleteFunc(all, hashKeyEntry.gone)}, 0
}

func (o *hashKeyOrder) tooMany(putOff int) bool {
	settled := 0
	for _, run := range o.runs {
		settled += len(run)
	}
	return putOff > slack+settled/slackShare
}

// settle sorts the tail into the runs, without the entries that are gone already.
func (o *hashKeyOrder) settle() {
	came := len(o.tail)
	run := slices.DeleteFunc(o.tail, hashKeyEntry.gone)
	o.gone -= came - len(run)
	o.tail = nil
	if len(run) == 0 {
		return
	}
	slices.SortFunc(run, func(a, b hashKeyEntry) int { return cmp.Compare(a.key, b.key) })
	runs := slices.Clone(o.runs) // clones have the old slice
	for len(runs) > 0 && len(runs[len(runs)-1]) < runGrowth*len(run) {
		run = merge(runs[len(runs)-1], run)
		runs = runs[:len(runs)-1]
	}
	o.runs = append(runs, run)
}

// clone returns the order as it is now. It shares the runs.
func (o *hashKeyOrder) clone() *hashKeyOrder {
	o.settle()
	return &hashKeyOrder{runs: o.runs}
}

// appendRange appends the objects of a settled order with start <= key < end, or with
// start <= key if end is negative. Some may be gone.
func (o *hashKeyOrder) appendRange(objects []*indexedObject, start, end int64) []*indexedObject {
	for _, run := range o.runs {
		run = run[sort.Search(len(run), func(i int) bool { return run[i].key >= start }):]
		if end >= 0 {
			run = run[:sort.Search(len(run), func(i int) bool { return run[i].key >= end })]
		}
		objects = slices.Grow(objects, len(run))
		for _, entry := range run {
			objects = append(objects, entry.indexedObject)
		}
	}
	return objects
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
