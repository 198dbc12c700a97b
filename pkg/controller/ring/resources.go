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

package ring

import (
	"context"

	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	policy "k8s.io/api/policy/v1"
	scheduling "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/siblings"
)

// resource is what a ring's controllers can have an informer of.
type resource struct {
	// object is an example of the objects.
	object runtime.Object
	// listWatch lists and watches all of them.
	listWatch func(kubernetes.Interface) *cache.ListWatch
	// trim, if set, leaves out of an object what none of the controllers reads.
	trim func(any)
	// share, if set, returns what has objects share memory with what is stored and with each other.
	share func(stored cache.Store) func(any)
}

// transform returns what makes of an object what the informer with that store keeps of it. No
// controller reads managed fields.
func (r resource) transform(stored cache.Store) cache.TransformFunc {
	share := func(any) {}
	if r.share != nil {
		share = r.share(stored)
	}
	return func(obj any) (any, error) {
		if accessor, err := meta.Accessor(obj); err == nil && accessor.GetManagedFields() != nil {
			accessor.SetManagedFields(nil)
		}
		if r.trim != nil {
			r.trim(obj)
		}
		share(obj)
		return obj, nil
	}
}

// resources has all that the catalogue lists.
var resources = map[schema.GroupResource]resource{
	apps.Resource("controllerrevisions"): {object: &apps.ControllerRevision{}, listWatch: func(c kubernetes.Interface) *cache.ListWatch {
		return listWatch(c.AppsV1().ControllerRevisions(metav1.NamespaceAll))
	}},
	apps.Resource("daemonsets"): {object: &apps.DaemonSet{}, listWatch: func(c kubernetes.Interface) *cache.ListWatch {
		return listWatch(c.AppsV1().DaemonSets(metav1.NamespaceAll))
	}},
	apps.Resource("deployments"): {object: &apps.Deployment{}, listWatch: func(c kubernetes.Interface) *cache.ListWatch {
		return listWatch(c.AppsV1().Deployments(metav1.NamespaceAll))
	}},
	apps.Resource("replicasets"): {object: &apps.ReplicaSet{}, share: siblings.Transformer[apps.ReplicaSet], listWatch: func(c kubernetes.Interface) *cache.ListWatch {
		return listWatch(c.AppsV1().ReplicaSets(metav1.NamespaceAll))
	}},
	apps.Resource("statefulsets"): {object: &apps.StatefulSet{}, listWatch: func(c kubernetes.Interface) *cache.ListWatch {
		return listWatch(c.AppsV1().StatefulSets(metav1.NamespaceAll))
	}},
	autoscaling.Resource("horizontalpodautoscalers"): {object: &autoscaling.HorizontalPodAutoscaler{}, listWatch: func(c kubernetes.Interface) *cache.ListWatch {
		return listWatch(c.AutoscalingV2().HorizontalPodAutoscalers(metav1.NamespaceAll))
	}},
	batch.Resource("cronjobs"): {object: &batch.CronJob{}, listWatch: func(c kubernetes.Interface) *cache.ListWatch {
		return listWatch(c.BatchV1().CronJobs(metav1.NamespaceAll))
	}},
	batch.Resource("jobs"): {object: &batch.Job{}, share: siblings.Transformer[batch.Job], listWatch: func(c kubernetes.Interface) *cache.ListWatch {
		return listWatch(c.BatchV1().Jobs(metav1.NamespaceAll))
	}},
	discovery.Resource("endpointslices"): {object: &discovery.EndpointSlice{}, listWatch: func(c kubernetes.Interface) *cache.ListWatch {
		return listWatch(c.DiscoveryV1().EndpointSlices(metav1.NamespaceAll))
	}},
	policy.Resource("poddisruptionbudgets"): {object: &policy.PodDisruptionBudget{}, listWatch: func(c kubernetes.Interface) *cache.ListWatch {
		return listWatch(c.PolicyV1().PodDisruptionBudgets(metav1.NamespaceAll))
	}},
	scheduling.Resource("podgroups"): {object: &scheduling.PodGroup{}, listWatch: func(c kubernetes.Interface) *cache.ListWatch {
		return listWatch(c.SchedulingV1beta1().PodGroups(metav1.NamespaceAll))
	}},
	scheduling.Resource("workloads"): {object: &scheduling.Workload{}, listWatch: func(c kubernetes.Interface) *cache.ListWatch {
		return listWatch(c.SchedulingV1beta1().Workloads(metav1.NamespaceAll))
	}},
	v1.Resource("endpoints"): {object: &v1.Endpoints{}, listWatch: func(c kubernetes.Interface) *cache.ListWatch {
		return listWatch(c.CoreV1().Endpoints(metav1.NamespaceAll))
	}},
	v1.Resource("nodes"): {object: &v1.Node{}, trim: trimNode, listWatch: func(c kubernetes.Interface) *cache.ListWatch {
		return listWatch(c.CoreV1().Nodes())
	}},
	v1.Resource("persistentvolumeclaims"): {object: &v1.PersistentVolumeClaim{}, listWatch: func(c kubernetes.Interface) *cache.ListWatch {
		return listWatch(c.CoreV1().PersistentVolumeClaims(metav1.NamespaceAll))
	}},
	v1.Resource("persistentvolumes"): {object: &v1.PersistentVolume{}, listWatch: func(c kubernetes.Interface) *cache.ListWatch {
		return listWatch(c.CoreV1().PersistentVolumes())
	}},
	v1.Resource("pods"): {object: &v1.Pod{}, share: siblings.Transformer[v1.Pod], listWatch: func(c kubernetes.Interface) *cache.ListWatch {
		return listWatch(c.CoreV1().Pods(metav1.NamespaceAll))
	}},
	v1.Resource("replicationcontrollers"): {object: &v1.ReplicationController{}, listWatch: func(c kubernetes.Interface) *cache.ListWatch {
		return listWatch(c.CoreV1().ReplicationControllers(metav1.NamespaceAll))
	}},
	v1.Resource("services"): {object: &v1.Service{}, listWatch: func(c kubernetes.Interface) *cache.ListWatch {
		return listWatch(c.CoreV1().Services(metav1.NamespaceAll))
	}},
}

// trimNode leaves a Node its metadata, but for the annotations, its specification, and of the
// status what is read of it: its CPUs and whether it is ready. The status, with its images, is most
// of a Node, and changes every few minutes.
func trimNode(obj any) {
	node, ok := obj.(*v1.Node)
	if !ok {
		return
	}
	var trimmed v1.NodeStatus
	if cpu, ok := node.Status.Allocatable[v1.ResourceCPU]; ok {
		trimmed.Allocatable = v1.ResourceList{v1.ResourceCPU: cpu}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == v1.NodeReady {
			trimmed.Conditions = []v1.NodeCondition{{Type: condition.Type, Status: condition.Status}}
		}
	}
	node.Annotations, node.Status = nil, trimmed
}

// listWatch lists and watches with a typed client.
func listWatch[L runtime.Object](client interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, options)
		},
		WatchFuncWithContext: client.Watch,
	}
}
