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
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/sharding"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/storage"
)

// fetchCost is how many objects can be walked past in the time in which one is fetched: an
// order's neighbours lie all over memory, and have to be sorted by name.
const fetchCost = 4

// walkBatch is the number of elements whose keys a walk reads at a time.
const walkBatch = 512

// manyPassed is how many objects a list walks past in vain before it has their order made, for
// the next list of that kind.
const manyPassed = 10_000

// RangeQuery asks for the objects of a range of hash keys.
type RangeQuery struct {
	Selector sharding.HashKeySelector
	// Prefix is that of the wanted objects' keys in storage.
	Prefix string
	// Limit is the number of objects that the caller can use, or 0 for all. One more may be
	// returned, which tells that there are more.
	Limit int64
	// Matches says which objects the caller can use, if there is a limit. Others may be returned.
	Matches func(*Element) bool
}

// IndexesHashKeys says whether ranges of hash keys are listed from an index.
func (w *WatchCacheStorage) IndexesHashKeys() bool {
	_, ok := w.indexOfHashKeys()
	return ok
}

func (w *WatchCacheStorage) indexOfHashKeys() (*threadedStoreIndexer, bool) {
	indexer, ok := w.store.(*threadedStoreIndexer)
	return indexer, ok && indexer.hashKeys != nil
}

// KeepHashKeys makes the order of objects by path if it is not kept yet, which takes one to two
// seconds for a million objects. The caller must not hold the watch cache's lock.
func (w *WatchCacheStorage) KeepHashKeys(path sharding.KeyPath) {
	if indexer, ok := w.indexOfHashKeys(); ok {
		indexer.keepHashKeys(path)
	}
}

// SettleHashKeys does all that the orders have put off, and returns when it is done. Benchmarks
// count it so.
func (w *WatchCacheStorage) SettleHashKeys() {
	if indexer, ok := w.indexOfHashKeys(); ok {
		indexer.hashKeys.settleAll()
	}
}

// LatestRangeLocked returns the part of the store that query asks for. It returns false if another
// way is to be taken, and what that lists to be filtered: others are the indexes, by name and
// value, that have all objects that the caller wants, and one of them may have fewer than the
// range. The caller must hold the watch cache's lock, so that no write comes between.
func (w *WatchCacheStorage) LatestRangeLocked(query RangeQuery, others ...storage.MatchValue) (Snapshot, bool) {
	indexer, ok := w.indexOfHashKeys()
	if !ok {
		return nil, false
	}
	path := query.Selector.Path()
	latest, ok := w.LatestSnapshotLocked()
	if !ok {
		return indexer.listRange(query, others)
	}
	store, ok := latest.(*btreeStore)
	if !ok {
		return nil, false
	}
	// The snapshot keeps the view, for the pages to come.
	view := store.hashKeys.Load()
	if view == nil || view.orders[path] == nil {
		view = indexer.hashKeys.view()
		store.hashKeys.Store(view)
	}
	part := rangeSnapshot{btreeStore: store, view: view, query: query, makeOrder: indexer.beginToKeep}
	if len(others) > 0 && indexer.smallest(others) < part.most() {
		return nil, false
	}
	return part, true
}

// smallest returns the number of objects in the smallest of some indexes of the store.
func (si *threadedStoreIndexer) smallest(indexes []storage.MatchValue) int {
	si.lock.RLock()
	defer si.lock.RUnlock()
	smallest := math.MaxInt
	for _, index := range indexes {
		if si.indexer.indexers[index.IndexName] != nil {
			smallest = min(smallest, len(si.indexer.indices[index.IndexName][index.Value]))
		}
	}
	return smallest
}

// IsRange says whether snapshot is the part of one that a query asks for, and nothing else.
func IsRange(snapshot Snapshot) bool {
	switch snapshot.(type) {
	case rangeSnapshot, rangeList:
		return true
	}
	return false
}

// rangeList is a range that has been listed.
type rangeList struct{ listSnapshot }

// RangeOf returns the part of snapshot that query asks for, or false as LatestRangeLocked does.
func RangeOf(snapshot Snapshot, query RangeQuery) (Snapshot, bool) {
	store, ok := snapshot.(*btreeStore)
	if !ok {
		return nil, false
	}
	return rangeSnapshot{btreeStore: store, view: store.hashKeys.Load(), query: query}, true
}

// listRange lists a range at once, for a store that has no snapshot: because they are off, or
// nothing was written since etcd was compacted. It returns false if that is not the cheapest way.
func (si *threadedStoreIndexer) listRange(query RangeQuery, others []storage.MatchValue) (Snapshot, bool) {
	order := si.hashKeys.view().orders[query.Selector.Path()]
	if order == nil {
		return nil, false
	}
	entries, n := order.find(boundsOf(query.Selector))
	if !si.isWorthFetching(n, query.Prefix) || si.smallest(others) < n {
		return nil, false
	}
	items := make([]interface{}, 0, n)
	for _, run := range entries {
		for _, entry := range run {
			if elem := entry.latest.Load(); elem.Object != nil {
				items = append(items, elem)
			}
		}
	}
	return rangeList{listSnapshot{Items: items}}, true
}

// isWorthFetching says whether n objects are sooner fetched than those found by name that have the
// prefix.
func (si *threadedStoreIndexer) isWorthFetching(n int, prefix string) bool {
	si.lock.RLock()
	defer si.lock.RUnlock()
	return fetchCost*n < si.store.tree.Len() && si.store.isAllOf(prefix)
}

// isAllOf says whether all elements' keys have the prefix.
func (s *btreeStore) isAllOf(prefix string) bool {
	first, _ := s.tree.Min()
	last, ok := s.tree.Max()
	return !ok || strings.HasPrefix(first.Key, prefix) && strings.HasPrefix(last.Key, prefix)
}

// boundsOf returns the keys that an order has selector's objects at.
func boundsOf(selector sharding.HashKeySelector) []keyBounds {
	var bounds []keyBounds
	if selector.Path().Optional() {
		// An object without the key is in every range.
		bounds = append(bounds, keyBounds{noKey, noKey + 1})
	}
	for _, r := range selector.Ranges() {
		// An end of 2^63 does not fit an int64, and comes out negative.
		bounds = append(bounds, keyBounds{int64(r.Start), int64(r.End)})
	}
	return bounds
}

// rangeSnapshot is the part of a snapshot that a query asks for. There are two ways to list it.
// To walk is to go through the objects by name, as far as the namespace or the page goes, and take
// those of the range. To fetch is to take the range's entries from their order, and sort their
// objects by name.
type rangeSnapshot struct {
	*btreeStore
	// view has the orders as of the snapshot. It is nil if none was needed while that was the
	// latest.
	view  *hashKeyView
	query RangeQuery
	// makeOrder, if not nil, makes the order of a path in the background.
	makeOrder func(sharding.KeyPath)
}

// order returns the order of the query's path, or nil.
func (s rangeSnapshot) order() *orderView {
	if s.view == nil {
		return nil
	}
	return s.view.orders[s.query.Selector.Path()]
}

// most returns the most objects that may be in the range.
func (s rangeSnapshot) most() int {
	order := s.order()
	if order == nil {
		return s.tree.Len()
	}
	_, n := order.find(boundsOf(s.query.Selector))
	return n
}

// OrderedListPrefix implements Snapshot. The empty prefix means the query's.
func (s rangeSnapshot) OrderedListPrefix(prefix, continueKey string) ([]interface{}, error) {
	if prefix == "" {
		prefix = s.query.Prefix
	}
	if continueKey == "" {
		continueKey = prefix
	}
	order := s.order()
	if order == nil {
		items, walked, err := s.walk(prefix, continueKey, s.tree.Len())
		if walked-len(items) > manyPassed && s.makeOrder != nil {
			s.makeOrder(s.query.Selector.Path())
		}
		return items, err
	}
	entries, n := order.find(boundsOf(s.query.Selector))
	most := fetchCost * n // a longer walk takes longer than to fetch
	if s.query.Limit > 0 || most >= s.tree.Len() || !s.isAllOf(prefix) {
		if items, walked, err := s.walk(prefix, continueKey, most); walked <= most || err != nil {
			return items, err
		}
	}
	return s.fetch(entries, n, prefix, continueKey)
}

// walk goes through the objects by name, and returns those of the range and how many it has gone
// through. That is more than most if it gave up.
func (s rangeSnapshot) walk(prefix, continueKey string, most int) (items []interface{}, walked int, err error) {
	size := walkBatch
	if s.query.Limit > 0 {
		size = int(min(int64(size), s.query.Limit+1))
	}
	batch := make([]*Element, 0, size)
	goOn := func() bool {
		items, err = s.appendMembers(items, batch)
		batch = batch[:0]
		return err == nil && (s.query.Limit == 0 || int64(len(items)) <= s.query.Limit)
	}
	s.tree.AscendGreaterOrEqual(&Element{Key: continueKey}, func(elem *Element) bool {
		if !strings.HasPrefix(elem.Key, prefix) || walked > most {
			return false
		}
		walked++
		batch = append(batch, elem)
		return len(batch) < size || goOn()
	})
	if err == nil && walked <= most {
		goOn()
	}
	return items, walked, err
}

// appendMembers appends those of at most walkBatch elements to items that are in the range and
// that the caller can use, but no more than the query's limit and one. It reads all keys before it
// judges any. The objects lie all over memory: with a judgment after each, whose outcome the
// processor guesses wrong half the time, it would wait for one after the other.
func (s rangeSnapshot) appendMembers(items []interface{}, elements []*Element) ([]interface{}, error) {
	path, ranges := s.query.Selector.Path(), s.query.Selector.Ranges()
	all := ranges.Equal(hashkey.All())
	var keys [walkBatch]int64
	if !all {
		for i, elem := range elements {
			var err error
			if keys[i], err = hashKeyOf(elem, path); err != nil {
				return items, err
			}
		}
	}
	for i, elem := range elements {
		switch {
		case !all && keys[i] != noKey && !ranges.Contains(keys[i]):
		case s.query.Limit > 0 && (int64(len(items)) > s.query.Limit || !s.query.Matches(elem)):
		default:
			items = append(items, elem)
		}
	}
	return items, nil
}

// fetch takes n entries from their order.
func (s rangeSnapshot) fetch(entries [][]hashKeyEntry, n int, prefix, continueKey string) ([]interface{}, error) {
	elements := make([]*Element, 0, n)
	// The objects lie all over memory. A loop that only loads them waits much less for
	// it than one that does more with each.
	for _, run := range entries {
		for _, entry := range run {
			elements = append(elements, entry.latest.Load())
		}
	}
	members := elements[:0]
	var errs []error
	for _, elem := range elements {
		if !strings.HasPrefix(elem.Key, prefix) || elem.Key < continueKey {
			continue
		}
		if elem.Written > s.view.writes {
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

// versionThen returns the snapshot's version of an object that has been written since.
func (s rangeSnapshot) versionThen(key string) (*Element, error) {
	elem, ok := s.tree.Get(&Element{Key: key})
	if !ok {
		return nil, fmt.Errorf("the index of hash keys has %s, but the snapshot does not", key)
	}
	return elem, nil
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
