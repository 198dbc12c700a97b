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

package catalogue

import (
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/sharding"
)

// The names of the rings.
const (
	WorkloadsRing = "workloads"
)

// The names of the controllers.
const (
	DeploymentController            = "deployment-controller"
	ReplicaSetController            = "replicaset-controller"
	ReplicationControllerController = "replicationcontroller-controller"
)

var (
	deployments            = schema.GroupResource{Group: "apps", Resource: "deployments"}
	pods                   = schema.GroupResource{Resource: "pods"}
	replicaSets            = schema.GroupResource{Group: "apps", Resource: "replicasets"}
	replicationControllers = schema.GroupResource{Resource: "replicationcontrollers"}
)

// Rings returns the catalogue. It must not be changed.
func Rings() []Ring { return rings }

var rings = []Ring{
	{
		Name: WorkloadsRing,
		Controllers: []Controller{{
			Name:           DeploymentController,
			ServiceAccount: "deployment-controller",
			Workloads:      deployments,
			Reads: []Read{
				{Resource: deployments, Path: sharding.HashKeyPath},
				{Resource: replicaSets, Path: sharding.ControllerHashKeyPath},
			},
			Writes: []Write{
				{Resource: deployments, By: shardingv1alpha1.GoverningKeyOwn},
				{Resource: Any, By: shardingv1alpha1.GoverningKeyController},
			},
		}, {
			Name:           ReplicaSetController,
			ServiceAccount: "replicaset-controller",
			Workloads:      replicaSets,
			Reads: []Read{
				{Resource: replicaSets, Path: sharding.HashKeyPath},
				{Resource: pods, Path: sharding.ControllerHashKeyPath},
			},
			Writes: []Write{
				{Resource: replicaSets, By: shardingv1alpha1.GoverningKeyOwn},
				{Resource: Any, By: shardingv1alpha1.GoverningKeyController},
			},
		}, {
			Name:           ReplicationControllerController,
			ServiceAccount: "replication-controller",
			Workloads:      replicationControllers,
			Reads: []Read{
				{Resource: replicationControllers, Path: sharding.HashKeyPath},
				{Resource: pods, Path: sharding.ControllerHashKeyPath},
			},
			Writes: []Write{
				{Resource: replicationControllers, By: shardingv1alpha1.GoverningKeyOwn},
				{Resource: Any, By: shardingv1alpha1.GoverningKeyController},
			},
		}},
	},
}

// RingNamed returns the ring of that name, and whether the catalogue has it.
func RingNamed(name string) (Ring, bool) {
	for _, r := range rings {
		if r.Name == name {
			return r, true
		}
	}
	return Ring{}, false
}
