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

package bootstrappolicy

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

// ringVerbs returns, by the name of the role, the sorted verbs that its rules allow on a
// resource of sharding.k8s.io.
func ringVerbs(roles []rbacv1.ClusterRole, resource string) map[string]string {
	verbs := map[string]string{}
	for _, role := range roles {
		for _, rule := range role.Rules {
			if slices.Contains(rule.APIGroups, shardingGroup) && slices.Contains(rule.Resources, resource) {
				verbs[role.Name] = strings.Join(slices.Sorted(slices.Values(rule.Verbs)), " ")
			}
		}
	}
	return verbs
}

func TestRingRules(t *testing.T) {
	const role = "system:kube-controller-manager"
	for resource, want := range map[string]string{
		"controllerinstances":        "create delete get list patch update watch",
		"controllerinstances/status": "get patch update",
	} {
		got := ringVerbs(append(ClusterRoles(), ControllerRoles()...), resource)
		if got[role] != want {
			t.Errorf("%s may %q %s, want %q", role, got[role], resource, want)
		}
		if len(got) != 1 {
			t.Errorf("roles with rules for %s: %v, want %s alone", resource, got, role)
		}
	}
}

func TestRingRulesGateOff(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, genericfeatures.ControllerRing, false)
	for _, resource := range []string{"controllerinstances", "controllerinstances/status"} {
		if got := ringVerbs(ClusterRoles(), resource); len(got) != 0 {
			t.Errorf("roles with rules for %s: %v, want none", resource, got)
		}
	}
}
