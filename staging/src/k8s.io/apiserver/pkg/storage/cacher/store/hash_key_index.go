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
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/utils/third_party/forked/golang/btree"
)

// noKey stands for a key that an object does not have. Hash keys are not negative.
const noKey int64 = -1

// hashKeys are the keys of an object by path, 0 for paths whose order is not kept.
type hashKeys [sharding.NumKeyPaths]int64

// buildBatch is the number of elements that enter a new order in one hold of the store's lock.
const buildBatch = 512

// hashKeyIndex orders the objects of a store by their hash keys, once for each key
// path. It changes with the store, under the store's lock. What takes long, it does beside the
// lock, from what does not change, and then puts the result in place.
//
// An order is kept from the first list of a range of its path on, so collections
// without such lists pay nothing. It holds objects, not their versions: an update, the
// most frequent write, leaves it alone. A view has the objects that were in the store
// when it was made. For each it finds the version that was the latest then: either it
// still is, or the snapshot of the store has it.
//
// A nil index holds nothing.
type hashKeyIndex struct {
	// lock is the store's. It guards all that follows.
	lock readWriteLocker
	// orders has the order of each key path, nil until it is kept. Objects without the
	// key come first, as noKey.
	orders [sharding.NumKeyPaths]*hashKeyOrder
	// writes counts the elements written and removed.
	writes uint64

	// building is held while an order is made for the first time.
	building sync.Mutex
}

// readWriteLocker is a sync.RWMutex, or one whose holds are measured.
type readWriteLocker interface {
	sync.Locker
	RLock()
	RUnlock()
}

// indexedObject is an object for as long as it is in the store with the same keys.
type indexedObject struct {
	// latest is the last version. After the object has left, its Object is nil.
	latest atomic.Pointer[Element]
	// gone is set when the object leaves. Views need not look at it.
	gone atomic.Bool
}

// newHashKeyIndex returns an index that keeps no order yet, or nil if the feature gate
// ControllerRing is off.
func newHashKeyIndex(lock readWriteLocker) *hashKeyIndex {
	if !utilfeature.DefaultFeatureGate.Enabled(features.ControllerRing) {
		return nil
	}
	return &hashKeyIndex{lock: lock}
}

func (x *hashKeyIndex) keepsAny() bool {
	for _, order := range x.orders {
		if order != nil {
			return true
		}
	}
	return false
}

// objectOf returns the object of which elem is a version.
func objectOf(elem *Element) *indexedObject {
	if elem.Indexed == nil {
		elem.Indexed = &indexedObject{}
		elem.Indexed.latest.Store(elem)
	}
	return elem.Indexed
}

// write adds elem to the index in place of old, the object's last version, if any.
func (x *hashKeyIndex) write(old, elem *Element) {
	if x == nil {
		return
	}
	if !x.keepsAny() {
		elem.Indexed = nil // it may have been in the store before
		return
	}
	x.writes++
	elem.Written = x.writes
	keys, ok := x.keysOf(elem)
	if old != nil {
		if oldKeys, oldOK := x.keysOf(old); ok && oldOK && keys == oldKeys {
			elem.Indexed = objectOf(old)
			elem.Indexed.latest.Store(elem)
			return
		}
		x.leave(old)
	}
	elem.Indexed = nil
	if !ok {
		return
	}
	o := objectOf(elem)
	for path, order := range x.orders {
		if order != nil {
			order.add(hashKeyEntry{keys[path], o})
		}
	}
	x.settleWhatIsOverdue()
}

// keysOf returns the keys of elem's object at the paths whose orders are kept. It returns false
// for an object without metadata, which has no keys and matches no range.
func (x *hashKeyIndex) keysOf(elem *Element) (keys hashKeys, ok bool) {
	for path, order := range x.orders {
		if order != nil {
			var err error
			if keys[path], err = hashKeyOf(elem, sharding.KeyPath(path)); err != nil {
				return hashKeys{}, false
			}
		}
	}
	return keys, true
}

// hashKeyOf returns the key of elem's object, or noKey. It fails for an object without metadata.
func hashKeyOf(elem *Element, path sharding.KeyPath) (int64, error) {
	key, found, err := path.KeyOf(elem.Object)
	if !found {
		key = noKey
	}
	return key, err
}

// remove removes the object from the index whose latest version is elem.
func (x *hashKeyIndex) remove(elem *Element) {
	if x == nil || !x.keepsAny() {
		return
	}
	x.writes++
	x.leave(elem)
	x.settleWhatIsOverdue()
}

// leave makes the object gone whose latest version is elem.
func (x *hashKeyIndex) leave(elem *Element) {
	o := objectOf(elem) // a build may be yet to come to it, and must see that it is gone
	o.latest.Store(&Element{Key: elem.Key, Written: x.writes})
	o.gone.Store(true)
	for _, order := range x.orders {
		if order != nil {
			order.leave()
		}
	}
}

// settleWhatIsOverdue has the orders settled that have put off too much, in the background.
func (x *hashKeyIndex) settleWhatIsOverdue() {
	for _, order := range x.orders {
		if order != nil && order.overdue() {
			x.beginToSettle(order)
		}
	}
}

// beginToSettle has an order settled in the background, unless it is being settled or built.
func (x *hashKeyIndex) beginToSettle(order *hashKeyOrder) {
	if order.settling.CompareAndSwap(false, true) {
		go x.settle(order)
	}
}

// settle does the work that an order has put off. The lock is free meanwhile.
func (x *hashKeyIndex) settle(order *hashKeyOrder) {
	x.lock.Lock()
	sealed := order.seal()
	x.lock.Unlock()

	runs, forgotten := sealed.settle()

	x.lock.Lock()
	defer x.lock.Unlock()
	order.publish(runs, forgotten)
	order.settling.Store(false)
	if order.overdue() {
		x.beginToSettle(order)
	}
}

// settleAll settles every order, and returns when it is done.
func (x *hashKeyIndex) settleAll() {
	for path := range sharding.NumKeyPaths {
		x.lock.RLock()
		order := x.orders[path]
		x.lock.RUnlock()
		if order == nil {
			continue
		}
		for !order.settling.CompareAndSwap(false, true) {
			runtime.Gosched()
		}
		x.settle(order)
	}
}

// keepHashKeys makes the order by path of the objects in si, unless it is there. It returns when
// it is.
func (si *threadedStoreIndexer) keepHashKeys(path sharding.KeyPath) {
	x := si.hashKeys
	if x.ready(path) {
		return
	}
	x.building.Lock() // others that want the same wait for it
	defer x.building.Unlock()
	for !x.ready(path) {
		si.build(path)
	}
}

// beginToKeep makes the order by path in the background, unless it is there, or one is being made.
func (si *threadedStoreIndexer) beginToKeep(path sharding.KeyPath) {
	x := si.hashKeys
	if !x.building.TryLock() {
		return
	}
	go func() {
		defer x.building.Unlock()
		if !x.ready(path) {
			si.build(path)
		}
	}()
}

func (x *hashKeyIndex) ready(path sharding.KeyPath) bool {
	x.lock.RLock()
	defer x.lock.RUnlock()
	return x.orders[path] != nil && x.orders[path].ready
}

// build makes the order by path. It gives up if all objects are replaced meanwhile.
func (si *threadedStoreIndexer) build(path sharding.KeyPath) {
	x, order := si.hashKeys, &hashKeyOrder{}
	order.settling.Store(true) // what comes meanwhile waits in the tail

	x.lock.Lock()
	x.orders[path] = order
	elements := si.store.tree.Clone()
	x.lock.Unlock()

	entries := make([]hashKeyEntry, 0, elements.Len())
	var spare []*indexedObject // made beside the lock: under it, that could have to help collect garbage
	eachBatch(elements, func(batch []*Element) bool {
		keys := make([]int64, 0, buildBatch)
		batch = slices.DeleteFunc(batch, func(elem *Element) bool {
			key, err := hashKeyOf(elem, path)
			if err == nil {
				keys = append(keys, key)
			}
			return err != nil
		})
		for len(spare) < len(batch) {
			spare = append(spare, &indexedObject{})
		}
		x.lock.Lock()
		defer x.lock.Unlock()
		for i, elem := range batch {
			if elem.Indexed == nil {
				spare[0].latest.Store(elem)
				elem.Indexed, spare = spare[0], spare[1:]
			}
			if o := elem.Indexed; !o.gone.Load() {
				entries = append(entries, hashKeyEntry{keys[i], o})
			}
		}
		return x.orders[path] == order
	})
	sortByKey(entries)

	x.lock.Lock()
	defer x.lock.Unlock()
	order.publish([][]hashKeyEntry{entries}, 0)
	order.ready = true
	order.settling.Store(false)
}

// eachBatch calls f with the elements of a tree, buildBatch at a time, until it returns false.
func eachBatch(tree *btree.BTree[*Element], f func([]*Element) bool) {
	batch := make([]*Element, 0, buildBatch)
	more := true
	tree.Ascend(func(elem *Element) bool {
		if batch = append(batch, elem); len(batch) == buildBatch {
			more = f(batch)
			batch = batch[:0]
		}
		return more
	})
	if more {
		f(batch)
	}
}

// replaceBeside makes the store and its index hold exactly the elements of objs. All of that
// is built beside the lock, so there must be no write meanwhile.
func (si *threadedStoreIndexer) replaceBeside(objs []interface{}, resourceVersion string) error {
	x := si.hashKeys
	next := &threadedStoreIndexer{store: newBtreeStore(btreeDegree), indexer: newIndexer(si.indexer.indexers)}
	if err := next.store.Replace(objs, resourceVersion); err != nil {
		return err
	}
	if err := next.indexer.Replace(objs, resourceVersion); err != nil {
		return err
	}
	next.store.tree.Ascend(func(elem *Element) bool {
		elem.Indexed = nil // it may have been in the store before
		return true
	})
	next.hashKeys = &hashKeyIndex{lock: &next.lock}
	for path := range sharding.NumKeyPaths {
		if x.ready(path) {
			next.build(path)
		}
	}

	x.lock.Lock()
	defer x.lock.Unlock()
	si.store.tree, si.indexer.indices = next.store.tree, next.indexer.indices
	// An order that is being built meanwhile is not among them, and is begun anew.
	x.orders = next.hashKeys.orders
	return nil
}

// hashKeyView has the orders of an index as they were at one moment. Reading it takes no lock.
type hashKeyView struct {
	orders [sharding.NumKeyPaths]*orderView
	// writes is the number of the last write in it.
	writes uint64
}

// view returns the orders that are kept, as they are now.
func (x *hashKeyIndex) view() *hashKeyView {
	x.lock.RLock()
	defer x.lock.RUnlock()
	v := &hashKeyView{writes: x.writes}
	for path, order := range x.orders {
		if order != nil && order.ready {
			v.orders[path] = order.view()
			if v.orders[path].unsorted() > manyUnsorted {
				x.beginToSettle(order)
			}
		}
	}
	return v
}
