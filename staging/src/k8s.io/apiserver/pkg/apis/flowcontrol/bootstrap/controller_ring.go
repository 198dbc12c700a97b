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

// The flow schemas of the ring give requests for the registry of controller instances the
// priority of leader election, which the ring replaces. An instance whose renewals queue
// behind the work of controllers, or behind lists and watches of the registry, would lose its
// record, and its range with it. So what may renew has a flow of its own.
var (
	flowSchemaControllerRing = newControllerRingSchema("system-controller-ring", "controllerinstances",
		"get", "list", "watch", "create", "update", "patch", "delete")
	flowSchemaControllerRingRenewals = newControllerRingSchema("system-controller-ring-renewals", "controllerinstances/status",
		"update", "patch")
)

func newControllerRingSchema(name, resource string, verbs ...string) *flowcontrol.FlowSchema {
	return newFlowSchema(
		name, "leader-election", 100,
		flowcontrol.FlowDistinguisherMethodByUserType,
		flowcontrol.PolicyRulesWithSubjects{
			Subjects: append(
				users(user.KubeControllerManager),
				kubeSystemServiceAccount(flowcontrol.NameAll)...),
			ResourceRules: []flowcontrol.ResourcePolicyRule{
				resourceRule(verbs, []string{shardingv1alpha1.GroupName}, []string{resource}, nil, true),
			},
		},
	)
}

// WithControllerRing returns schemas and, if the feature gate ControllerRing is on, the
// suggested flow schemas of the ring.
func WithControllerRing(schemas []*flowcontrol.FlowSchema) []*flowcontrol.FlowSchema {
	if !utilfeature.DefaultFeatureGate.Enabled(features.ControllerRing) {
		return schemas
	}
	return append(slices.Clip(schemas), flowSchemaControllerRing, flowSchemaControllerRingRenewals)
}
