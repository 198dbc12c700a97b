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

// Package podtrim cuts the pods in the informer that the controllers behind the leader's lease
// share to what those controllers read.
package podtrim

import (
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
)

// Fields is a set of groups of fields in the spec and the status of a pod. Metadata belongs to no
// group: it is always kept.
type Fields uint32

const (
	// NodeName is spec.nodeName.
	NodeName Fields = 1 << iota
	// Tolerations is spec.tolerations.
	Tolerations
	// Volumes is those of spec.volumes that can be attached to a node; of an ephemeral volume only
	// that it is one.
	Volumes
	// Resources is the names and the resources of containers and init containers, in spec and
	// status, the restart policies of init containers, spec.resources, spec.overhead,
	// status.resources, status.allocatedResources and status.nodeAllocatableResourceClaimStatuses.
	Resources
	// QuotaScopes is what scopes of quotas ask about: spec.activeDeadlineSeconds,
	// spec.priorityClassName, the terms in spec.affinity that reach into other namespaces, and
	// status.qosClass.
	QuotaScopes
	// ResourceClaims is spec.resourceClaims, status.resourceClaimStatuses and
	// status.extendedResourceClaimStatus.
	ResourceClaims
	// SchedulingGroup is spec.schedulingGroup.
	SchedulingGroup
	// Phase is status.phase.
	Phase
	// Reason is status.reason.
	Reason
	// Conditions is the types in status.conditions, in their order, with the status of Ready and the
	// reason of PodResizePending; and status.observedGeneration.
	Conditions
	// DisruptionTarget is the whole of that condition, for those that set it by a patch.
	DisruptionTarget
	// ContainerStates is the names in all lists of container statuses, and whether each waits, runs
	// or has terminated.
	ContainerStates

	// All is everything that a pod has, also what is in no group.
	All Fields = 1<<32 - 1
)

// reads has what each controller that can stay behind the leader's lease reads of a cached pod. The
// census in hack/podreads holds it against the code.
var reads = map[string]Fields{
	names.DeviceTaintEvictionController: NodeName | ResourceClaims | SchedulingGroup,
	// With the feature gate SeparateTaintEvictionController off it evicts, too.
	names.NodeLifecycleController:                NodeName | Tolerations | Conditions,
	names.PersistentVolumeAttachDetachController: NodeName | Volumes | Phase | ContainerStates,
	names.PersistentVolumeBinderController:       NodeName | Volumes | Phase | ContainerStates,
	names.PodGarbageCollectorController:          NodeName | Phase | Reason | Conditions | DisruptionTarget,
	names.PodGroupProtectionController:           Phase | SchedulingGroup,
	names.ResourceClaimController:                NodeName | Phase | ResourceClaims | SchedulingGroup,
	names.ResourceQuotaController:                Phase | Resources | QuotaScopes | ResourceClaims | Conditions,
	names.TaintEvictionController:                NodeName | Tolerations,
	names.SELinuxWarningController:               All,
	// These read metadata.
	names.GarbageCollectorController:       0,
	names.StorageVersionMigratorController: 0,
	// This one reads pods from the API server: see Live.
	names.LegacyServiceAccountTokenCleanerController: 0,
	// These use no informer of pods. Some are on rings, and may be behind the lease for a while.
	names.BootstrapSignerController:                          0,
	names.CertificateSigningRequestApprovingController:       0,
	names.CertificateSigningRequestCleanerController:         0,
	names.CertificateSigningRequestSigningController:         0,
	names.ClusterRoleAggregationController:                   0,
	names.EndpointSliceMirroringController:                   0,
	names.KubeAPIServerClusterTrustBundlePublisherController: 0,
	names.NamespaceController:                                0,
	names.NodeIpamController:                                 0,
	names.PodCertificateRequestCleanerController:             0,
	names.ResourcePoolStatusRequestController:                0,
	names.RootCACertificatePublisherController:               0,
	names.ServiceAccountController:                           0,
	names.ServiceAccountTokenController:                      0,
	names.ServiceCIDRController:                              0,
	names.StorageVersionGarbageCollectorController:           0,
	names.TokenCleanerController:                             0,
	names.CronJobController:                                  0,
	names.TTLAfterFinishedController:                         0,
	names.PersistentVolumeExpanderController:                 0,
	names.PersistentVolumeProtectionController:               0,
	names.TTLController:                                      0,
	names.ValidatingAdmissionPolicyStatusController:          0,
	names.VolumeAttributesClassProtectionController:          0,
}

// ReadBy returns what these controllers read of cached pods in all. A controller that is not known
// here may read everything.
func ReadBy(controllers ...string) Fields {
	var union Fields
	for _, name := range controllers {
		fields, known := reads[name]
		if !known {
			return All
		}
		union |= fields
	}
	return union
}

func (f Fields) has(group Fields) bool { return f&group != 0 }
