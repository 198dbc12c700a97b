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

	"k8s.io/utils/third_party/forked/golang/btree"
)

const (
	// recentDegree is the degree of the tree of what is recent. The slices of a node
	// grow by doubling from the half that a split leaves, rounded up to what the
	// allocator gives. With 18 the doubled half just holds a full node, which spares a
	// quarter of the memory that 16 takes.
	recentDegree = 18
	// slack and slackShare bound what an order puts off: so many entries, and one for
	// each so many that are settled.
	slack, slackShare = 16, 8
)

// hashKeyEntry is an object at its place in an order.
type hashKeyEntry struct {
	key int64
	*indexedObject
}

// less orders by key, then by the own key, then by name. An entry without an object
// is a bound, and lies below all of its key.
func (a hashKeyEntry) less(b hashKeyEntry) bool {
	switch {
	case a.key != b.key:
		return a.key < b.key
	case a.indexedObject == nil || b.indexedObject == nil:
		return a.indexedObject == nil && b.indexedObject != nil
	case a.own != b.own:
		return a.own < b.own
	default:
		return a.latest.Load().Key < b.latest.Load().Key
	}
}

// hashKeyOrder holds objects in the order of a key. One tree of all would have each
// write wander through memory that nobody else has touched for long. So nearly all of
// them are settled in one slice that never changes; those that come go into a small
// tree, those that leave are only counted, and when they have become too many all are
// settled anew. A search takes O(log n), a write O(log n) over time.
type hashKeyOrder struct {
	// settled is in order of the key alone. Clones share it.
	settled []hashKeyEntry
	// recent has what has come since.
	recent *btree.BTree[hashKeyEntry]
	// gone counts the entries in either whose object has left.
	gone int
}

// newHashKeyOrder takes the entries over.
func newHashKeyOrder(entries []hashKeyEntry) *hashKeyOrder {
	slices.SortFunc(entries, func(a, b hashKeyEntry) int { return cmp.Compare(a.key, b.key) })
	return &hashKeyOrder{settled: entries, recent: newRecent()}
}

func newRecent() *btree.BTree[hashKeyEntry] {
	return btree.New(recentDegree, hashKeyEntry.less)
}

func (o *hashKeyOrder) add(entry hashKeyEntry) {
	if _, returned := o.recent.ReplaceOrInsert(entry); returned {
		o.gone-- // it has left, and taken the same keys again
	}
	o.settleBeyond(o.recent.Len())
}

// leave counts an object of the order that has been marked as gone.
func (o *hashKeyOrder) leave() {
	o.gone++
	o.settleBeyond(o.gone)
}

// settleBeyond settles all that is there, if what was put off is too much.
func (o *hashKeyOrder) settleBeyond(putOff int) {
	if putOff <= slack+len(o.settled)/slackShare {
		return
	}
	all := make([]hashKeyEntry, 0, len(o.settled)+o.recent.Len()-o.gone)
	settle := func(entry hashKeyEntry) {
		if !entry.gone() {
			all = append(all, entry)
		}
	}
	rest := o.settled
	o.recent.Ascend(func(entry hashKeyEntry) bool {
		for len(rest) > 0 && rest[0].key <= entry.key {
			settle(rest[0])
			rest = rest[1:]
		}
		settle(entry)
		return true
	})
	for _, entry := range rest {
		settle(entry)
	}
	o.settled, o.recent, o.gone = all, newRecent(), 0
}

// clone returns the order as it is now. It costs next to nothing: from now on the
// first change of each part of recent copies that part.
func (o *hashKeyOrder) clone() *hashKeyOrder {
	return &hashKeyOrder{settled: o.settled, recent: o.recent.Clone()}
}

// appendRange appends the objects with start <= key < end, or with start <= key if
// end is negative. Some may be gone.
func (o *hashKeyOrder) appendRange(objects []*indexedObject, start, end int64) []*indexedObject {
	within := func(entry hashKeyEntry) bool { return end < 0 || entry.key < end }
	from := sort.Search(len(o.settled), func(i int) bool { return o.settled[i].key >= start })
	settled := o.settled[from:]
	settled = settled[:sort.Search(len(settled), func(i int) bool { return !within(settled[i]) })]
	objects = slices.Grow(objects, len(settled))
	for _, entry := range settled {
		objects = append(objects, entry.indexedObject)
	}
	o.recent.AscendGreaterOrEqual(hashKeyEntry{key: start}, func(entry hashKeyEntry) bool {
		if !within(entry) {
			return false
		}
		objects = append(objects, entry.indexedObject)
		return true
	})
	return objects
}
