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

package history

import (
	"encoding/json"
	"testing"

	apps "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

func TestAdoptionPatchCarriesTheOwnersHashKey(t *testing.T) {
	client := fake.NewClientset()
	var patched apps.ControllerRevision
	client.PrependReactor("patch", "controllerrevisions", func(action core.Action) (bool, runtime.Object, error) {
		return true, &patched, json.Unmarshal(action.(core.PatchAction).GetPatch(), &patched)
	})
	parent := &apps.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "parent", Namespace: "ns", UID: "parent"}}
	orphan := &apps.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: "orphan", Namespace: "ns", UID: "orphan"}}
	if _, err := NewHistory(client, nil, nil).AdoptControllerRevision(parent, apps.SchemeGroupVersion.WithKind("StatefulSet"), orphan); err != nil {
		t.Fatal(err)
	}
	if len(patched.OwnerReferences) != 1 || ptr.Deref(patched.OwnerReferences[0].HashKey, 0) != hashkey.OfUID("parent") {
		t.Errorf("the patch adds %v", patched.OwnerReferences)
	}
}
