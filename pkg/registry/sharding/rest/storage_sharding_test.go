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
	"testing"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/generic"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/apis/sharding"
	_ "k8s.io/kubernetes/pkg/apis/sharding/install"
	"k8s.io/kubernetes/pkg/registry/registrytest"
)

func TestNewRESTStorage(t *testing.T) {
	tests := map[string]struct {
		gate, enabled bool
		want          []string
	}{
		"served":            {gate: true, enabled: true, want: []string{"controllerinstances", "controllerinstances/status"}},
		"gate off":          {enabled: true},
		"version off":       {gate: true},
		"both switched off": {},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ControllerRing, test.gate)
			config := serverstorage.NewResourceConfig()
			if test.enabled {
				config.EnableVersions(shardingv1alpha1.SchemeGroupVersion)
			}
			storageConfig, _ := registrytest.NewEtcdStorageForResource(t, sharding.Resource("controllerinstances"))
			info, err := RESTStorageProvider{}.NewRESTStorage(config, generic.RESTOptions{StorageConfig: storageConfig, Decorator: generic.UndecoratedStorage, ResourcePrefix: "controllerinstances"})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for resource, storage := range info.VersionedResourcesStorageMap["v1alpha1"] {
				got = append(got, resource)
				t.Cleanup(storage.Destroy)
			}
			slices.Sort(got)
			if !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
			if _, ok := info.VersionedResourcesStorageMap["v1alpha1"]; ok && test.want == nil {
				t.Errorf("a version without resources is served")
			}
		})
	}
}
