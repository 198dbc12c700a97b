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
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	policy "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/ephemeral"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/utils/ptr"
)

// The kinds of violation in namespaces.
const (
	overBudget    = "budget exceeded"
	unprotected   = "claim deleted that a pod uses"
	needlessScale = "needless deletion by a StatefulSet"
	// unpublished means that nobody can reach a pod that could answer.
	unpublished = "endpoint removed that is ready"
)

// team is the state of a namespace at the present revision.
type team struct {
	pods map[string]*v1.Pod
	// made has when the last pod of that name was made.
	made   map[string]metav1.Time
	claims map[string]*v1.PersistentVolumeClaim
	sets   map[string]*statefulSet
	budget *policy.PodDisruptionBudget
	scaler *autoscaling.HorizontalPodAutoscaler
	// slices and endpoints have the ready addresses of the Service.
	slices    map[string][]string
	endpoints []string
	// awaited has since when an address is ready and not in a slice.
	awaited map[string]time.Time
}

// statefulSet is a StatefulSet, with the sizes that it had from the observed generation on.
type statefulSet struct {
	*apps.StatefulSet
	wanted map[int64]int32
}

// team returns the state of a namespace, nil if nothing in it is judged.
func (c *checker) team(namespace string) *team {
	if !strings.HasSuffix(namespace, "-team") {
		return nil
	}
	if c.teams[namespace] == nil {
		c.teams[namespace] = &team{pods: map[string]*v1.Pod{}, made: map[string]metav1.Time{}, claims: map[string]*v1.PersistentVolumeClaim{}, sets: map[string]*statefulSet{}, slices: map[string][]string{}, awaited: map[string]time.Time{}}
	}
	return c.teams[namespace]
}

// wroteIn records which instance may have written an object in a namespace.
func (c *checker) wroteIn(object metav1.Object, created, deleted bool) {
	c.allowIn(c.writeOf(object, created, deleted), object.GetName(), object.GetNamespace())
}

// writeOf returns the identity of the write that is seen at this revision.
func (c *checker) writeOf(object metav1.Object, created, deleted bool) writeID {
	switch {
	case created:
		return writeID{verb: "create", uid: object.GetUID()}
	case deleted:
		return writeID{verb: "delete", uid: object.GetUID()}
	}
	return writeID{"write", object.GetUID(), c.revision}
}

func (c *checker) teamPodWritten(t *team, pod *v1.Pod, created, deleted bool) {
	before := t.pods[pod.Name]
	defer c.awaitAddresses(t)
	if deleted {
		delete(t.pods, pod.Name)
		return
	}
	t.pods[pod.Name], t.made[pod.Name] = pod, pod.CreationTimestamp
	doomed := pod.DeletionTimestamp != nil && before != nil && before.DeletionTimestamp == nil
	c.wroteIn(pod, created, doomed)
	if !doomed {
		return
	}
	if left := len(t.ready(fixedSet)); pod.Labels[teamLabel] == fixedSet && left < fixedReplicas-1 {
		c.violate(overBudget, "pod %s/%s is deleted, which leaves %d ready, and %d must be", pod.Namespace, pod.Name, left, fixedReplicas-1)
	}
	if set := t.sets[pod.Labels[teamLabel]]; set != nil && set.Name != fixedSet {
		ordinal, err := strconv.Atoi(pod.Name[strings.LastIndexByte(pod.Name, '-')+1:])
		if least := slices.Min(slices.Collect(maps.Values(set.wanted))); err != nil || ordinal < int(least) {
			c.violate(needlessScale, "pod %s/%s, and %d are wanted", pod.Namespace, pod.Name, least)
		}
	}
}

// ready returns the pods of a set that are ready and not being deleted.
func (t *team) ready(set string) (ready []*v1.Pod) {
	for _, pod := range t.pods {
		if pod.Labels[teamLabel] == set && pod.DeletionTimestamp == nil && podutil.IsPodReady(pod) {
			ready = append(ready, pod)
		}
	}
	return ready
}

// awaitAddresses notes which addresses are ready and not in a slice, and how long they were not.
func (c *checker) awaitAddresses(t *team) {
	published, ready := t.published(), t.addresses()
	for _, address := range ready {
		since, awaited := t.awaited[address]
		switch is := slices.Contains(published, address); {
		case is && awaited:
			c.late = append(c.late, c.seen.Sub(since))
			delete(t.awaited, address)
		case !is && !awaited:
			t.awaited[address] = c.seen
		}
	}
	maps.DeleteFunc(t.awaited, func(address string, _ time.Time) bool { return !slices.Contains(ready, address) })
}

// addresses returns those of the Service's pods that are ready.
func (t *team) addresses() (addresses []string) {
	for _, pod := range t.ready(fixedSet) {
		addresses = append(addresses, pod.Status.PodIP)
	}
	return addresses
}

// removed checks that of the addresses that were published, those that no longer are were not
// ready.
func (c *checker) removed(t *team, from string, before, now []string) {
	ready := t.addresses()
	for _, address := range before {
		if slices.Contains(ready, address) && !slices.Contains(now, address) {
			c.violate(unpublished, "%s from %s", address, from)
		}
	}
}

func (c *checker) claimWritten(t *team, claim *v1.PersistentVolumeClaim, created, deleted bool, before int64) {
	if !deleted {
		t.claims[claim.Name] = claim
		c.allowOn(catalogue.ClaimsRing, writeID{"expand", claim.UID, c.revision}, claim)
		if claim.DeletionTimestamp == nil {
			c.wroteIn(claim, created, false)
		}
		return
	}
	c.allowIn(writeID{"write", claim.UID, before}, claim.Name, claim.Namespace)
	delete(t.claims, claim.Name)
	for _, pod := range t.pods {
		// A kubelet is done with a pod whose deletion has no grace left, though it may stay for a moment.
		over := pod.DeletionTimestamp != nil && ptr.Deref(pod.DeletionGracePeriodSeconds, 1) == 0
		if pod.Spec.NodeName != "" && !over && slices.ContainsFunc(pod.Spec.Volumes, func(volume v1.Volume) bool { return uses(pod, &volume, claim) }) {
			c.violate(unprotected, "%s/%s, by pod %s", claim.Namespace, claim.Name, pod.Name)
		}
	}
}

func uses(pod *v1.Pod, volume *v1.Volume, claim *v1.PersistentVolumeClaim) bool {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return volume.PersistentVolumeClaim.ClaimName == claim.Name
	case volume.Ephemeral != nil:
		return ephemeral.VolumeClaimName(pod, volume) == claim.Name && metav1.IsControlledBy(claim, pod)
	}
	return false
}

func (c *checker) statefulSetWritten(t *team, set *apps.StatefulSet) {
	s := t.sets[set.Name]
	if s == nil {
		s = &statefulSet{wanted: map[int64]int32{}}
		t.sets[set.Name] = s
	} else if set.Name == autoSet || set.Generation == s.Generation {
		// People scale only another.
		c.wroteIn(set, false, false)
	}
	s.StatefulSet = set
	s.wanted[set.Generation] = *set.Spec.Replicas
	maps.DeleteFunc(s.wanted, func(generation int64, _ int32) bool { return generation < set.Status.ObservedGeneration })
}

func (c *checker) budgetWritten(t *team, budget *policy.PodDisruptionBudget) {
	// An eviction adds a pod, in the name of who evicts.
	if t.budget != nil && len(budget.Status.DisruptedPods) <= len(t.budget.Status.DisruptedPods) {
		c.wroteIn(budget, false, false)
	}
	t.budget = budget
}

func (c *checker) scalerWritten(t *team, scaler *autoscaling.HorizontalPodAutoscaler) {
	if t.scaler != nil && reflect.DeepEqual(t.scaler.Spec, scaler.Spec) {
		c.wroteIn(scaler, false, false)
	}
	t.scaler = scaler
}

func (c *checker) sliceWritten(t *team, slice *discovery.EndpointSlice, created, deleted bool) {
	c.wroteIn(slice, created, deleted)
	before := t.published()
	delete(t.slices, slice.Name)
	for _, endpoint := range slice.Endpoints {
		if !deleted && endpoint.Conditions.Ready != nil && *endpoint.Conditions.Ready {
			t.slices[slice.Name] = append(t.slices[slice.Name], endpoint.Addresses...)
		}
	}
	c.removed(t, "EndpointSlices of "+slice.Namespace, before, t.published())
	c.awaitAddresses(t)
}

// published returns the ready addresses that the EndpointSlices have.
func (t *team) published() []string { return slices.Concat(slices.Collect(maps.Values(t.slices))...) }

func (c *checker) endpointsWritten(t *team, endpoints *v1.Endpoints, created, deleted bool) {
	c.wroteIn(endpoints, created, deleted)
	before := t.endpoints
	t.endpoints = nil
	for _, subset := range endpoints.Subsets {
		for _, address := range subset.Addresses {
			if !deleted {
				t.endpoints = append(t.endpoints, address.IP)
			}
		}
	}
	c.removed(t, "Endpoints of "+endpoints.Namespace, before, t.endpoints)
}

// unspread lists what is not as it should be in the namespaces.
func (c *checker) unspread() (left []string) {
	if len(c.teams) != teams {
		return []string{fmt.Sprintf("%d namespaces of %d", len(c.teams), teams)}
	}
	for name, t := range c.teams {
		for _, what := range t.unspread() {
			left = append(left, name+": "+what)
		}
	}
	return left
}

func (t *team) unspread() (left []string) {
	if len(t.sets) != 3 || t.budget == nil || t.scaler == nil {
		return []string{"not everything is there"}
	}
	for name, set := range t.sets {
		if ready := len(t.ready(name)); ready != int(*set.Spec.Replicas) || ready != t.count(name) || int(set.Status.ReadyReplicas) != ready || set.Status.ObservedGeneration != set.Generation {
			left = append(left, fmt.Sprintf("StatefulSet %s wants %d, has %d, of them %d ready, and says %d", name, *set.Spec.Replicas, t.count(name), ready, set.Status.ReadyReplicas))
		}
	}
	addresses := t.addresses()
	if published := t.published(); !sameAddresses(published, addresses) {
		left = append(left, fmt.Sprintf("EndpointSlices have %v, want %v", published, addresses))
	}
	if !sameAddresses(t.endpoints, addresses) {
		left = append(left, fmt.Sprintf("Endpoints have %v, want %v", t.endpoints, addresses))
	}
	// A pod that was evicted, and has come again under its name before the controller of budgets saw
	// it go, counts as disrupted for two minutes, with stock as well.
	s := t.budget.Status
	disrupted := int32(len(s.DisruptedPods))
	if s.CurrentHealthy+disrupted != fixedReplicas || disrupted == 0 && s.DisruptionsAllowed != 1 {
		left = append(left, fmt.Sprintf("the budget says %d healthy, %d may be disrupted", s.CurrentHealthy, s.DisruptionsAllowed))
	}
	if n := *t.sets[autoSet].Spec.Replicas; n < *t.scaler.Spec.MinReplicas || n > t.scaler.Spec.MaxReplicas {
		left = append(left, fmt.Sprintf("autoscaled to %d, want %d to %d", n, *t.scaler.Spec.MinReplicas, t.scaler.Spec.MaxReplicas))
	}
	return append(left, t.unclaimed()...)
}

// unclaimed lists the claims that are missing or in excess.
func (t *team) unclaimed() (left []string) {
	want := map[string]types.UID{keptClaim: ""}
	for ordinal := range *t.sets[scaledSet].Spec.Replicas {
		want[fmt.Sprintf("data-%s-%d", scaledSet, ordinal)] = ""
	}
	for _, pod := range t.pods {
		if pod.Labels[teamLabel] == scratchVolume {
			want[ephemeral.VolumeClaimName(pod, &pod.Spec.Volumes[0])] = pod.UID
		}
	}
	for name, owner := range want {
		claim := t.claims[name]
		switch {
		case claim == nil:
			left = append(left, "claim "+name+" is missing")
		case claim.DeletionTimestamp != nil && owner == "":
			left = append(left, "claim "+name+" is being deleted")
		case owner != "" && !metav1.IsControlledBy(claim, &metav1.ObjectMeta{UID: owner}):
			left = append(left, "claim "+name+" has lost its pod")
		case owner == "" && slices.ContainsFunc(claim.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.Kind == "Pod" }):
			left = append(left, "claim "+name+" would go with its pod")
		}
	}
	if claim := t.claims[keptClaim]; claim != nil && grows(claim) && claim.Annotations[resizer] == "" {
		left = append(left, "nobody resizes claim "+keptClaim)
	}
	for name, claim := range t.claims {
		// Stock leaves one, too, whose pod was not made before the set was to have fewer.
		pod, ofSet := strings.CutPrefix(name, "data-")
		made := t.made[pod]
		if _, wanted := want[name]; !wanted && !(ofSet && made.Before(&claim.CreationTimestamp)) {
			left = append(left, "claim "+name+" is left")
		}
	}
	return left
}

// count returns how many pods a set has.
func (t *team) count(set string) (n int) {
	for _, pod := range t.pods {
		if pod.Labels[teamLabel] == set {
			n++
		}
	}
	return n
}

func sameAddresses(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
