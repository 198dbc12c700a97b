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

package cache

import (
	"errors"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// A store's resource version says how far the store has come, and consistency checks rely on it.
// An older object must not take it back, such as one that enters the ranges that an informer
// follows. Only Replace and Bookmark may set an earlier resource version.

// RevisionControl is implemented by the stores of this package. It is for whoever feeds one.
type RevisionControl interface {
	// HoldRevision(true) makes the store stay at its resource version whatever the objects that it
	// gets, until HoldRevision(false). Replace and Bookmark set it all the same. A store that gets
	// parts of a newer state before it is complete would else claim to have that state.
	HoldRevision(hold bool)
	// OnBookmark makes the store call f for each Bookmark, when it has everything that came before.
	// The store is locked meanwhile.
	OnBookmark(f func())
}

var (
	_ RevisionControl = &threadSafeMap{}
	_ RevisionControl = &cache{}
)

// revisionControl is what a RevisionControl has set. The lock of the store is for it, too.
type revisionControl struct {
	holdsRevision bool
	onBookmark    func()
}

// HoldRevision implements RevisionControl.
func (c *threadSafeMap) HoldRevision(hold bool) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.holdsRevision = hold
}

// OnBookmark implements RevisionControl.
func (c *threadSafeMap) OnBookmark(f func()) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.onBookmark = f
}

func (c *revisionControl) bookmarkedLocked() {
	if c.onBookmark != nil {
		c.onBookmark()
	}
}

// HoldRevision implements RevisionControl.
func (c *cache) HoldRevision(hold bool) { c.cacheStorage.(RevisionControl).HoldRevision(hold) }

// OnBookmark implements RevisionControl.
func (c *cache) OnBookmark(f func()) { c.cacheStorage.(RevisionControl).OnBookmark(f) }

// errHeld says that the store stays at its resource version.
var errHeld = errors.New("the store holds its resource version")

// errOlder says that an object is older than the store's resource version.
var errOlder = errors.New("the object is older than the store's resource version")

// errIfOlderLocked returns errHeld if the store holds its resource version, or errOlder if rv is
// older than that, so that the caller keeps the store's, and otherwise rvErr, the error of reading
// rv. Resource versions that are not numbers are not compared.
func (c *threadSafeMap) errIfOlderLocked(rv string, rvErr error) error {
	if c.holdsRevision {
		return errHeld
	}
	if isOlder(rv, c.rv) {
		return errOlder
	}
	return rvErr
}

// newestObject returns the object of a transaction that has the latest resource version, or last
// if the resource version of last cannot be compared.
func newestObject(txns []ThreadSafeStoreTransaction, last interface{}) interface{} {
	newest := last
	newestRV, err := rvFromObject(last)
	if err != nil {
		return last
	}
	for _, txn := range txns {
		if rv, err := rvFromObject(txn.Object); err == nil && isOlder(newestRV, rv) {
			newest, newestRV = txn.Object, rv
		}
	}
	return newest
}

// isOlder reports whether a and b are numbers and a is the lower one.
func isOlder(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
