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

package unstructured

import (
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
)

// GetHashKey returns metadata.hashKey as it was stored or sent, or 0 if there is none.
// To read an object's key, call metav1.HashKeyOf, which derives a missing one.
func (u *Unstructured) GetHashKey() int64 {
	metadata, _ := u.Object["metadata"].(map[string]interface{})
	return hashKey(metadata)
}

// SetHashKey sets metadata.hashKey; 0 removes it.
func (u *Unstructured) SetHashKey(key int64) {
	if key == 0 {
		RemoveNestedField(u.Object, "metadata", "hashKey")
		return
	}
	u.setNestedField(key, "metadata", "hashKey")
}

// GetNamespaceHashKey returns the hash key of the namespace that the object is in, of a
// Namespace that of its own name, and whether there is one.
func (u *Unstructured) GetNamespaceHashKey() (int64, bool) {
	metadata, _ := u.Object["metadata"].(map[string]interface{})
	if u.isCore("Namespace") {
		name, _ := metadata["name"].(string)
		return hashkey.OfNamespace(name), true
	}
	namespace, _ := metadata["namespace"].(string)
	if namespace == "" {
		return 0, false
	}
	return hashkey.OfNamespace(namespace), true
}

// GetClaimHashKey returns the hash key of the claim that a PersistentVolume is bound to or
// reserved for, and whether there is one. Objects of other kinds have none.
func (u *Unstructured) GetClaimHashKey() (int64, bool) {
	if !u.isCore("PersistentVolume") {
		return 0, false
	}
	spec, _ := u.Object["spec"].(map[string]interface{})
	claim, _ := spec["claimRef"].(map[string]interface{})
	uid, _ := claim["uid"].(string)
	if uid == "" {
		return 0, false
	}
	return hashkey.OfUID(types.UID(uid)), true
}

// isCore says whether u is an object of that kind of the core group's v1.
func (u *Unstructured) isCore(kind string) bool {
	return u.Object["kind"] == kind && u.Object["apiVersion"] == "v1"
}

// hashKey returns the field hashKey of v, or 0 if it is missing or not an integer.
func hashKey(v map[string]interface{}) int64 {
	key, _ := v["hashKey"].(int64)
	return key
}
