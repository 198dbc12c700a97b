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

	"k8s.io/apimachinery/pkg/sharding"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

const (
	// noKey stands for a key that an object does not have.
	noKey int64 = -1
	// left stands for the first key of an object that is no longer in the store.
	left int64 = -2
)

// hashKeyIndex orders the objects of a store by their hash keys, once for each key
// path. It changes with the store, under the store's lock.
//
// An order is kept from the first list of a range of its path on, so collections
// without such lists pay nothing. It holds objects, not their versions: an update, the
// most frequent write, leaves it alone. A clone holds the objects that were in the store
// when it was made. For each it finds the version that was the latest then: either it
// still is, or the snapshot of the store has it.
//
// A nil index holds nothing.
type hashKeyIndex struct {
	// orders has the order of each key path, nil until it is kept. Objects without the
	// key come first, as noKey.
	orders [sharding.NumKeyPaths]*hashKeyOrder
	// writes counts the elements written and removed.
	writes uint64
}

// indexedObject is an object for as long as it is in the store with the same keys.
type indexedObject struct {
	// latest is the last version. After the object has left, its Object is nil.
	latest atomic.Pointer[Element]
	hashKeys
}

// hashKeys are the keys of an object by path. Reading them takes the store's lock: a
// clone of the index is not enough.
type hashKeys [sharding.NumKeyPaths]int64

func (k *hashKeys) markGone() { k[0] = left }
func (k hashKeys) gone() bool { return k[0] == left }

// newHashKeyIndex returns an index that keeps no order yet, or nil if the feature gate
// ControllerRing is off.
func newHashKeyIndex() *hashKeyIndex {
	if !utilfeature.DefaultFeatureGate.Enabled(features.ControllerRing) {
		return nil
	}
	return &hashKeyIndex{}
}

// keeps says whether the order by path is kept.
func (x *hashKeyIndex) keeps(path sharding.KeyPath) bool { return x.orders[path] != nil }

func (x *hashKeyIndex) keepsAny() bool {
	for _, order := range x.orders {
		if order != nil {
			return true
		}
	}
	return false
}

// keep begins to keep the order by path, starting with elements.
func (x *hashKeyIndex) keep(path sharding.KeyPath, elements []*Element) {
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
		entries = append(entries, hashKeyEntry{o.hashKeys[path], o})
	}
	x.orders[path] = newHashKeyOrder(entries)
}

// hashKeysOf returns the keys of elem's object. It returns false for an object without
// metadata, which has no keys and matches no range.
func hashKeysOf(elem *Element) (keys hashKeys, ok bool) {
	for path := range sharding.NumKeyPaths {
		key, found, err := path.KeyOf(elem.Object)
		if err != nil {
			return hashKeys{}, false
		}
		if !found {
			key = noKey
		}
		keys[path] = key
	}
	return keys, true
}

// newIndexedObject returns the object whose latest version is elem.
func newIndexedObject(keys hashKeys, elem *Element) *indexedObject {
	o := &indexedObject{hashKeys: keys}
	o.latest.Store(elem)
	elem.Indexed = o
	return o
}

// write adds elem to the index in place of old, the object's last version, if any.
func (x *hashKeyIndex) write(old, elem *Element) {
	if x == nil || !x.keepsAny() {
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
	for path, order := range x.orders {
		if order != nil {
			order.add(hashKeyEntry{o.hashKeys[path], o})
		}
	}
}

// remove removes the object from the index whose latest version is elem.
func (x *hashKeyIndex) remove(elem *Element) {
	if x == nil || elem.Indexed == nil {
		return
	}
	x.writes++
	elem.Indexed.markGone()
	elem.Indexed.latest.Store(&Element{Key: elem.Key, Written: x.writes})
	for _, order := range x.orders {
		if order != nil {
			order.leave()
		}
	}
}

// replace makes the index hold exactly the objects of s.
func (x *hashKeyIndex) replace(s *btreeStore) {
	if x == nil {
		return
	}
	for path := range sharding.NumKeyPaths {
		if x.keeps(path) {
			x.keep(path, s.elements())
		}
	}
}

// clone returns the index as it is now. It does the work that writes have put off, and
// little else.
func (x *hashKeyIndex) clone() *hashKeyIndex {
	c := &hashKeyIndex{writes: x.writes}
	for path, order := range x.orders {
		if order != nil {
			c.orders[path] = order.clone()
		}
	}
	return c
}

// find returns the objects of a clone that selector selects, and some that are gone.
func (x *hashKeyIndex) find(selector sharding.HashKeySelector) []*indexedObject {
	order, found := x.orders[selector.Path()], []*indexedObject(nil)
	if selector.Path().Optional() {
		// An object without the key is in every range.
		found = order.appendRange(found, noKey, noKey+1)
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

// LatestRangeLocked returns the part of the store that selector selects; listing it
// reads nothing else. It returns false if there is no index. The caller must hold the
// watch cache's lock, so that no write comes between.
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
	// The snapshot keeps the index that its first list of a range needs, for the pages
	// to come. A snapshot without such lists never has one.
	index := store.hashKeys.Load()
	if index == nil || !index.keeps(selector.Path()) {
		index = indexer.cloneHashKeys(selector.Path())
		store.hashKeys.Store(index)
	}
	return rangeSnapshot{Snapshot: latest, index: index, selector: selector}, true
}

// RangeOf returns the part of snapshot that selector selects. It returns false unless
// snapshot has an index, which it keeps if a range was listed while it was the latest.
func RangeOf(snapshot Snapshot, selector sharding.HashKeySelector) (Snapshot, bool) {
	store, ok := snapshot.(*btreeStore)
	if !ok {
		return nil, false
	}
	index := store.hashKeys.Load()
	if index == nil || !index.keeps(selector.Path()) {
		return nil, false
	}
	return rangeSnapshot{Snapshot: snapshot, index: index, selector: selector}, true
}

func (si *threadedStoreIndexer) cloneHashKeys(path sharding.KeyPath) *hashKeyIndex {
	si.lock.Lock()
	defer si.lock.Unlock()
	si.keepHashKeys(path)
	return si.hashKeys.clone()
}

// listRange lists a range at once. It serves stores without snapshots.
func (si *threadedStoreIndexer) listRange(selector sharding.HashKeySelector) Snapshot {
	si.lock.Lock()
	defer si.lock.Unlock()
	si.keepHashKeys(selector.Path())
	var items []interface{}
	for _, o := range si.hashKeys.clone().find(selector) {
		if !o.gone() {
			items = append(items, o.latest.Load())
		}
	}
	return listSnapshot{Items: items}
}

func (si *threadedStoreIndexer) keepHashKeys(path sharding.KeyPath) {
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
	// The objects lie all over memory. A loop that only loads them waits much less for
	// it than one that does more with each.
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
			if elem, err = s.versionThen(elem.Key); err != nil {
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

// inOrderOfKey returns elements in order of their keys. The keys share a prefix and lie
// all over memory, so the sort holds the first bytes after the prefix beside each
// element, and nearly all comparisons read those alone.
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

// commonPrefix returns the length in bytes of the longest prefix of all elements' keys.
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

// versionThen returns the snapshot's version of an object that has been written since.
func (s rangeSnapshot) versionThen(key string) (*Element, error) {
	item, exists, err := s.Snapshot.GetByKey(key)
	if err != nil {
		return nil, err
	}
	elem, ok := item.(*Element)
	if !exists || !ok {
		return nil, fmt.Errorf("the index of hash keys has %s, but the snapshot does not", key)
	}
	return elem, nil
}
