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

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/controllerring"
	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/ring/fence"
	rbacv1helpers "k8s.io/kubernetes/pkg/apis/rbac/v1"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
)

const shardingGroup = "sharding.k8s.io"

// addRingRules lets kube-controller-manager take part in rings: it keeps the records of its
// instances, and as a donor writes to those of receivers. It does so under its own identity.
// Its ring controllers, which may have identities of their own, write in the name of those
// instances. The garbage collector, which removes finalizers that it has put on a record for a
// delete in the foreground, and the migrator of storage versions write objects of any resource; so
// they may steer any ring. Who may look at a process's status may look at its part in the rings.
func addRingRules(roles []rbacv1.ClusterRole) {
	if !utilfeature.DefaultFeatureGate.Enabled(genericfeatures.ControllerRing) {
		return
	}
	for i := range roles {
		role := &roles[i]
		if role.Name == "system:kube-controller-manager" {
			role.Rules = append(role.Rules,
				rbacv1helpers.NewRule("get", "list", "watch", "create", "update", "patch", "delete").Groups(shardingGroup).Resources("controllerinstances").RuleOrDie(),
				rbacv1helpers.NewRule("get", "update", "patch").Groups(shardingGroup).Resources("controllerinstances/status").RuleOrDie(),
			)
		}
		if role.Name == "system:monitoring" {
			role.Rules = append(role.Rules, rbacv1helpers.NewRule("get").URLs("/ringz").RuleOrDie())
		}
		if role.Name == saRolePrefix+"generic-garbage-collector" || role.Name == saRolePrefix+"storage-version-migrator-controller" {
			role.Rules = append(role.Rules, rbacv1helpers.NewRule(controllerring.SteerVerb).Groups(shardingGroup).Resources(fence.Resource).RuleOrDie())
		}
		for _, ring := range catalogue.Rings() {
			if role.Name == "system:kube-controller-manager" || slices.ContainsFunc(ring.Controllers, func(c catalogue.Controller) bool { return role.Name == saRolePrefix+c.ServiceAccount }) {
				role.Rules = append(role.Rules, rbacv1helpers.NewRule(fence.Verb).Groups(shardingGroup).Resources(fence.Resource).Names(ring.Name).RuleOrDie())
			}
		}
	}
}
