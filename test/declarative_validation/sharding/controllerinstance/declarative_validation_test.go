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

package controllerinstance

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/apis/sharding"
	_ "k8s.io/kubernetes/pkg/apis/sharding/install"
	registry "k8s.io/kubernetes/pkg/registry/sharding/controllerinstance"
	"k8s.io/kubernetes/test/declarative_validation/meta"
)

func TestDeclarativeValidate(t *testing.T) {
	for _, apiVersion := range apiVersions {
		t.Run(apiVersion, func(t *testing.T) {
			info := &genericapirequest.RequestInfo{
				APIPrefix:         "apis",
				APIGroup:          "sharding.k8s.io",
				APIVersion:        apiVersion,
				Resource:          "controllerinstances",
				IsResourceRequest: true,
			}
			ctx := genericapirequest.WithRequestInfo(genericapirequest.NewDefaultContext(), info)

			info.Verb = "create"
			meta.RunObjectMetaTestCases(t, ctx, validInstance(), registry.Strategy)

			info.Verb, info.Name = "update", validInstance().Name
			meta.RunObjectMetaUpdateTestCases(t, ctx, validInstance(), registry.Strategy)
		})
	}
}

func validInstance() *sharding.ControllerInstance {
	return &sharding.ControllerInstance{
		ObjectMeta: metav1.ObjectMeta{Name: "instance1"},
		Spec: sharding.ControllerInstanceSpec{
			Ring:                 "test",
			HolderIdentity:       "host1",
			LeaseDurationSeconds: 6,
		},
	}
}
