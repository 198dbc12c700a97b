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
	CronJobController               = "cronjob-controller"
	DaemonSetController             = "daemonset-controller"
	DeploymentController            = "deployment-controller"
	JobController                   = "job-controller"
	ReplicaSetController            = "replicaset-controller"
	ReplicationControllerController = "replicationcontroller-controller"
	TTLAfterFinishedController      = "ttl-after-finished-controller"
)

var (
	controllerRevisions    = schema.GroupResource{Group: "apps", Resource: "controllerrevisions"}
	cronJobs               = schema.GroupResource{Group: "batch", Resource: "cronjobs"}
	daemonSets             = schema.GroupResource{Group: "apps", Resource: "daemonsets"}
	deployments            = schema.GroupResource{Group: "apps", Resource: "deployments"}
	jobs                   = schema.GroupResource{Group: "batch", Resource: "jobs"}
	nodes                  = schema.GroupResource{Resource: "nodes"}
	podGroups              = schema.GroupResource{Group: "scheduling.k8s.io", Resource: "podgroups"}
	pods                   = schema.GroupResource{Resource: "pods"}
	replicaSets            = schema.GroupResource{Group: "apps", Resource: "replicasets"}
	replicationControllers = schema.GroupResource{Resource: "replicationcontrollers"}
	workloads              = schema.GroupResource{Group: "scheduling.k8s.io", Resource: "workloads"}
)

// workloadWithJob is the feature gate under which Jobs have Workloads and PodGroups.
const workloadWithJob = "WorkloadWithJob"

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
		}, {
			Name:           JobController,
			ServiceAccount: "job-controller",
			Workloads:      jobs,
			Reads: []Read{
				{Resource: jobs, Path: sharding.HashKeyPath},
				{Resource: pods, Path: sharding.ControllerHashKeyPath},
				{Resource: workloads, Path: sharding.ControllerHashKeyPath, Feature: workloadWithJob},
				{Resource: podGroups, Path: sharding.ControllerHashKeyPath, Feature: workloadWithJob},
			},
			Writes: []Write{
				{Resource: jobs, By: shardingv1alpha1.GoverningKeyOwn},
				// A pod without a Job may still have its finalizer.
				{Resource: pods, By: shardingv1alpha1.GoverningKeyHome},
				{Resource: Any, By: shardingv1alpha1.GoverningKeyController},
			},
		}, {
			Name:           CronJobController,
			ServiceAccount: "cronjob-controller",
			Workloads:      cronJobs,
			Reads: []Read{
				{Resource: cronJobs, Path: sharding.HashKeyPath},
				// Most Jobs have no controller. By home key each is in one range, not in all.
				{Resource: jobs, Path: sharding.HomeHashKeyPath},
			},
			Writes: []Write{
				{Resource: cronJobs, By: shardingv1alpha1.GoverningKeyOwn},
				{Resource: Any, By: shardingv1alpha1.GoverningKeyController},
			},
		}, {
			Name:           TTLAfterFinishedController,
			ServiceAccount: "ttl-after-finished-controller",
			Workloads:      jobs,
			Reads:          []Read{{Resource: jobs, Path: sharding.HashKeyPath}},
			Writes:         []Write{{Resource: jobs, By: shardingv1alpha1.GoverningKeyOwn}},
		}, {
			Name:           DaemonSetController,
			ServiceAccount: "daemon-set-controller",
			Workloads:      daemonSets,
			Reads: []Read{
				{Resource: daemonSets, Path: sharding.HashKeyPath},
				{Resource: pods, Path: sharding.ControllerHashKeyPath},
				{Resource: controllerRevisions, Path: sharding.ControllerHashKeyPath},
				{Resource: nodes, Path: Whole},
			},
			Writes: []Write{
				{Resource: daemonSets, By: shardingv1alpha1.GoverningKeyOwn},
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
