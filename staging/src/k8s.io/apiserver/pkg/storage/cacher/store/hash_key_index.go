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
)

const (
	// unowned stands for the key of the controller of an object that has none.
	unowned int64 = -1
	// left stands there when the object is no longer in the store.
	left int64 = -2
)

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
	// own and controller are nil until they are kept. What has no controller comes
	// first in controller, as unowned.
	own, controller *hashKeyOrder
	// writes counts the elements written and removed.
	writes uint64
}

// indexedObject is an object for as long as it is in the store with the same keys.
type indexedObject struct {
	// latest is the last version. That of an object that is gone has no Object.
	latest atomic.Pointer[Element]
	hashKeys
}

// hashKeys are an object's own key and that of its controller. Those who only have a
// clone of the index must not read them.
type hashKeys struct{ own, controller int64 }

func (k hashKeys) gone() bool { return k.controller == left }

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
	entries := make([]hashKeyEntry, 0, len(elements))
	for _, elem := range elements {
		o := elem.Indexed
		if o == nil {
			keys, ok := hashKeysOf(elem)
			if !ok {
				continue
			}
			o = newIndexedObject(keys, elem)
		}
		if path == sharding.ControllerHashKeyPath {
			entries = append(entries, hashKeyEntry{o.controller, o})
		} else {
			entries = append(entries, hashKeyEntry{o.own, o})
		}
	}
	if path == sharding.ControllerHashKeyPath {
		x.controller = newHashKeyOrder(entries)
	} else {
		x.own = newHashKeyOrder(entries)
	}
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
		x.own.add(hashKeyEntry{o.own, o})
	}
	if x.controller != nil {
		x.controller.add(hashKeyEntry{o.controller, o})
	}
}

// remove takes the object of elem, its latest version, out of the index.
func (x *hashKeyIndex) remove(elem *Element) {
	if x == nil || elem.Indexed == nil {
		return
	}
	x.writes++
	elem.Indexed.controller = left
	elem.Indexed.latest.Store(&Element{Key: elem.Key, Written: x.writes})
	if x.own != nil {
		x.own.leave()
	}
	if x.controller != nil {
		x.controller.leave()
	}
}

// replace makes the index hold exactly what is in s.
func (x *hashKeyIndex) replace(s *btreeStore) {
	for _, path := range []string{sharding.HashKeyPath, sharding.ControllerHashKeyPath} {
		if x != nil && x.keeps(path) {
			x.keep(path, s.elements())
		}
	}
}

// clone returns the index as it is now. It costs what was put off, and little else.
func (x *hashKeyIndex) clone() *hashKeyIndex {
	c := &hashKeyIndex{writes: x.writes}
	if x.own != nil {
		c.own = x.own.clone()
	}
	if x.controller != nil {
		c.controller = x.controller.clone()
	}
	return c
}

// find returns the objects of a clone that selector selects, and some that are gone.
func (x *hashKeyIndex) find(selector sharding.HashKeySelector) []*indexedObject {
	order, found := x.own, []*indexedObject(nil)
	if selector.FieldPath() == sharding.ControllerHashKeyPath {
		order = x.controller
		found = order.appendRange(found, unowned, unowned+1)
	}
	for _, r := range selector.Ranges() {
		// An end of 2^63 does not fit an int64, and comes out negative.
		found = order.appendRange(found, int64(r.Start), int64(r.End))
	}
	return found
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
	for _, o := range si.hashKeys.clone().find(selector) {
		if !o.gone() {
			items = append(items, o.latest.Load())
		}
	}
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
	objects := s.index.find(s.selector)
	elements := make([]*Element, len(objects))
	// What lies all over the memory is waited for much less if nothing else is done
	// with each.
	for i, o := range objects {
		elements[i] = o.latest.Load()
	}
	members := elements[:0]
	var errs []error
	for _, elem := range elements {
		if !strings.HasPrefix(elem.Key, prefix) || elem.Key < continueKey {
			continue
		}
		if elem.Written > s.index.writes {
			var err error
			if elem, err = s.then(elem.Key); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		if elem.Object != nil {
			members = append(members, elem)
		}
	}
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
