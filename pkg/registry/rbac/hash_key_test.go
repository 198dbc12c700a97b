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

package rbac

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/kubernetes/pkg/apis/core/helper"
	"k8s.io/kubernetes/pkg/apis/rbac"
)

// The server adds keys to a role that a stock server stored. That is not a change by the
// sender of the update: the garbage collector must not need the right to escalate.
func TestIsOnlyMutatingGCFieldsIgnoresHashKeys(t *testing.T) {
	old := &rbac.Role{ObjectMeta: metav1.ObjectMeta{Name: "role", UID: "role", OwnerReferences: []metav1.OwnerReference{{UID: "gone"}, {UID: "there"}}}}
	collected := old.DeepCopy()
	collected.HashKey = hashkey.OfUID("role")
	collected.OwnerReferences = []metav1.OwnerReference{{UID: "there", HashKey: hashkey.OfUID("there")}}
	if !IsOnlyMutatingGCFields(collected, old, helper.Semantic) {
		t.Error("the removal of an owner is taken for another change")
	}
	collected.Rules = []rbac.PolicyRule{{Verbs: []string{"*"}}}
	if IsOnlyMutatingGCFields(collected, old, helper.Semantic) {
		t.Error("a new rule is taken for garbage collection")
	}
}
