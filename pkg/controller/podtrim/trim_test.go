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
	"maps"
	"math/rand"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"
	"k8s.io/utils/clock"
	"sigs.k8s.io/randfill"
)

// groups has of each group what controllers make of it: by their own functions where there are.
var groups = map[Fields]func(t *testing.T, pod *v1.Pod) any{
	NodeName:    func(_ *testing.T, pod *v1.Pod) any { return pod.Spec.NodeName },
	Tolerations: func(_ *testing.T, pod *v1.Pod) any { return pod.Spec.Tolerations },
	Volumes: func(_ *testing.T, pod *v1.Pod) any {
		attachable := map[string]any{}
		for _, volume := range pod.Spec.Volumes {
			s := volume.VolumeSource
			switch {
			case s.PersistentVolumeClaim != nil:
				attachable[volume.Name] = s.PersistentVolumeClaim
			case s.Ephemeral != nil:
				attachable[volume.Name] = ephemeral.VolumeClaimName(pod, &volume)
			case s.CSI != nil || s.ISCSI != nil || s.FC != nil || s.FlexVolume != nil || s.AWSElasticBlockStore != nil || s.GCEPersistentDisk != nil ||
				s.AzureDisk != nil || s.AzureFile != nil || s.Cinder != nil || s.VsphereVolume != nil || s.PortworxVolume != nil:
				attachable[volume.Name] = s
			}
		}
		return attachable
	},
	Resources: func(t *testing.T, pod *v1.Pod) any {
		// With the phase and the conditions that the caller keeps too.
		usage, err := core.PodUsageFunc(pod, clock.RealClock{})
		if err != nil {
			t.Error(err)
		}
		var resized []any
		for _, status := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
			resized = append(resized, status.Name, status.Resources, status.AllocatedResources)
		}
		return []any{usage, resized}
	},
	QuotaScopes: func(t *testing.T, pod *v1.Pod) any {
		var matching []any
		for _, scope := range []v1.ResourceQuotaScope{v1.ResourceQuotaScopeTerminating, v1.ResourceQuotaScopeNotTerminating,
			v1.ResourceQuotaScopePriorityClass, v1.ResourceQuotaScopeCrossNamespacePodAffinity} {
			matches, err := core.NewPodEvaluator(nil, clock.RealClock{}).MatchingScopes(pod, []v1.ScopedResourceSelectorRequirement{{ScopeName: scope, Operator: v1.ScopeSelectorOpExists}})
			if err != nil {
				t.Error(err)
			}
			matching = append(matching, matches)
		}
		return append(matching, pod.Spec.PriorityClassName, pod.Status.QOSClass)
	},
	ResourceClaims: func(_ *testing.T, pod *v1.Pod) any {
		return []any{pod.Spec.ResourceClaims, pod.Status.ResourceClaimStatuses, pod.Status.ExtendedResourceClaimStatus}
	},
	SchedulingGroup: func(_ *testing.T, pod *v1.Pod) any { return pod.Spec.SchedulingGroup },
	Phase:           func(_ *testing.T, pod *v1.Pod) any { return pod.Status.Phase },
	Reason:          func(_ *testing.T, pod *v1.Pod) any { return pod.Status.Reason },
	Conditions: func(_ *testing.T, pod *v1.Pod) any {
		read := []any{pod.Status.ObservedGeneration}
		for _, condition := range pod.Status.Conditions {
			read = append(read, condition.Type)
			switch condition.Type {
			case v1.PodReady:
				read = append(read, condition.Status)
			case v1.PodResizePending:
				read = append(read, condition.Reason)
			}
		}
		return read
	},
	DisruptionTarget: func(_ *testing.T, pod *v1.Pod) any {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == v1.DisruptionTarget {
				return condition
			}
		}
		return nil
	},
	ContainerStates: func(_ *testing.T, pod *v1.Pod) any {
		states := []any{volumeutil.IsPodTerminated(pod, pod.Status)}
		for _, status := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses) {
			states = append(states, status.Name, status.State.Running != nil, status.State.Terminated != nil, status.State.Waiting != nil)
		}
		return states
	},
}

// random returns a pod that has everything that a pod can have.
func random(seed int64) *v1.Pod {
	var conditionTypes = []v1.PodConditionType{v1.PodReady, v1.DisruptionTarget, v1.PodResizePending, v1.PodScheduled}
	pod := &v1.Pod{}
	randfill.NewWithSeed(seed).NilChance(0.3).NumElements(0, 4).MaxDepth(12).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(c.Int63n(1000), resource.DecimalSI)
		},
		func(l *v1.ResourceList, c randfill.Continue) {
			*l = v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(c.Int63n(1000), resource.DecimalSI)}
		},
		func(p *v1.PodConditionType, c randfill.Continue) { *p = conditionTypes[c.Intn(len(conditionTypes))] },
		func(s *v1.VolumeSource, c randfill.Continue) {
			// One source, as the API server has it.
			source := reflect.ValueOf(s).Elem().Field(c.Intn(reflect.TypeFor[v1.VolumeSource]().NumField()))
			source.Set(reflect.New(source.Type().Elem()))
			c.FillNoCustom(source.Interface())
		},
		func(s *metav1.FieldsV1, _ randfill.Continue) {},
	).Fill(pod)
	return pod
}

func TestTrimKeepsWhatIsRead(t *testing.T) {
	all := slices.Sorted(maps.Keys(groups))
	for seed := range int64(300) {
		chosen := rand.New(rand.NewSource(seed))
		whole := random(seed)
		var fields Fields
		for _, group := range all {
			if chosen.Intn(2) == 0 {
				fields |= group
			}
		}
		trimmed := whole.DeepCopy()
		fields.trim(trimmed)
		for _, group := range all {
			if !fields.has(group) {
				continue
			}
			if group == Resources {
				// What a quota counts depends on all of these.
				if fields&(Phase|Conditions) != Phase|Conditions {
					continue
				}
			}
			if before, after := groups[group](t, whole), groups[group](t, trimmed); !apiequality.Semantic.DeepEqual(before, after) {
				t.Errorf("seed %d: group %b is not what it was (-whole, +trimmed):\n%s", seed, group, cmp.Diff(before, after))
			}
		}
		if diff := cmp.Diff(whole.ObjectMeta, trimmed.ObjectMeta); diff != "" {
			t.Errorf("seed %d: metadata is not what it was:\n%s", seed, diff)
		}
		again := trimmed.DeepCopy()
		if fields.trim(again); !reflect.DeepEqual(again, trimmed) {
			t.Errorf("seed %d: trimming a second time changes the pod:\n%s", seed, cmp.Diff(trimmed, again))
		}
	}
}

func TestTrimDropsTheRest(t *testing.T) {
	pod := random(1)
	Fields(0).trim(pod)
	if !reflect.DeepEqual(pod.Spec, v1.PodSpec{}) || !reflect.DeepEqual(pod.Status, v1.PodStatus{}) {
		t.Errorf("with no group there is something left: %+v %+v", pod.Spec, pod.Status)
	}
	whole := random(1)
	kept := whole.DeepCopy()
	if All.trim(kept); !reflect.DeepEqual(kept, whole) {
		t.Error("a pod of which all is wanted has been trimmed")
	}
	for group, of := range groups {
		var zero, trimmed *v1.Pod = &v1.Pod{}, random(1)
		zero.ObjectMeta = trimmed.ObjectMeta
		if group&(ContainerStates|Resources|Conditions|DisruptionTarget) != 0 {
			// Two of them have names of containers in common, two the types of conditions.
			continue
		}
		(All &^ group).trim(trimmed)
		if got, want := of(t, trimmed), of(t, zero); !apiequality.Semantic.DeepEqual(got, want) {
			t.Errorf("group %b is left: %v", group, got)
		}
	}
}

// What decides by a pod's absence of volumes or statuses would detach what is in use.
func TestEmptyIsNotAbsent(t *testing.T) {
	pod := &v1.Pod{Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{}}}
	(ContainerStates).trim(pod)
	if pod.Status.ContainerStatuses == nil {
		t.Error("an empty list has become none")
	}
}

func TestUnknownControllersGetWholePods(t *testing.T) {
	for _, c := range []struct {
		controllers []string
		want        Fields
	}{
		{nil, 0},
		{[]string{"garbage-collector-controller", "namespace-controller"}, 0},
		{[]string{"taint-eviction-controller", "namespace-controller"}, NodeName | Tolerations},
		{[]string{"taint-eviction-controller", "podgroup-protection-controller"}, NodeName | Tolerations | Phase | SchedulingGroup},
		{[]string{"taint-eviction-controller", "replicaset-controller"}, All},
		{[]string{"of-tomorrow"}, All},
	} {
		if got := ReadBy(c.controllers...); got != c.want {
			t.Errorf("%v read %b, want %b", c.controllers, got, c.want)
		}
	}
}
