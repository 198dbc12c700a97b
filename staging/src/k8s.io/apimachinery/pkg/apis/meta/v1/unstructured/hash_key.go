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
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
)

// ClearHashKeys removes the hash keys from the object's metadata and its owner references, and
// returns whether there was any. All other fields stay, unknown ones too. Another object may
// share what lies in the metadata, so that is copied before it changes; the metadata itself is
// not.
func (u *Unstructured) ClearHashKeys() bool {
	metadata, _ := u.Object["metadata"].(map[string]interface{})
	_, had := metadata["hashKey"]
	if had {
		delete(metadata, "hashKey")
	}
	refs, _ := metadata["ownerReferences"].([]interface{})
	if slices.ContainsFunc(refs, carriesHashKey) {
		had = true
		refs = slices.Clone(refs)
		for i := range refs {
			if carriesHashKey(refs[i]) {
				ref := maps.Clone(refs[i].(map[string]interface{}))
				delete(ref, "hashKey")
				refs[i] = ref
			}
		}
		metadata["ownerReferences"] = refs
	}
	return had
}

func carriesHashKey(ref interface{}) bool {
	fields, _ := ref.(map[string]interface{})
	_, carries := fields["hashKey"]
	return carries
}

// FillHashKeys sets the hash keys of the object and of its owner references to those that
// follow from their UIDs. What has no UID has no key. Another object may share all that lies
// below u, so what changes is copied first.
func (u *Unstructured) FillHashKeys() {
	metadata, ok := u.Object["metadata"].(map[string]interface{})
	if !ok {
		return
	}
	metadata = withHashKey(metadata)
	if refs, ok := metadata["ownerReferences"].([]interface{}); ok {
		refs = slices.Clone(refs)
		for i := range refs {
			if ref, ok := refs[i].(map[string]interface{}); ok {
				refs[i] = withHashKey(ref)
			}
		}
		metadata["ownerReferences"] = refs
	}
	u.Object = maps.Clone(u.Object)
	u.Object["metadata"] = metadata
}

// withHashKey returns a copy of fields, those of metadata or of an owner reference, with the
// hash key that follows from the UID, if there is one.
func withHashKey(fields map[string]interface{}) map[string]interface{} {
	fields = maps.Clone(fields)
	if uid, _ := fields["uid"].(string); uid != "" {
		fields["hashKey"] = hashkey.OfUID(types.UID(uid))
	}
	return fields
}

// hashKey returns the key that fields, those of an owner reference, carry, or nil.
func hashKey(fields map[string]interface{}) *int64 {
	if key, ok := fields["hashKey"].(int64); ok {
		return &key
	}
	return nil
}

// GetControllerHashKey returns the hash key of the object's controller, and whether the
// object has one. metav1.HashKeyOfController calls it to avoid the copies that
// GetOwnerReferences makes.
func (u *Unstructured) GetControllerHashKey() (int64, bool) {
	metadata, _ := u.Object["metadata"].(map[string]interface{})
	refs, _ := metadata["ownerReferences"].([]interface{})
	for _, item := range refs {
		ref, _ := item.(map[string]interface{})
		if controller, _ := ref["controller"].(bool); controller {
			uid, _ := ref["uid"].(string)
			return hashkey.OfUID(types.UID(uid)), true
		}
	}
	return 0, false
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
