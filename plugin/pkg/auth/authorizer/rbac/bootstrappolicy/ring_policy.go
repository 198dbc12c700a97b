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
	rbacv1 "k8s.io/api/rbac/v1"
	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	rbacv1helpers "k8s.io/kubernetes/pkg/apis/rbac/v1"
)

const shardingGroup = "sharding.k8s.io"

// addRingRules lets kube-controller-manager take part in rings: it keeps the records of its
// instances, and as a donor writes to those of receivers. It does so under its own identity,
// not under those of its controllers.
func addRingRules(roles []rbacv1.ClusterRole) {
	if !utilfeature.DefaultFeatureGate.Enabled(genericfeatures.ControllerRing) {
		return
	}
	for i := range roles {
		if roles[i].Name == "system:kube-controller-manager" {
			roles[i].Rules = append(roles[i].Rules,
				rbacv1helpers.NewRule("get", "list", "watch", "create", "update", "patch", "delete").Groups(shardingGroup).Resources("controllerinstances").RuleOrDie(),
				rbacv1helpers.NewRule("get", "update", "patch").Groups(shardingGroup).Resources("controllerinstances/status").RuleOrDie(),
			)
		}
	}
}
