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
	ClaimsRing     = "claims"
	NamespacesRing = "namespaces"
	WorkloadsRing  = "workloads"
)

// The names of the controllers.
const (
	CronJobController                         = "cronjob-controller"
	DaemonSetController                       = "daemonset-controller"
	DeploymentController                      = "deployment-controller"
	DisruptionController                      = "disruption-controller"
	EndpointSliceController                   = "endpointslice-controller"
	EndpointsController                       = "endpoints-controller"
	EphemeralVolumeController                 = "ephemeral-volume-controller"
	HorizontalPodAutoscalerController         = "horizontal-pod-autoscaler-controller"
	JobController                             = "job-controller"
	PersistentVolumeClaimProtectionController = "persistentvolumeclaim-protection-controller"
	PersistentVolumeExpanderController        = "persistentvolume-expander-controller"
	PersistentVolumeProtectionController      = "persistentvolume-protection-controller"
	ReplicaSetController                      = "replicaset-controller"
	ReplicationControllerController           = "replicationcontroller-controller"
	StatefulSetController                     = "statefulset-controller"
	TTLAfterFinishedController                = "ttl-after-finished-controller"
)

var (
	controllerRevisions      = schema.GroupResource{Group: "apps", Resource: "controllerrevisions"}
	cronJobs                 = schema.GroupResource{Group: "batch", Resource: "cronjobs"}
	daemonSets               = schema.GroupResource{Group: "apps", Resource: "daemonsets"}
	deployments              = schema.GroupResource{Group: "apps", Resource: "deployments"}
	endpoints                = schema.GroupResource{Resource: "endpoints"}
	endpointSlices           = schema.GroupResource{Group: "discovery.k8s.io", Resource: "endpointslices"}
	horizontalPodAutoscalers = schema.GroupResource{Group: "autoscaling", Resource: "horizontalpodautoscalers"}
	jobs                     = schema.GroupResource{Group: "batch", Resource: "jobs"}
	nodes                    = schema.GroupResource{Resource: "nodes"}
	persistentVolumeClaims   = schema.GroupResource{Resource: "persistentvolumeclaims"}
	persistentVolumes        = schema.GroupResource{Resource: "persistentvolumes"}
	podDisruptionBudgets     = schema.GroupResource{Group: "policy", Resource: "poddisruptionbudgets"}
	podGroups                = schema.GroupResource{Group: "scheduling.k8s.io", Resource: "podgroups"}
	pods                     = schema.GroupResource{Resource: "pods"}
	replicaSets              = schema.GroupResource{Group: "apps", Resource: "replicasets"}
	replicationControllers   = schema.GroupResource{Resource: "replicationcontrollers"}
	services                 = schema.GroupResource{Resource: "services"}
	statefulSets             = schema.GroupResource{Group: "apps", Resource: "statefulsets"}
	workloads                = schema.GroupResource{Group: "scheduling.k8s.io", Resource: "workloads"}
)

// workloadWithJob is the feature gate under which Jobs have Workloads and PodGroups.
const workloadWithJob = "WorkloadWithJob"

// Rings returns the catalogue. It must not be changed.
func Rings() []Ring { return rings }

// ControllerNames returns the names of all controllers in the catalogue.
func ControllerNames() (names []string) {
	for _, r := range rings {
		names = append(names, r.ControllerNames()...)
	}
	return names
}

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
	{
		Name: NamespacesRing,
		Controllers: []Controller{
			inNamespaces(EndpointSliceController, "endpointslice-controller", services, pods, endpointSlices).
				withWhole(nodes),
			inNamespaces(EndpointsController, "endpoint-controller", services, pods, endpoints),
			inNamespaces(StatefulSetController, "statefulset-controller", statefulSets, pods, persistentVolumeClaims, controllerRevisions),
			inNamespaces(HorizontalPodAutoscalerController, "horizontal-pod-autoscaler", horizontalPodAutoscalers, pods),
			inNamespaces(DisruptionController, "disruption-controller", podDisruptionBudgets, pods, replicationControllers, replicaSets, deployments, statefulSets),
			inNamespaces(EphemeralVolumeController, "ephemeral-volume-controller", pods, persistentVolumeClaims),
			inNamespaces(PersistentVolumeClaimProtectionController, "pvc-protection-controller", persistentVolumeClaims, pods),
		},
	},
	{
		Name: ClaimsRing,
		Controllers: []Controller{{
			Name:           PersistentVolumeExpanderController,
			ServiceAccount: "expand-controller",
			Workloads:      persistentVolumeClaims,
			Reads:          []Read{{Resource: persistentVolumeClaims, Path: sharding.HashKeyPath}},
			Writes: []Write{
				{Resource: persistentVolumeClaims, By: shardingv1alpha1.GoverningKeyOwn},
				{Resource: persistentVolumes, By: shardingv1alpha1.GoverningKeyClaim},
			},
		}, {
			Name:           PersistentVolumeProtectionController,
			ServiceAccount: "pv-protection-controller",
			Workloads:      persistentVolumes,
			// By claim, those without one would be in every range.
			Reads:  []Read{{Resource: persistentVolumes, Path: sharding.HashKeyPath}},
			Writes: []Write{{Resource: persistentVolumes, By: shardingv1alpha1.GoverningKeyOwn}},
		}},
	},
}

// inNamespaces describes a controller that needs of workloads, and of the other resources, all that
// lie in the same namespace, and writes nothing elsewhere.
func inNamespaces(name, serviceAccount string, workloads schema.GroupResource, others ...schema.GroupResource) Controller {
	c := Controller{
		Name:           name,
		ServiceAccount: serviceAccount,
		Workloads:      workloads,
		Reads:          []Read{{Resource: workloads, Path: sharding.NamespaceHashKeyPath}},
		Writes:         []Write{{Resource: Any, By: shardingv1alpha1.GoverningKeyNamespace}},
	}
	for _, r := range others {
		c.Reads = append(c.Reads, Read{Resource: r, Path: sharding.NamespaceHashKeyPath})
	}
	return c
}

// withWhole adds a resource that every instance holds all of.
func (c Controller) withWhole(r schema.GroupResource) Controller {
	c.Reads = append(c.Reads, Read{Resource: r, Path: Whole})
	return c
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
