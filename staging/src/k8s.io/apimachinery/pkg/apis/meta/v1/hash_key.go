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

package v1

import "k8s.io/apimachinery/pkg/hashkey"

// GetHashKey returns the key as it was stored or sent, or 0 if there is none. To read
// an object's key, call HashKeyOf, which derives a missing one.
func (meta *ObjectMeta) GetHashKey() int64 { return meta.HashKey }

// SetHashKey sets the key to store or send. The API server overrides it: it derives the
// key of everything that it writes from the UID.
func (meta *ObjectMeta) SetHashKey(key int64) { meta.HashKey = key }

// GetControllerHashKey returns the hash key of the object's controller, and whether
// it has one.
func (meta *ObjectMeta) GetControllerHashKey() (int64, bool) {
	for i := range meta.OwnerReferences {
		if ref := &meta.OwnerReferences[i]; ref.Controller != nil && *ref.Controller {
			return HashKeyOfOwner(ref), true
		}
	}
	return 0, false
}

// GetNamespaceHashKey returns the hash key of the namespace that the object is in, and
// whether it is in one. The type Namespace has a method of that name of its own.
func (meta *ObjectMeta) GetNamespaceHashKey() (int64, bool) {
	if meta.Namespace == "" {
		return 0, false
	}
	return hashkey.OfNamespace(meta.Namespace), true
}

// HashKeyOf returns the hash key of obj, in [0, MaxInt64]: the one that the API server
// set, or, if a server without hash keys wrote the object, the one that follows from the
// UID. Every reader of metadata.hashKey has to do the same.
func HashKeyOf(obj Object) int64 {
	if keyed, ok := obj.(interface{ GetHashKey() int64 }); ok {
		if key := keyed.GetHashKey(); key != 0 {
			return key
		}
	}
	return hashkey.OfUID(obj.GetUID())
}

// HashKeyOfOwner returns the hash key of the object that ref refers to, in
// [0, MaxInt64]. If ref does not carry the key, it is derived from the UID.
func HashKeyOfOwner(ref *OwnerReference) int64 {
	if ref.HashKey != 0 {
		return ref.HashKey
	}
	return hashkey.OfUID(ref.UID)
}

// ControllerHashKeyed is an object that knows its controller's key. Every type that
// embeds ObjectMeta implements it.
type ControllerHashKeyed interface {
	// GetControllerHashKey returns the hash key of the object's controller, and
	// whether it has one.
	GetControllerHashKey() (int64, bool)
}

// HashKeyOfController returns the hash key of obj's controller, and whether obj has a
// controller.
func HashKeyOfController(obj Object) (int64, bool) {
	if keyed, ok := obj.(ControllerHashKeyed); ok {
		return keyed.GetControllerHashKey()
	}
	ref := GetControllerOfNoCopy(obj)
	if ref == nil {
		return 0, false
	}
	return HashKeyOfOwner(ref), true
}

// resetHashKey sets the hash key of meta to that of existingMeta if both have the field.
func resetHashKey(meta, existingMeta Object) {
	to, ok := meta.(interface{ SetHashKey(int64) })
	if !ok {
		return
	}
	if from, ok := existingMeta.(interface{ GetHashKey() int64 }); ok {
		to.SetHashKey(from.GetHashKey())
	}
}
