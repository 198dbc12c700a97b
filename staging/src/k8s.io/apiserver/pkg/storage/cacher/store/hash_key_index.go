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
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/sharding"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/utils/third_party/forked/golang/btree"
)

// hashKeyDegree is the degree of the trees. The slices of a node grow by doubling
// from the half that a split leaves, rounded up to what the allocator gives. With 18
// the doubled half just holds a full node, which spares a quarter of the memory that
// 16 takes.
const hashKeyDegree = 18

// unowned stands for the key of the controller of an object that has none.
const unowned int64 = -1

// hashKeyIndex orders the objects of a store by their own hash keys and by their
// controllers'. It changes with the store, under the store's lock.
//
// Each order is kept from the first time that somebody lists a range of it, so that
// collections of which nobody does pay nothing. It holds objects, not their
// versions: an update, which is most of what happens, leaves it alone. A clone holds
// the objects that were there, and finds the version of each that was the latest
// then: it either still is, or the snapshot of the store knows it.
//
// A nil index holds nothing.
type hashKeyIndex struct {
	// own is nil until it is kept.
	own *btree.BTree[hashKeyEntry]
	// controller and unowned are nil until they are kept. What has no controller is in
	// unowned, by its own key.
	controller, unowned *btree.BTree[hashKeyEntry]
	// writes counts the elements written.
	writes uint64
}

// hashKeyEntry is an object at its place in one of the orders.
type hashKeyEntry struct {
	key int64
	*indexedObject
}

// indexedObject is an object for as long as it is in the store with the same keys.
type indexedObject struct {
	latest atomic.Pointer[Element]
	hashKeys
}

// hashKeys are an object's own key and that of its controller.
type hashKeys struct{ own, controller int64 }

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

// newHashKeyIndex returns an index that keeps no order yet, or nil with the gate
// ControllerRing off.
func newHashKeyIndex() *hashKeyIndex {
	if !utilfeature.DefaultFeatureGate.Enabled(features.ControllerRing) {
		return nil
	}
	return &hashKeyIndex{}
}

// keeps says whether the order by that path is kept.
func (x *hashKeyIndex) keeps(path string) bool {
	if path == sharding.ControllerHashKeyPath {
		return x.controller != nil
	}
	return x.own != nil
}

// keep begins to keep the order by that path, of these elements.
func (x *hashKeyIndex) keep(path string, elements []*Element) {
	var own, controlled, free []hashKeyEntry
	for _, elem := range elements {
		o := elem.Indexed
		if o == nil {
			keys, ok := hashKeysOf(elem)
			if !ok {
				continue
			}
			o = newIndexedObject(keys, elem)
		}
		switch {
		case path == sharding.HashKeyPath:
			own = append(own, hashKeyEntry{o.own, o})
		case o.controller != unowned:
			controlled = append(controlled, hashKeyEntry{o.controller, o})
		default:
			free = append(free, hashKeyEntry{o.own, o})
		}
	}
	if path == sharding.HashKeyPath {
		x.own = newOrder(own)
	} else {
		x.controller, x.unowned = newOrder(controlled), newOrder(free)
	}
}

func newOrder(entries []hashKeyEntry) *btree.BTree[hashKeyEntry] {
	tree := btree.New(hashKeyDegree, hashKeyEntry.less)
	// Neighbours one after the other are much faster to insert.
	slices.SortFunc(entries, func(a, b hashKeyEntry) int { return cmp.Compare(a.key, b.key) })
	for _, entry := range entries {
		tree.ReplaceOrInsert(entry)
	}
	return tree
}

// hashKeysOf returns false for what has no metadata: that has no keys, and matches no
// range.
func hashKeysOf(elem *Element) (hashKeys, bool) {
	accessor, err := meta.Accessor(elem.Object)
	if err != nil {
		return hashKeys{}, false
	}
	keys := hashKeys{own: metav1.HashKeyOf(accessor), controller: unowned}
	if key, owned := metav1.HashKeyOfController(accessor); owned {
		keys.controller = key
	}
	return keys, true
}

// newIndexedObject returns the object of elem, its latest version.
func newIndexedObject(keys hashKeys, elem *Element) *indexedObject {
	o := &indexedObject{hashKeys: keys}
	o.latest.Store(elem)
	elem.Indexed = o
	return o
}

// write takes elem into the index, in the place of old, its last version, if any.
func (x *hashKeyIndex) write(old, elem *Element) {
	if x == nil || x.own == nil && x.controller == nil {
		return
	}
	x.writes++
	elem.Written = x.writes
	keys, ok := hashKeysOf(elem)
	if old != nil && old.Indexed != nil {
		if ok && keys == old.Indexed.hashKeys {
			elem.Indexed = old.Indexed
			elem.Indexed.latest.Store(elem)
			return
		}
		x.remove(old)
	}
	if !ok {
		return
	}
	o := newIndexedObject(keys, elem)
	if x.own != nil {
		x.own.ReplaceOrInsert(hashKeyEntry{o.own, o})
	}
	if x.controller != nil {
		tree, entry := x.byController(o)
		tree.ReplaceOrInsert(entry)
	}
}

// remove takes the object of elem, its latest version, out of the index.
func (x *hashKeyIndex) remove(elem *Element) {
	if x == nil || elem.Indexed == nil {
		return
	}
	o := elem.Indexed
	if x.own != nil {
		x.own.Delete(hashKeyEntry{o.own, o})
	}
	if x.controller != nil {
		tree, entry := x.byController(o)
		tree.Delete(entry)
	}
}

func (x *hashKeyIndex) byController(o *indexedObject) (*btree.BTree[hashKeyEntry], hashKeyEntry) {
	if o.controller != unowned {
		return x.controller, hashKeyEntry{o.controller, o}
	}
	return x.unowned, hashKeyEntry{o.own, o}
}

// replace makes the index hold exactly what is in s.
func (x *hashKeyIndex) replace(s *btreeStore) {
	for _, path := range []string{sharding.HashKeyPath, sharding.ControllerHashKeyPath} {
		if x != nil && x.keeps(path) {
			x.keep(path, s.elements())
		}
	}
}

// clone returns the index as it is now. It costs next to nothing: from now on the
// first change of each part copies that part.
func (x *hashKeyIndex) clone() *hashKeyIndex {
	c := &hashKeyIndex{writes: x.writes}
	if x.own != nil {
		c.own = x.own.Clone()
	}
	if x.controller != nil {
		c.controller, c.unowned = x.controller.Clone(), x.unowned.Clone()
	}
	return c
}

// visit calls f for each object that selector selects.
func (x *hashKeyIndex) visit(selector sharding.HashKeySelector, f func(*indexedObject)) {
	visit := func(entry hashKeyEntry) bool {
		f(entry.indexedObject)
		return true
	}
	tree := x.own
	if selector.FieldPath() == sharding.ControllerHashKeyPath {
		tree = x.controller
		x.unowned.Ascend(visit)
	}
	for _, r := range selector.Ranges() {
		// An end of 2^63 does not fit an int64: it is the end of the tree.
		if end := int64(r.End); end > 0 {
			tree.AscendRange(hashKeyEntry{key: int64(r.Start)}, hashKeyEntry{key: end}, visit)
		} else {
			tree.AscendGreaterOrEqual(hashKeyEntry{key: int64(r.Start)}, visit)
		}
	}
}

// IndexesHashKeys says whether ranges of hash keys are listed from an index.
func (w *WatchCacheStorage) IndexesHashKeys() bool {
	indexer, ok := w.store.(*threadedStoreIndexer)
	return ok && indexer.hashKeys != nil
}

// LatestRangeLocked returns the part of the store that selector selects. When it is
// listed, only that part is read. It is false without an index. The caller must
// hold the watch cache's lock, so that no write comes between.
func (w *WatchCacheStorage) LatestRangeLocked(selector sharding.HashKeySelector) (Snapshot, bool) {
	indexer, ok := w.store.(*threadedStoreIndexer)
	if !ok || indexer.hashKeys == nil {
		return nil, false
	}
	latest, ok := w.LatestSnapshotLocked()
	if !ok {
		return indexer.listRange(selector), true
	}
	store, ok := latest.(*btreeStore)
	if !ok {
		return nil, false
	}
	// The snapshot keeps the index that its first list needs, for the pages to come.
	// Those of which no range is listed never have one.
	index := store.hashKeys.Load()
	if index == nil || !index.keeps(selector.FieldPath()) {
		index = indexer.cloneHashKeys(selector.FieldPath())
		store.hashKeys.Store(index)
	}
	return rangeSnapshot{Snapshot: latest, index: index, selector: selector}, true
}

// RangeOf returns the part of snapshot that selector selects, if snapshot has kept
// its index: if a range was listed while it was the latest.
func RangeOf(snapshot Snapshot, selector sharding.HashKeySelector) (Snapshot, bool) {
	store, ok := snapshot.(*btreeStore)
	if !ok {
		return nil, false
	}
	index := store.hashKeys.Load()
	if index == nil || !index.keeps(selector.FieldPath()) {
		return nil, false
	}
	return rangeSnapshot{Snapshot: snapshot, index: index, selector: selector}, true
}

func (si *threadedStoreIndexer) cloneHashKeys(path string) *hashKeyIndex {
	si.lock.Lock()
	defer si.lock.Unlock()
	si.keepHashKeys(path)
	return si.hashKeys.clone()
}

// listRange lists a range at once, for when there are no snapshots.
func (si *threadedStoreIndexer) listRange(selector sharding.HashKeySelector) Snapshot {
	si.lock.Lock()
	defer si.lock.Unlock()
	si.keepHashKeys(selector.FieldPath())
	var items []interface{}
	si.hashKeys.visit(selector, func(o *indexedObject) { items = append(items, o.latest.Load()) })
	return listSnapshot{Items: items}
}

func (si *threadedStoreIndexer) keepHashKeys(path string) {
	if !si.hashKeys.keeps(path) {
		si.hashKeys.keep(path, si.store.elements())
	}
}

func (s *btreeStore) elements() []*Element {
	elements := make([]*Element, 0, s.tree.Len())
	s.tree.Ascend(func(elem *Element) bool {
		elements = append(elements, elem)
		return true
	})
	return elements
}

// rangeSnapshot is the part of a snapshot that a selector selects.
type rangeSnapshot struct {
	Snapshot
	index    *hashKeyIndex
	selector sharding.HashKeySelector
}

// OrderedListPrefix implements Snapshot.
func (s rangeSnapshot) OrderedListPrefix(prefix, continueKey string) ([]interface{}, error) {
	if continueKey == "" {
		continueKey = prefix
	}
	var members []*Element
	var errs []error
	s.index.visit(s.selector, func(o *indexedObject) {
		elem := o.latest.Load()
		if !strings.HasPrefix(elem.Key, prefix) || elem.Key < continueKey {
			return
		}
		if elem.Written > s.index.writes {
			var err error
			if elem, err = s.then(elem.Key); err != nil {
				errs = append(errs, err)
				return
			}
		}
		members = append(members, elem)
	})
	if len(errs) > 0 {
		return nil, utilerrors.NewAggregate(errs)
	}
	return inOrderOfKey(members), nil
}

// inOrderOfKey returns elements in order of their keys. These begin alike, and lie
// all over the memory: so what comes first after that is held beside each element
// while they are sorted, and nearly all comparisons are of it alone.
func inOrderOfKey(elements []*Element) []interface{} {
	type place struct {
		high, low uint64
		*Element
	}
	common := commonPrefix(elements)
	places := make([]place, len(elements))
	for i, elem := range elements {
		var next [16]byte
		copy(next[:], elem.Key[common:])
		places[i] = place{binary.BigEndian.Uint64(next[:8]), binary.BigEndian.Uint64(next[8:]), elem}
	}
	slices.SortFunc(places, func(a, b place) int {
		switch {
		case a.high != b.high:
			return cmp.Compare(a.high, b.high)
		case a.low != b.low:
			return cmp.Compare(a.low, b.low)
		default:
			return cmp.Compare(a.Key, b.Key)
		}
	})
	items := make([]interface{}, len(places))
	for i := range places {
		items[i] = places[i].Element
	}
	return items
}

// commonPrefix returns how many bytes all elements' keys have in common.
func commonPrefix(elements []*Element) int {
	if len(elements) == 0 {
		return 0
	}
	first := elements[0].Key
	common := len(first)
	for _, elem := range elements {
		if strings.HasPrefix(elem.Key, first[:common]) {
			continue
		}
		common = min(common, len(elem.Key))
		for i := range common {
			if elem.Key[i] != first[i] {
				common = i
				break
			}
		}
	}
	return common
}

// then returns the version that the snapshot has of an object that has been written
// since.
func (s rangeSnapshot) then(key string) (*Element, error) {
	item, exists, err := s.Snapshot.GetByKey(key)
	if err != nil {
		return nil, err
	}
	elem, ok := item.(*Element)
	if !exists || !ok {
		return nil, fmt.Errorf("the index of hash keys has %s, which the snapshot has not", key)
	}
	return elem, nil
}
