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

package rest

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/utils/ptr"
)

// StampHashKeys sets metadata.hashKey to the key that follows from the UID, or removes it if
// the feature gate ControllerRing is off. Keys of owner references are corrected but never
// added:
//
//   - A reference with a UID that old refers to has a key where old's reference has one,
//     whatever a client sent and whatever the feature gate is. So a write changes no reference
//     that its sender left alone, and admission plugins see no difference.
//   - A new reference has a key where the sender set one and the feature gate is on.
//
// Every key is the one that follows from its UID, so no client can choose a key. Every write
// passes through here (BeforeCreate, BeforeUpdate). old is nil for an object that is created.
func StampHashKeys(obj, old metav1.Object) {
	setHashKey(obj, hashKeyFor(obj.GetUID()))
	setOwnerHashKeys(obj, old)
}

// AlignHashKeys prepares newObj, as a client sent it, for comparison with liveObj, the
// object that it updates: newObj gets the key that liveObj holds, if it has the same UID, and
// owner keys as from StampHashKeys. Field management, admission and no-op detection then see
// a difference only where the client made one, even if the client knows no keys, or a server
// without keys wrote liveObj. Objects without metadata stay as they are.
func AlignHashKeys(newObj, liveObj runtime.Object) {
	obj, err := meta.Accessor(newObj)
	if err != nil {
		return // no metadata, no key
	}
	live, err := meta.Accessor(liveObj)
	if err != nil {
		return // no metadata, no key
	}
	uid := obj.GetUID()
	key := hashKeyFor(uid)
	if keyed, ok := live.(hashKeyed); ok && (len(uid) == 0 || uid == live.GetUID()) {
		key = keyed.GetHashKey()
	}
	setHashKey(obj, key)
	setOwnerHashKeys(obj, live)
}

// hashKeyFor returns the key to store beside uid, or 0 for none.
func hashKeyFor(uid types.UID) int64 {
	if len(uid) == 0 || !utilfeature.DefaultFeatureGate.Enabled(features.ControllerRing) {
		return 0
	}
	return hashkey.OfUID(uid)
}

// hashKeyed is a metav1.Object with the field metadata.hashKey. Objects without it stay as
// they are: their readers derive the key.
type hashKeyed interface {
	GetHashKey() int64
	SetHashKey(int64)
}

func setHashKey(obj metav1.Object, key int64) {
	if keyed, ok := obj.(hashKeyed); ok {
		keyed.SetHashKey(key)
	}
}

// setOwnerHashKeys gives each owner reference of obj its key. Another object may share the
// slice, so it is copied before a key changes, and only then.
func setOwnerHashKeys(obj, old metav1.Object) {
	var oldRefs []metav1.OwnerReference
	if old != nil {
		oldRefs = old.GetOwnerReferences()
	}
	if keyed, ok := obj.(ownerHashKeyed); ok {
		keyed.SetOwnerHashKeys(func(i int, ref metav1.OwnerReference) int64 {
			return ownerHashKey(i, ref, oldRefs)
		})
		return
	}
	refs := obj.GetOwnerReferences()
	copied := false
	for i := range refs {
		key := ownerHashKey(i, refs[i], oldRefs)
		if refs[i].HashKey == key {
			continue
		}
		if !copied {
			refs, copied = slices.Clone(refs), true
		}
		refs[i].HashKey = key
	}
	if copied {
		obj.SetOwnerReferences(refs)
	}
}

// ownerHashKeyed is a metav1.Object that keeps fields which OwnerReference does not have.
type ownerHashKeyed interface {
	SetOwnerHashKeys(keyOf func(i int, ref metav1.OwnerReference) int64)
}

// ownerHashKey returns the key to store in ref, the i-th reference of an object whose
// references were old until now; 0 for none.
func ownerHashKey(i int, ref metav1.OwnerReference, old []metav1.OwnerReference) int64 {
	if before := counterpart(i, ref, old); before != nil {
		if before.HashKey == 0 {
			return 0
		}
		return hashkey.OfUID(ref.UID)
	}
	if ref.HashKey == 0 {
		return 0
	}
	return hashKeyFor(ref.UID)
}

// counterpart returns the reference in old that ref, the i-th one now, has come from, or nil
// if none has its UID. Where several have, it prefers one that is otherwise equal, and then
// the one in the same place.
func counterpart(i int, ref metav1.OwnerReference, old []metav1.OwnerReference) *metav1.OwnerReference {
	var found *metav1.OwnerReference
	if i < len(old) && old[i].UID == ref.UID {
		if found = &old[i]; equalButKeys(ref, *found) {
			return found
		}
	}
	for j := range old {
		if old[j].UID != ref.UID {
			continue
		}
		if equalButKeys(ref, old[j]) {
			return &old[j]
		}
		if found == nil {
			found = &old[j]
		}
	}
	return found
}

func equalButKeys(a, b metav1.OwnerReference) bool {
	if !ptr.Equal(a.Controller, b.Controller) || !ptr.Equal(a.BlockOwnerDeletion, b.BlockOwnerDeletion) {
		return false
	}
	a.Controller, a.BlockOwnerDeletion, a.HashKey = b.Controller, b.BlockOwnerDeletion, b.HashKey
	return a == b
}
