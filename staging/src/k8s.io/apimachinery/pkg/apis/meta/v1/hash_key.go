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

import (
	"slices"

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/utils/ptr"
)

// GetHashKey returns the key that meta carries, or nil. It is for copies of metadata: to read an
// object's key, call HashKeyOf.
func (meta *ObjectMeta) GetHashKey() *int64 { return meta.HashKey }

// ClearHashKeys removes the hash keys from meta and its owner references, and returns
// whether there was any. It copies owner references before it changes them, since
// another object may share them.
func (meta *ObjectMeta) ClearHashKeys() bool {
	had := meta.HashKey != nil
	meta.HashKey = nil
	if slices.ContainsFunc(meta.OwnerReferences, func(ref OwnerReference) bool { return ref.HashKey != nil }) {
		had = true
		meta.OwnerReferences = slices.Clone(meta.OwnerReferences)
		for i := range meta.OwnerReferences {
			meta.OwnerReferences[i].HashKey = nil
		}
	}
	return had
}

// FillHashKeys sets the hash keys of meta and of its owner references to those that follow
// from their UIDs. What has no UID has no key. It copies owner references before it changes
// them, since another object may share them.
func (meta *ObjectMeta) FillHashKeys() {
	if meta.UID != "" {
		meta.HashKey = ptr.To(hashkey.OfUID(meta.UID))
	}
	meta.OwnerReferences = slices.Clone(meta.OwnerReferences)
	for i := range meta.OwnerReferences {
		if ref := &meta.OwnerReferences[i]; ref.UID != "" {
			ref.HashKey = ptr.To(hashkey.OfUID(ref.UID))
		}
	}
}

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

// HashKeyOf returns the hash key of obj, in [0, MaxInt64]: the one that follows from its UID.
// A key that obj carries does not count.
func HashKeyOf(obj Object) int64 {
	return hashkey.OfUID(obj.GetUID())
}

// HashKeyOfOwner returns the hash key of the object that ref refers to, in [0, MaxInt64]: the
// one that follows from its UID. A key that ref carries does not count.
func HashKeyOfOwner(ref *OwnerReference) int64 {
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

// resetHashKey makes meta carry the key that existingMeta carries, if both have the field.
func resetHashKey(meta, existingMeta Object) {
	to, ok := meta.(*ObjectMeta)
	if !ok {
		return
	}
	if from, ok := existingMeta.(interface{ GetHashKey() *int64 }); ok {
		to.HashKey = from.GetHashKey()
	}
}
