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

package v1alpha1_test

import (
	"testing"

	"k8s.io/kubernetes/pkg/api/legacyscheme"
	apitesting "k8s.io/kubernetes/pkg/api/testing"
	"k8s.io/kubernetes/pkg/apis/sharding"
	"k8s.io/kubernetes/pkg/apis/sharding/v1alpha1"
	"k8s.io/kubernetes/pkg/registry/sharding/controllerinstance"
)

func TestSelectableFields(t *testing.T) {
	_, selectable, err := controllerinstance.GetAttrs(&sharding.ControllerInstance{})
	if err != nil {
		t.Fatal(err)
	}
	apitesting.TestSelectableFieldLabelConversionsOfKind(t, v1alpha1.SchemeGroupVersion.String(), "ControllerInstance", selectable, nil)
	if len(selectable) != 2 {
		t.Errorf("selectable fields: %v, want metadata.name and spec.ring", selectable)
	}

	for _, label := range []string{"spec.holderIdentity", "metadata.namespace", "status.phase"} {
		if _, _, err := legacyscheme.Scheme.ConvertFieldLabel(v1alpha1.SchemeGroupVersion.WithKind("ControllerInstance"), label, "x"); err == nil {
			t.Errorf("a selector may name %s, want an error", label)
		}
	}
}
