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

package podtrim

import (
	"reflect"

	v1 "k8s.io/api/core/v1"
)

// share has pod hold the same memory as other for each part in which the two are equal. Nobody
// writes into what a cache holds, so nobody can tell.
func share(pod, other *v1.Pod) {
	text(&pod.Namespace, other.Namespace)
	text(&pod.GenerateName, other.GenerateName)
	part(&pod.Labels, other.Labels)
	part(&pod.Annotations, other.Annotations)
	part(&pod.OwnerReferences, other.OwnerReferences)
	part(&pod.Finalizers, other.Finalizers)

	text(&pod.Spec.NodeName, other.Spec.NodeName)
	text(&pod.Spec.PriorityClassName, other.Spec.PriorityClassName)
	part(&pod.Spec.Tolerations, other.Spec.Tolerations)
	part(&pod.Spec.Volumes, other.Spec.Volumes)
	part(&pod.Spec.Containers, other.Spec.Containers)
	part(&pod.Spec.InitContainers, other.Spec.InitContainers)
	part(&pod.Spec.Resources, other.Spec.Resources)
	part(&pod.Spec.Overhead, other.Spec.Overhead)
	part(&pod.Spec.ActiveDeadlineSeconds, other.Spec.ActiveDeadlineSeconds)
	part(&pod.Spec.ResourceClaims, other.Spec.ResourceClaims)
	part(&pod.Spec.SchedulingGroup, other.Spec.SchedulingGroup)

	text(&pod.Status.Phase, other.Status.Phase)
	text(&pod.Status.Reason, other.Status.Reason)
	text(&pod.Status.QOSClass, other.Status.QOSClass)
	part(&pod.Status.Conditions, other.Status.Conditions)
	part(&pod.Status.InitContainerStatuses, other.Status.InitContainerStatuses)
	part(&pod.Status.ContainerStatuses, other.Status.ContainerStatuses)
	part(&pod.Status.EphemeralContainerStatuses, other.Status.EphemeralContainerStatuses)
	part(&pod.Status.Resources, other.Status.Resources)
	part(&pod.Status.AllocatedResources, other.Status.AllocatedResources)
	part(&pod.Status.NodeAllocatableResourceClaimStatuses, other.Status.NodeAllocatableResourceClaimStatuses)
	part(&pod.Status.ResourceClaimStatuses, other.Status.ResourceClaimStatuses)
	part(&pod.Status.ExtendedResourceClaimStatus, other.Status.ExtendedResourceClaimStatus)
}

func text[T ~string](mine *T, other T) {
	if *mine == other {
		*mine = other
	}
}

func part[T any](mine *T, other T) {
	if reflect.DeepEqual(*mine, other) {
		*mine = other
	}
}
