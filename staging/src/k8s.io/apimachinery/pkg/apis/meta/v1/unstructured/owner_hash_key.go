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
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// GetControllerHashKey returns the hash key of the object's controller, and whether the
// object has one. metav1.HashKeyOfController calls it to avoid the copies that
// GetOwnerReferences makes.
func (u *Unstructured) GetControllerHashKey() (int64, bool) {
	for _, item := range u.rawOwnerReferences() {
		ref, _ := item.(map[string]interface{})
		if controller, _ := ref["controller"].(bool); controller {
			return metav1.HashKeyOfOwner(&metav1.OwnerReference{UID: ownerUID(ref), HashKey: hashKey(ref)}), true
		}
	}
	return 0, false
}

// SetOwnerHashKeys sets the hashKey of each owner reference to what keyOf returns for it and
// its index; 0 removes the field. It keeps all other fields, including unknown ones. Another
// object may share the references, so they are copied before they change; if all keys
// are right already, nothing is copied.
func (u *Unstructured) SetOwnerHashKeys(keyOf func(i int, ref metav1.OwnerReference) int64) {
	refs := u.rawOwnerReferences()
	copied := false
	for i := range refs {
		ref, ok := refs[i].(map[string]interface{})
		if !ok {
			continue // not an owner reference: validation refuses it
		}
		key := keyOf(i, extractOwnerReference(ref))
		stored, found := ref["hashKey"]
		if key == 0 && !found || key != 0 && stored == key {
			continue
		}
		if !copied {
			refs, copied = slices.Clone(refs), true
		}
		changed := make(map[string]interface{}, len(ref)+1)
		for name, value := range ref {
			changed[name] = value
		}
		if key == 0 {
			delete(changed, "hashKey")
		} else {
			changed["hashKey"] = key
		}
		refs[i] = changed
	}
	if copied {
		u.Object["metadata"].(map[string]interface{})["ownerReferences"] = refs
	}
}

func (u *Unstructured) rawOwnerReferences() []interface{} {
	metadata, _ := u.Object["metadata"].(map[string]interface{})
	refs, _ := metadata["ownerReferences"].([]interface{})
	return refs
}

func ownerUID(ref map[string]interface{}) types.UID {
	uid, _ := ref["uid"].(string)
	return types.UID(uid)
}
