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

package generated

import "testing"

func TestIs(t *testing.T) {
	const staging = "staging/src/k8s.io/"
	for file, want := range map[string]bool{
		"pkg/apis/apps/zz_generated.deepcopy.go":                                            true,
		"pkg/apis/apps/types.go":                                                            false,
		"pkg/generated/openapi/zz_generated.openapi.go":                                     true,
		"pkg/generated/openapi/cmd/models-schema/main.go":                                   false,
		"test/declarative_validation/apps/replicaset/zz_generated.validations.main_test.go": true,
		staging + "api/apps/v1/generated.pb.go":                                             true,
		staging + "api/apps/v1/generated.proto":                                             true,
		staging + "api/apps/v1/types_swagger_doc_generated.go":                              true,
		staging + "api/testdata/HEAD/apps.v1.ReplicaSet.json":                               true,
		staging + "api/testdata/v1.33.0/apps.v1.ReplicaSet.json":                            false,
		staging + "api/testdata/v1.33.0/apps.v1.ReplicaSet.after_roundtrip.pb":              true,
		staging + "client-go/applyconfigurations/doc.go":                                    false,
		staging + "client-go/applyconfigurations/meta/v1/objectmeta.go":                     true,
		staging + "client-go/applyconfigurations/meta/v1/unstructured.go":                   false,
		staging + "client-go/informers/sharding/v1alpha1/interface.go":                      true,
		staging + "client-go/kubernetes/fake/clientset_generated_test.go":                   false,
		staging + "client-go/kubernetes/fake/doc.go":                                        true,
		staging + "client-go/kubernetes/typed/core/v1/fake/fake_pod_expansion.go":           false,
		staging + "client-go/kubernetes/typed/sharding/v1alpha1/generated_expansion.go":     true,
		staging + "client-go/listers/apps/v1/expansion_generated.go":                        true,
		staging + "client-go/listers/apps/v1/replicaset_expansion.go":                       false,
		staging + "client-go/listers/rbac/OWNERS":                                           false,
		staging + "client-go/tools/cache/reflector.go":                                      false,
		"api/discovery/apis.json":                                                           true,
		"api/openapi-spec/README.md":                                                        false,
		"api/openapi-spec/swagger.json":                                                     true,
		"api/openapi-spec/v3/.well-known__openid-configuration_openapi.json":                true,
		"test/compatibility_lifecycle/reference/OWNERS":                                     false,
		"test/compatibility_lifecycle/reference/versioned_feature_list.yaml":                true,
	} {
		if got := Is(file); got != want {
			t.Errorf("Is(%q) = %v, want %v", file, got, want)
		}
	}
}

func TestIsFixture(t *testing.T) {
	for file, want := range map[string]bool{
		"plugin/pkg/auth/authorizer/rbac/bootstrappolicy/testdata/cluster-roles.yaml": true,
		"plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go":                   false,
		"api/openapi-spec/swagger.json":                                               false,
		"pkg/apis/apps/zz_generated.deepcopy.go":                                      false,
	} {
		if got := IsFixture(file); got != want {
			t.Errorf("IsFixture(%q) = %v, want %v", file, got, want)
		}
	}
}
