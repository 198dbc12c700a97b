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

package controlplane

import (
	"testing"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
)

// The registry of controller instances is the only version served by default that upstream
// does not serve.
func TestWithControllerRing(t *testing.T) {
	registry := shardingv1alpha1.SchemeGroupVersion
	before, after := DefaultAPIResourceConfigSource(), WithControllerRing(DefaultAPIResourceConfigSource())
	if !after.ResourceEnabled(registry.WithResource("controllerinstances")) {
		t.Errorf("%s is not served", registry)
	}
	for version, enabled := range after.GroupVersionConfigs {
		if version != registry && enabled != before.GroupVersionConfigs[version] {
			t.Errorf("%s is served: %v", version, enabled)
		}
	}
}
