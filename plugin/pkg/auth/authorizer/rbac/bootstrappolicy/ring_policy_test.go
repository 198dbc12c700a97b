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
	"maps"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

// ringVerbs returns, by the name of the role, the sorted verbs that its rules allow on a
// resource of sharding.k8s.io, and the names of the objects if not on all; rule by rule.
func ringVerbs(roles []rbacv1.ClusterRole, resource string) map[string]string {
	verbs := map[string]string{}
	for _, role := range roles {
		for _, rule := range role.Rules {
			if slices.Contains(rule.APIGroups, shardingGroup) && slices.Contains(rule.Resources, resource) {
				if verbs[role.Name] != "" {
					verbs[role.Name] += ", "
				}
				verbs[role.Name] += strings.Join(append(slices.Sorted(slices.Values(rule.Verbs)), rule.ResourceNames...), " ")
			}
		}
	}
	return verbs
}

func TestRingRules(t *testing.T) {
	const manager = "system:kube-controller-manager"
	for resource, want := range map[string]map[string]string{
		"controllerinstances":        {manager: "create delete get list patch update watch"},
		"controllerinstances/status": {manager: "get patch update"},
		"rings": {
			manager:                                "work workloads, work namespaces, work claims",
			"system:controller:cronjob-controller": "work workloads",
			"system:controller:daemon-set-controller":               "work workloads",
			"system:controller:deployment-controller":               "work workloads",
			"system:controller:disruption-controller":               "work namespaces",
			"system:controller:endpoint-controller":                 "work namespaces",
			"system:controller:endpointslice-controller":            "work namespaces",
			"system:controller:ephemeral-volume-controller":         "work namespaces",
			"system:controller:expand-controller":                   "work claims",
			"system:controller:generic-garbage-collector":           "steer",
			"system:controller:horizontal-pod-autoscaler":           "work namespaces",
			"system:controller:job-controller":                      "work workloads",
			"system:controller:pv-protection-controller":            "work claims",
			"system:controller:pvc-protection-controller":           "work namespaces",
			"system:controller:replicaset-controller":               "work workloads",
			"system:controller:replication-controller":              "work workloads",
			"system:controller:statefulset-controller":              "work namespaces",
			"system:controller:storage-version-migrator-controller": "steer",
			"system:controller:ttl-after-finished-controller":       "work workloads",
		},
	} {
		if got := ringVerbs(append(ClusterRoles(), ControllerRoles()...), resource); !maps.Equal(got, want) {
			t.Errorf("roles with rules for %s: %v, want %v", resource, got, want)
		}
	}
}

func TestWhoMayLookAtTheStatusMayLookAtTheRings(t *testing.T) {
	for _, on := range []bool{true, false} {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, genericfeatures.ControllerRing, on)
		var may []string
		for _, role := range append(ClusterRoles(), ControllerRoles()...) {
			for _, rule := range role.Rules {
				if slices.Contains(rule.NonResourceURLs, "/ringz") {
					may = append(may, role.Name+" "+strings.Join(rule.Verbs, ","))
				}
			}
		}
		want := []string{"system:monitoring get"}
		if !on {
			want = nil
		}
		if !slices.Equal(may, want) {
			t.Errorf("with the feature gate %v: %q, want %q", on, may, want)
		}
	}
}

func TestRingRulesGateOff(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, genericfeatures.ControllerRing, false)
	for _, resource := range []string{"controllerinstances", "controllerinstances/status", "rings"} {
		if got := ringVerbs(append(ClusterRoles(), ControllerRoles()...), resource); len(got) != 0 {
			t.Errorf("roles with rules for %s: %v, want none", resource, got)
		}
	}
}
