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
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/kubernetes/test/harness/objects"
	"k8s.io/utils/ptr"
)

const (
	// teams is how many namespaces there are for controllers whose keys are those of namespaces.
	teams = 8
	// teamLabel is on all pods there, and says which StatefulSet they belong to.
	teamLabel = "team"
	// The StatefulSets of each: one whose pods are evicted, within a budget; one with claims,
	// which is scaled; one that an autoscaler keeps within limits, which are changed.
	fixedSet, scaledSet, autoSet = "fixed", "scaled", "auto"
	// fixedReplicas are the pods that are evicted, of which one may be missing.
	fixedReplicas = 4
	maxScaled     = 4
	// scratchVolume is the ephemeral volume of pods that come and go.
	scratchVolume = "scratch"
)

func teamName(i int) string { return fmt.Sprintf("%c-team", 'a'+i) }

// createNamespaces creates the namespaces with what is in them.
func (r *run) createNamespaces(ctx context.Context) error {
	if err := r.createGrowing(ctx); err != nil {
		return err
	}
	for i := range teams {
		if err := errors.Join(r.createNamespace(ctx, teamName(i)), r.createTeam(ctx, teamName(i)), r.createKept(ctx, teamName(i))); err != nil {
			return fmt.Errorf("namespace %s: %w", teamName(i), err)
		}
	}
	return nil
}

func (r *run) createTeam(ctx context.Context, team string) error {
	selects := map[string]string{teamLabel: fixedSet}
	all := []runtime.Object{
		objects.Service(fixedSet, selects),
		&policy.PodDisruptionBudget{
			ObjectMeta: objects.Named(fixedSet),
			Spec:       policy.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(fixedReplicas - 1)), Selector: objects.Selector(selects)},
		},
		&autoscaling.HorizontalPodAutoscaler{
			ObjectMeta: objects.Named(autoSet),
			Spec: autoscaling.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscaling.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: autoSet},
				MinReplicas:    ptr.To[int32](1), MaxReplicas: 2,
			},
		},
	}
	for name, replicas := range map[string]int32{fixedSet: fixedReplicas, scaledSet: 2, autoSet: 1} {
		set := objects.StatefulSet(name, replicas, objects.Pods(map[string]string{teamLabel: name}))
		if name == scaledSet {
			set.Spec.VolumeClaimTemplates = []v1.PersistentVolumeClaim{{ObjectMeta: objects.Named("data"), Spec: claimSpec()}}
			set.Spec.PersistentVolumeClaimRetentionPolicy = &apps.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenScaled: apps.DeletePersistentVolumeClaimRetentionPolicyType}
		}
		all = append(all, set)
	}
	return objects.Create(ctx, r.client, team, all...)
}

// mayScale says whether the set that is scaled may be given that many pods. While claims of pods
// that it has deleted are there, it may not grow: it would wait for their end, of which nobody
// tells it, as in stock.
func (r *run) mayScale(ctx context.Context, team string, replicas int) bool {
	set, err := r.client.AppsV1().StatefulSets(team).Get(ctx, scaledSet, metav1.GetOptions{})
	if err != nil {
		return false
	}
	if replicas <= int(*set.Spec.Replicas) {
		return true
	}
	if set.Status.ObservedGeneration != set.Generation || set.Status.Replicas != *set.Spec.Replicas {
		return false
	}
	claims, err := r.client.CoreV1().PersistentVolumeClaims(team).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(claims.Items, func(claim v1.PersistentVolumeClaim) bool {
		var ordinal int
		_, err := fmt.Sscanf(claim.Name, "data-"+scaledSet+"-%d", &ordinal)
		return err == nil && ordinal >= int(*set.Spec.Replicas)
	})
}

// changeNamespace changes something in a namespace at random. A request may fail because of the
// fault, and an eviction because of the budget.
func (r *run) changeNamespace(ctx context.Context, random *rand.Rand) {
	team := teamName(random.IntN(teams))
	switch random.IntN(8) {
	case 0:
		replicas := random.IntN(maxScaled + 1)
		if !r.mayScale(ctx, team, replicas) {
			return
		}
		patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
		_, _ = r.client.AppsV1().StatefulSets(team).Patch(ctx, scaledSet, types.MergePatchType, patch, metav1.PatchOptions{})
	case 1:
		low := 1 + random.IntN(3)
		patch := fmt.Appendf(nil, `{"spec":{"minReplicas":%d,"maxReplicas":%d}}`, low, low+random.IntN(2))
		_, _ = r.client.AutoscalingV2().HorizontalPodAutoscalers(team).Patch(ctx, autoSet, types.MergePatchType, patch, metav1.PatchOptions{})
	case 2:
		_ = objects.Create(ctx, r.client, team, scratchPod())
		scratch, err := r.client.CoreV1().Pods(team).List(ctx, metav1.ListOptions{LabelSelector: teamLabel + "=" + scratchVolume, Limit: 3})
		if err != nil || len(scratch.Items) < 3 {
			return
		}
		// The claim of another stays until its pod has gone.
		i := random.IntN(3)
		_ = r.client.CoreV1().Pods(team).Delete(ctx, scratch.Items[i].Name, metav1.DeleteOptions{})
		other := &scratch.Items[(i+1)%3]
		_ = r.client.CoreV1().PersistentVolumeClaims(team).Delete(ctx, ephemeral.VolumeClaimName(other, &other.Spec.Volumes[0]), metav1.DeleteOptions{})
	default:
		pod := fmt.Sprintf("%s-%d", fixedSet, random.IntN(fixedReplicas))
		// An eviction has two steps. If it ended between them, its budget would wait two minutes
		// for the pod to go.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = r.client.PolicyV1().Evictions(team).Evict(ctx, &policy.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: pod}})
	}
}

// scratchPod returns a pod with a volume that has the pod's life.
func scratchPod() *v1.Pod {
	pod := objects.Pod("", objects.Pods(map[string]string{teamLabel: scratchVolume}))
	pod.GenerateName = "scratch-"
	pod.Spec.Volumes = []v1.Volume{{Name: scratchVolume, VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{
		VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{Spec: claimSpec()},
	}}}}
	return pod
}

// teamAddresses counts the addresses that pods have been given.
var teamAddresses atomic.Uint32

// runTeamPod does with a pod in one of the namespaces what a scheduler and a kubelet would do next.
func (r *run) runTeamPod(ctx context.Context, pod *v1.Pod) error {
	pods := r.client.CoreV1().Pods(pod.Namespace)
	pod, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return ignoreGone(err)
	case pod.DeletionTimestamp != nil:
		return ignoreGone(pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &pod.UID}}))
	case pod.Spec.NodeName == "":
		return ignoreGone(pods.Bind(ctx, &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID}, Target: v1.ObjectReference{Kind: "Node", Name: targetNode(pod)}}, metav1.CreateOptions{}))
	case pod.Status.Phase == v1.PodPending:
		n := teamAddresses.Add(1)
		pod.Status.Phase = v1.PodRunning
		pod.Status.PodIP = fmt.Sprintf("10.%d.%d.%d", n>>16&255, n>>8&255, n&255)
		pod.Status.PodIPs = []v1.PodIP{{IP: pod.Status.PodIP}}
		pod.Status.Conditions = append(pod.Status.Conditions, v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now()})
		_, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		return ignoreGone(err)
	}
	return nil
}
