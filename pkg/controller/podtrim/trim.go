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
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// trim drops from pod all that is in none of the groups. It builds spec and status anew, so that a
// field which nobody has put into a group is dropped.
// Pods that have been trimmed stay as they are.
func (f Fields) trim(pod *v1.Pod) {
	if f == All {
		return
	}
	pod.Spec, pod.Status = f.spec(&pod.Spec), f.status(&pod.Status)
}

func (f Fields) spec(whole *v1.PodSpec) (kept v1.PodSpec) {
	if f.has(NodeName) {
		kept.NodeName = whole.NodeName
	}
	if f.has(Tolerations) {
		kept.Tolerations = whole.Tolerations
	}
	if f.has(Volumes) {
		kept.Volumes = volumes(whole.Volumes)
	}
	if f.has(Resources) {
		kept.Containers = each(whole.Containers, func(c *v1.Container) v1.Container {
			return v1.Container{Name: c.Name, Resources: c.Resources}
		})
		kept.InitContainers = each(whole.InitContainers, func(c *v1.Container) v1.Container {
			return v1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
		})
		kept.Resources, kept.Overhead = whole.Resources, whole.Overhead
	}
	if f.has(QuotaScopes) {
		kept.ActiveDeadlineSeconds = whole.ActiveDeadlineSeconds
		kept.PriorityClassName = whole.PriorityClassName
		kept.Affinity = affinity(whole.Affinity)
	}
	if f.has(ResourceClaims) {
		kept.ResourceClaims = whole.ResourceClaims
	}
	if f.has(SchedulingGroup) {
		kept.SchedulingGroup = whole.SchedulingGroup
	}
	return kept
}

func (f Fields) status(whole *v1.PodStatus) (kept v1.PodStatus) {
	if f.has(Phase) {
		kept.Phase = whole.Phase
	}
	if f.has(Reason) {
		kept.Reason = whole.Reason
	}
	if f.has(Conditions | DisruptionTarget) {
		kept.ObservedGeneration = whole.ObservedGeneration
		kept.Conditions = each(whole.Conditions, f.condition)
	}
	if f.has(QuotaScopes) {
		kept.QOSClass = whole.QOSClass
	}
	if f.has(ResourceClaims) {
		kept.ResourceClaimStatuses = whole.ResourceClaimStatuses
		kept.ExtendedResourceClaimStatus = whole.ExtendedResourceClaimStatus
	}
	if f.has(Resources) {
		kept.Resources, kept.AllocatedResources = whole.Resources, whole.AllocatedResources
		kept.NodeAllocatableResourceClaimStatuses = whole.NodeAllocatableResourceClaimStatuses
	}
	if f.has(Resources | ContainerStates) {
		kept.InitContainerStatuses = each(whole.InitContainerStatuses, f.containerStatus)
		kept.ContainerStatuses = each(whole.ContainerStatuses, f.containerStatus)
		kept.EphemeralContainerStatuses = each(whole.EphemeralContainerStatuses, f.containerStatus)
	}
	return kept
}

// each returns what keep makes of the items, and nil of nil: that a list is there and empty can be
// a fact of its own.
func each[T any](items []T, keep func(*T) T) []T {
	if items == nil {
		return nil
	}
	kept := make([]T, len(items))
	for i := range items {
		kept[i] = keep(&items[i])
	}
	return kept
}

// containerStatus keeps of a state only which it is.
func (f Fields) containerStatus(whole *v1.ContainerStatus) v1.ContainerStatus {
	kept := v1.ContainerStatus{Name: whole.Name}
	if f.has(ContainerStates) {
		if whole.State.Waiting != nil {
			kept.State.Waiting = &v1.ContainerStateWaiting{}
		}
		if whole.State.Running != nil {
			kept.State.Running = &v1.ContainerStateRunning{}
		}
		if whole.State.Terminated != nil {
			kept.State.Terminated = &v1.ContainerStateTerminated{}
		}
	}
	if f.has(Resources) {
		kept.AllocatedResources, kept.Resources = whole.AllocatedResources, whole.Resources
	}
	return kept
}

// condition keeps the types of all conditions, because a patch of one names the others; and the
// whole of the one that is patched, which would be patched again otherwise.
func (f Fields) condition(whole *v1.PodCondition) v1.PodCondition {
	kept := v1.PodCondition{Type: whole.Type}
	switch whole.Type {
	case v1.DisruptionTarget:
		if f.has(DisruptionTarget) {
			return *whole
		}
	case v1.PodReady:
		kept.Status = whole.Status
	case v1.PodResizePending:
		kept.Reason = whole.Reason
	}
	return kept
}

// volumes drops those of which no plugin that attaches volumes to nodes would want to know. Sources
// that are not known here are kept, and those that upstream's tests take for attachable.
func volumes(whole []v1.Volume) []v1.Volume {
	kept := slices.DeleteFunc(slices.Clone(whole), func(volume v1.Volume) bool {
		s := &volume.VolumeSource
		return s.CephFS != nil || s.ConfigMap != nil || s.DownwardAPI != nil || s.EmptyDir != nil ||
			s.Flocker != nil || s.GitRepo != nil || s.Glusterfs != nil || s.Image != nil || s.NFS != nil ||
			s.PhotonPersistentDisk != nil || s.Projected != nil || s.Quobyte != nil || s.ScaleIO != nil ||
			s.Secret != nil || s.StorageOS != nil
	})
	if len(kept) == 0 {
		return nil
	}
	return each(kept, func(volume *v1.Volume) v1.Volume {
		if volume.Ephemeral != nil {
			volume.Ephemeral = &v1.EphemeralVolumeSource{}
		}
		return *volume
	})
}

// affinity returns one term that reaches into other namespaces if there is any, because that is all
// that a quota's scope asks.
func affinity(whole *v1.Affinity) *v1.Affinity {
	if whole == nil {
		return nil
	}
	var required []v1.PodAffinityTerm
	var preferred []v1.WeightedPodAffinityTerm
	if a := whole.PodAffinity; a != nil {
		required = append(required, a.RequiredDuringSchedulingIgnoredDuringExecution...)
		preferred = append(preferred, a.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	if a := whole.PodAntiAffinity; a != nil {
		required = append(required, a.RequiredDuringSchedulingIgnoredDuringExecution...)
		preferred = append(preferred, a.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	for _, term := range preferred {
		required = append(required, term.PodAffinityTerm)
	}
	if slices.ContainsFunc(required, func(term v1.PodAffinityTerm) bool {
		return len(term.Namespaces) > 0 || term.NamespaceSelector != nil
	}) {
		return &v1.Affinity{PodAffinity: &v1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{NamespaceSelector: &metav1.LabelSelector{}}},
		}}
	}
	return nil
}
