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
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/sharding"
)

func TestKeyOfNamespaceIsThatOfItsObjects(t *testing.T) {
	namespace := &Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", UID: "namespace"}}
	pod := &Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "team", UID: "pod"}}
	want, found, err := sharding.KeyPathNamespace.KeyOf(pod)
	if err != nil || !found {
		t.Fatalf("a pod has no key of its namespace: %t, %v", found, err)
	}
	if got, found, err := sharding.KeyPathNamespace.KeyOf(namespace); err != nil || !found || got != want {
		t.Errorf("the namespace has key %x, %t, %v; its pod has %x", got, found, err, want)
	}
	if got, found, err := sharding.KeyPathNamespace.KeyOf(&Node{ObjectMeta: metav1.ObjectMeta{Name: "team"}}); err != nil || found {
		t.Errorf("a node has a namespace's key: %x, %v", got, err)
	}
}

func TestKeyOfClaim(t *testing.T) {
	claimed := &PersistentVolume{Spec: PersistentVolumeSpec{ClaimRef: &ObjectReference{UID: "claim"}}}
	if got, found, err := sharding.KeyPathClaim.KeyOf(claimed); err != nil || !found || got != hashkey.OfUID("claim") {
		t.Errorf("claimed: %x, %t, %v", got, found, err)
	}
	preBound := &PersistentVolume{Spec: PersistentVolumeSpec{ClaimRef: &ObjectReference{Name: "claim"}}}
	for name, volume := range map[string]*PersistentVolume{"pre-bound": preBound, "free": {}} {
		if got, found, err := sharding.KeyPathClaim.KeyOf(volume); err != nil || found {
			t.Errorf("%s: %x, %t, %v", name, got, found, err)
		}
	}
}
