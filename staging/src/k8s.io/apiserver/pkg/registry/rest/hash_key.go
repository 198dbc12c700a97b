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
)

// StampHashKeys sets metadata.hashKey and the hashKey of each owner reference to the key
// that follows from the UID beside it, whatever was there before. It removes a key without a
// UID, and every key if the feature gate ControllerRing is off. Every write passes through
// it (BeforeCreate, BeforeUpdate), so no client can choose a key.
func StampHashKeys(obj metav1.Object) {
	setHashKey(obj, hashKeyFor(obj.GetUID()))
	setOwnerHashKeys(obj, hashKeyFor)
}

// AlignHashKeys prepares newObj, as a client sent it, for comparison with liveObj, the
// object that it updates. For the UIDs of liveObj, newObj gets the keys that liveObj holds;
// for all others, the keys that StampHashKeys would set. Field management, admission and
// no-op detection then see a difference only where the client made one, even if the client
// knows no keys, or a server without keys wrote liveObj. Objects without metadata stay as
// they are.
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
	refs := live.GetOwnerReferences()
	setOwnerHashKeys(obj, func(uid types.UID) int64 {
		for i := range refs {
			if refs[i].UID == uid {
				return refs[i].HashKey
			}
		}
		return hashKeyFor(uid)
	})
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

// setOwnerHashKeys sets the key of each owner reference of obj to what keyOf returns for its
// UID. Another object may share the slice, so it is copied before a key changes, and only
// then.
func setOwnerHashKeys(obj metav1.Object, keyOf func(types.UID) int64) {
	if keyed, ok := obj.(interface{ SetOwnerHashKeys(func(types.UID) int64) }); ok {
		keyed.SetOwnerHashKeys(keyOf)
		return
	}
	refs := obj.GetOwnerReferences()
	copied := false
	for i := range refs {
		key := keyOf(refs[i].UID)
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
