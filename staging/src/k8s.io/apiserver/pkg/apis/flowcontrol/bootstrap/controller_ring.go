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

// flowSchemaControllerRing gives requests for the registry of controller instances the
// priority of leader election, which the ring replaces. An instance whose heartbeats queue
// behind the work of controllers would lose its record, and its range with it.
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

// WithControllerRing returns schemas and, if the feature gate ControllerRing is on, the
// suggested flow schema of the ring.
func WithControllerRing(schemas []*flowcontrol.FlowSchema) []*flowcontrol.FlowSchema {
	if !utilfeature.DefaultFeatureGate.Enabled(features.ControllerRing) {
		return schemas
	}
	return append(slices.Clip(schemas), flowSchemaControllerRing)
}
