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
	// runGrowth is how many times as long as the next a run is at least. A higher one
	// makes fewer runs to search, and more copies of an entry until it is in the
	// longest.
	runGrowth = 8
	// slack and slackShare bound what an order puts off: so many entries, and one for
	// each so many that it has in runs.
	slack, slackShare = 16, 8
)

// hashKeyEntry is an object at its place in an order.
type hashKeyEntry struct {
	key int64
	*indexedObject
}

// hashKeyOrder holds objects in the order of a key. Writes are many, and lie all over
// the keys; readers are few, and want neighbours. So a write only appends its entry,
// or marks its object as gone, and the order is made for many at once: when a reader
// needs it, or when there are too many.
//
// It is a log-structured merge tree: runs in order, each at least runGrowth times as
// long as the next, so that there are few, and an entry is copied seldom. Runs never
// change: those who have them need no lock.
type hashKeyOrder struct {
	runs [][]hashKeyEntry
	// tail has what has come since, in no order.
	tail []hashKeyEntry
	// gone counts the entries whose object has left.
	gone int
}

// newHashKeyOrder takes the entries over.
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

// leave counts an object of the order that has been marked as gone.
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

// settle puts the tail in order. What has come and gone in the meantime costs nothing
// more.
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

// clone returns the order as it is now, which shares its runs.
func (o *hashKeyOrder) clone() *hashKeyOrder {
	o.settle()
	return &hashKeyOrder{runs: o.runs}
}

// appendRange appends the objects with start <= key < end, or with start <= key if
// end is negative, of a settled order. Some may be gone.
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
