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

package controller

import (
	"encoding/json"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func TestAdoptionPatchCarriesTheOwnersHashKey(t *testing.T) {
	kind := v1.SchemeGroupVersion.WithKind("ReplicationController")
	const uid = types.UID("a0000000-0000-4000-8000-000000000001")
	for name, owner := range map[string]*v1.ReplicationController{
		"stored":  {ObjectMeta: metav1.ObjectMeta{Name: "owner", UID: uid, HashKey: ptr.To(hashkey.OfUID(uid))}},
		"derived": {ObjectMeta: metav1.ObjectMeta{Name: "owner", UID: uid}},
	} {
		data, err := ownerRefControllerPatch(owner, kind, "dependent")
		if err != nil {
			t.Fatal(err)
		}
		var patch v1.Pod
		if err := json.Unmarshal(data, &patch); err != nil {
			t.Fatal(err)
		}
		// The same reference that a new dependent gets.
		if got, want := patch.OwnerReferences[0], *metav1.NewControllerRef(owner, kind); ptr.Deref(got.HashKey, 0) != hashkey.OfUID(uid) || *got.HashKey != *want.HashKey || got.UID != want.UID {
			t.Errorf("%s: the patch adds %v, want %v", name, got, want)
		}
	}
}
