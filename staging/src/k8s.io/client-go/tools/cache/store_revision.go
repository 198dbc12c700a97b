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

import "k8s.io/apimachinery/pkg/util/resourceversion"

// A store's resource version says how far it has come, and consistency checks are
// built on that. An older object, such as one that enters the ranges that an informer
// follows, does not take it back. Replace and Bookmark may.

// isBehindLocked says whether an object's resource version is older than the
// store's.
func (c *threadSafeMap) isBehindLocked(rv string) bool {
	return isOlder(rv, c.rv)
}

// newestObject returns the object of a transaction that has the latest resource
// version, and last where they cannot be compared.
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

func isOlder(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
