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

package cacher

import "k8s.io/apimachinery/pkg/sharding"

// GetControllerHashKey returns the hash key of the object's controller, and whether the
// object has one.
func (o *cachingObject) GetControllerHashKey() (int64, bool) {
	return o.keyAt(sharding.KeyPathController)
}

// GetNamespaceHashKey returns the hash key of the object's namespace, of a Namespace that of
// its own name, and whether there is one.
func (o *cachingObject) GetNamespaceHashKey() (int64, bool) {
	return o.keyAt(sharding.KeyPathNamespace)
}

// GetClaimHashKey returns the hash key of a PersistentVolume's claim, and whether there is one.
func (o *cachingObject) GetClaimHashKey() (int64, bool) {
	return o.keyAt(sharding.KeyPathClaim)
}

func (o *cachingObject) keyAt(path sharding.KeyPath) (int64, bool) {
	o.lock.RLock()
	defer o.lock.RUnlock()
	// It cannot fail: the object has metadata.
	key, found, _ := path.KeyOf(o.object)
	return key, found
}
