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

package main

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/types"
	"maps"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// all stands for every field of a pod.
const all = "All"

// groups has, of each group of fields in podtrim, what may be read because of it. A field that ends
// in "by" and a function's name may be read by that function alone.
var groups = map[string][]string{
	"NodeName":    {"PodSpec.NodeName"},
	"Tolerations": {"PodSpec.Tolerations"},
	"Volumes": {
		"PodSpec.Volumes", "Volume.Name", "Volume.VolumeSource",
		"VolumeSource.AWSElasticBlockStore", "VolumeSource.AzureDisk", "VolumeSource.AzureFile",
		"VolumeSource.CSI", "VolumeSource.Cinder", "VolumeSource.Ephemeral", "VolumeSource.FC",
		"VolumeSource.FlexVolume", "VolumeSource.GCEPersistentDisk", "VolumeSource.ISCSI",
		"VolumeSource.PersistentVolumeClaim", "VolumeSource.PortworxVolume", "VolumeSource.VsphereVolume",
	},
	"Resources": {
		"PodSpec.Containers", "PodSpec.InitContainers", "PodSpec.Overhead", "PodSpec.Resources",
		"Container.Name", "Container.Resources", "Container.RestartPolicy",
		"PodStatus.AllocatedResources", "PodStatus.NodeAllocatableResourceClaimStatuses", "PodStatus.Resources",
		"PodStatus.ContainerStatuses", "PodStatus.InitContainerStatuses",
		"ContainerStatus.AllocatedResources", "ContainerStatus.Name", "ContainerStatus.Resources",
	},
	"QuotaScopes": {
		"PodSpec.ActiveDeadlineSeconds", "PodSpec.Affinity", "PodSpec.PriorityClassName", "PodStatus.QOSClass",
		"Affinity.PodAffinity", "PodAffinityTerm.NamespaceSelector", "PodAffinityTerm.Namespaces",
		// It asks whether either has such a term, and one is kept.
		"Affinity.PodAntiAffinity by k8s.io/kubernetes/pkg/quota/v1/evaluator/core.usesCrossNamespacePodAffinity",
		"WeightedPodAffinityTerm.PodAffinityTerm",
	},
	"ResourceClaims":  {"PodSpec.ResourceClaims", "PodStatus.ExtendedResourceClaimStatus", "PodStatus.ResourceClaimStatuses"},
	"SchedulingGroup": {"PodSpec.SchedulingGroup"},
	"Phase":           {"PodStatus.Phase"},
	"Reason":          {"PodStatus.Reason"},
	"Conditions": {
		"PodStatus.Conditions", "PodStatus.ObservedGeneration", "PodCondition.Type",
		// The status of Ready.
		"PodCondition.Status by k8s.io/kubernetes/pkg/controller/util/node.readBeforeWrite",
		// The reason of PodResizePending.
		"PodCondition.Reason by k8s.io/component-helpers/resource.IsPodResizeInfeasible",
	},
	"DisruptionTarget": {
		// The condition that it sets.
		"PodCondition.LastProbeTime by k8s.io/kubernetes/pkg/api/v1/pod.UpdatePodCondition",
		"PodCondition.LastTransitionTime by k8s.io/kubernetes/pkg/api/v1/pod.UpdatePodCondition",
		"PodCondition.Message by k8s.io/kubernetes/pkg/api/v1/pod.UpdatePodCondition",
		"PodCondition.Reason by k8s.io/kubernetes/pkg/api/v1/pod.UpdatePodCondition",
		"PodCondition.Status by k8s.io/kubernetes/pkg/api/v1/pod.UpdatePodCondition",
		// It sets the generation of a new condition to the pod's, which is metadata.
		"PodCondition.ObservedGeneration by k8s.io/kubernetes/pkg/api/v1/pod.CalculatePodConditionObservedGeneration",
	},
	"ContainerStates": {
		"PodStatus.ContainerStatuses", "PodStatus.EphemeralContainerStatuses", "PodStatus.InitContainerStatuses",
		"ContainerStatus.Name", "ContainerStatus.State",
		"ContainerState.Running", "ContainerState.Terminated", "ContainerState.Waiting",
	},
}

// always may be read without a group.
var always = []string{"Pod.ObjectMeta", "Pod.Spec", "Pod.Status", "Pod.TypeMeta"}

// declared returns the groups that podtrim declares for each controller, by the names of both.
func declared(podtrim *packages.Package) (map[string][]string, error) {
	bits := map[string]uint64{}
	scope := podtrim.Types.Scope()
	for _, name := range scope.Names() {
		group, ok := scope.Lookup(name).(*types.Const)
		if !ok || typeName(group.Type()) != podtrim.PkgPath+".Fields" {
			continue
		}
		if _, known := groups[name]; !known && name != all {
			return nil, fmt.Errorf("podtrim has the group %s, which hack/podreads does not know", name)
		}
		bits[name], _ = constant.Uint64Val(group.Val())
	}
	for name := range groups {
		if _, ok := bits[name]; !ok {
			return nil, fmt.Errorf("podtrim has no group %s", name)
		}
	}
	reads := map[string][]string{}
	for _, file := range podtrim.Syntax {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || spec.Names[0].Name != "reads" {
				return true
			}
			for _, element := range spec.Values[0].(*ast.CompositeLit).Elts {
				entry := element.(*ast.KeyValueExpr)
				controller := constant.StringVal(podtrim.TypesInfo.Types[entry.Key].Value)
				fields, _ := constant.Uint64Val(podtrim.TypesInfo.Types[entry.Value].Value)
				reads[controller] = []string{}
				if fields == bits[all] {
					reads[controller] = []string{all}
					continue
				}
				for group, bit := range bits {
					if group != all && fields&bit != 0 {
						reads[controller] = append(reads[controller], group)
					}
				}
				slices.Sort(reads[controller])
			}
			return false
		})
	}
	if len(reads) == 0 {
		return nil, fmt.Errorf("%s does not say what controllers read", podtrim.PkgPath)
	}
	return reads, nil
}

// compare returns what is read and not declared, and what is declared and not read. allowed has the
// functions that may be given pods, as the variable of that name does.
func compare(reads found, declared []string, allowed map[string]string) (faults []string) {
	allows := func(group, what, by string) bool {
		return slices.Contains(groups[group], what) || slices.Contains(groups[group], what+" by "+by)
	}
	needed := map[string]bool{}
	for _, what := range slices.Sorted(maps.Keys(reads)) {
		method := what[:strings.LastIndex(what, ".")+1] + "*"
		if slices.Contains(always, what) || allowed[what] != "" || allowed[method] != "" {
			continue
		}
		for _, by := range slices.Sorted(maps.Keys(reads[what])) {
			if allowed[what+" by "+by] != "" {
				continue
			}
			var covers []string
			for _, group := range declared {
				if allows(group, what, by) {
					covers = append(covers, group)
				}
			}
			if len(covers) == 1 {
				needed[covers[0]] = true
			}
			if len(covers) == 0 {
				faults = append(faults, fmt.Sprintf("reads %s in %s, at %s", what, by, reads[what][by]))
			}
		}
	}
	for _, group := range declared {
		if !needed[group] {
			faults = append(faults, fmt.Sprintf("declares %s and does not read it", group))
		}
	}
	slices.Sort(faults)
	return faults
}
