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

package bootstrap

import (
	"slices"

	flowcontrol "k8s.io/api/flowcontrol/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// flowSchemaControllerRing gives the registry of controller instances the priority
// of leader election, of which it takes the place: an instance whose heartbeats
// queue behind the work of controllers loses its record, and what it works on with it.
var flowSchemaControllerRing = newFlowSchema(
	"system-controller-ring", "leader-election", 100,
	flowcontrol.FlowDistinguisherMethodByUserType,
	flowcontrol.PolicyRulesWithSubjects{
		Subjects: append(
			users(user.KubeControllerManager),
			kubeSystemServiceAccount(flowcontrol.NameAll)...),
		ResourceRules: []flowcontrol.ResourcePolicyRule{
			resourceRule(
				[]string{"get", "list", "watch", "create", "update", "patch", "delete"},
				[]string{shardingv1alpha1.GroupName},
				[]string{"controllerinstances", "controllerinstances/status"},
				nil,
				true),
		},
	},
)

// WithControllerRing adds what the rings of controllers need to the suggested flow
// schemas, where the gate ControllerRing is on.
func WithControllerRing(suggested []*flowcontrol.FlowSchema) []*flowcontrol.FlowSchema {
	if !utilfeature.DefaultFeatureGate.Enabled(features.ControllerRing) {
		return suggested
	}
	return append(slices.Clip(suggested), flowSchemaControllerRing)
}
