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
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/utils/ptr"
)

// ringed writes an instance of a ring that owns the keys up to key.
func (s story) ringed(ring, name string, key int64) {
	s.instances[name] = &shardingv1alpha1.ControllerInstance{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       shardingv1alpha1.ControllerInstanceSpec{Ring: ring, HolderIdentity: name, HashKey: (*shardingv1alpha1.HashKey)(&key)},
	}
}

// teamPod writes a ready pod of the Service, with that address.
func (s story) teamPod(name, address string, doomed bool) {
	s.revision++
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a-team", Name: name, UID: "uid", Labels: map[string]string{teamLabel: fixedSet}}}
	p.Status.PodIP, p.Status.Conditions = address, []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
	if doomed {
		p.DeletionTimestamp = &metav1.Time{}
	}
	s.teamPodWritten(s.team("a-team"), p, false, false)
}

// publishes writes a slice with those addresses.
func (s story) publishes(name string, addresses ...string) {
	s.revision++
	slice := &discovery.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "a-team", Name: name}}
	for _, address := range addresses {
		slice.Endpoints = append(slice.Endpoints, discovery.Endpoint{Addresses: []string{address}, Conditions: discovery.EndpointConditions{Ready: ptr.To(true)}})
	}
	s.sliceWritten(s.team("a-team"), slice, false, false)
}

func TestAnEndpointThatIsReadyStays(t *testing.T) {
	s := begin()
	s.seen = time.Unix(100, 0)
	s.teamPod("fixed-0", "1", false)
	s.seen = s.seen.Add(time.Second)
	s.publishes("x", "1")
	if len(s.late) != 1 || s.late[0] != time.Second {
		t.Errorf("late are %v, want one second", s.late)
	}
	s.teamPod("fixed-1", "2", false)
	s.publishes("x", "1", "2")
	// It may be in two slices for a while.
	s.publishes("y", "2")
	s.publishes("x", "1")
	s.expect(t)
	s.publishes("y")
	s.expect(t, unpublished)
	s.publishes("y", "2")
	s.teamPod("fixed-1", "2", true)
	s.publishes("y")
	s.expect(t, unpublished, overBudget)
}

func TestOnlyAClaimThatHadNoPodMayBeLeft(t *testing.T) {
	s := begin()
	team := s.team("a-team")
	team.sets[scaledSet] = &statefulSet{StatefulSet: &apps.StatefulSet{Spec: apps.StatefulSetSpec{Replicas: ptr.To[int32](0)}}}
	at := metav1.Unix(100, 0)
	team.claims[keptClaim] = &v1.PersistentVolumeClaim{}
	name := scaledSet + "-1"
	left := func(made int64) int {
		team.claims["data-"+name] = &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Unix(made, 0)}}
		return len(team.unclaimed())
	}
	if n := left(100); n != 0 {
		t.Errorf("%d claims are left of which no pod was made", n)
	}
	team.made[name] = at
	if n := left(100); n != 1 {
		t.Errorf("%d claims are left of one whose pod was made", n)
	}
	if n := left(101); n != 0 {
		t.Errorf("%d claims are left of which no pod was made since", n)
	}
	team.claims["of-a-pod"] = &v1.PersistentVolumeClaim{}
	if n := len(team.unclaimed()); n != 1 {
		t.Errorf("%d claims are left of one that a pod had for itself", n)
	}
}

func TestABudgetIsKept(t *testing.T) {
	s := begin()
	for _, address := range []string{"0", "1", "2", "3"} {
		s.teamPod("fixed-"+address, address, false)
	}
	s.teamPod("fixed-0", "0", true)
	s.expect(t)
	s.teamPod("fixed-1", "1", true)
	s.expect(t, overBudget)
}

func TestWhatIsBoundStays(t *testing.T) {
	s := begin()
	s.ringed(catalogue.ClaimsRing, "a", 1)
	volume := newVolume("v", "")
	volume.UID, volume.Status.Phase = "v", v1.VolumeBound
	s.revision++
	s.volumeWritten(volume, false, 0)
	if left := s.unkept(); len(left) != 1 {
		t.Errorf("left are %q, want one that is not protected", left)
	}
	s.revision++
	s.volumeWritten(volume, true, s.revision-1)
	s.expect(t, unbound)
	volume.Status.Phase = v1.VolumeReleased
	s.revision += 2
	s.volumeWritten(volume, true, s.revision-1)
	s.written(auditWrite{writeID: writeID{"write", "v", s.revision - 1}, process: "b"})
	s.conclude()
	s.expect(t, unbound, nonOwner)
}

// Two rings write a claim: one protects it, one has it grow.
func TestAClaimIsWrittenByTwoRings(t *testing.T) {
	s := begin()
	s.ringed(catalogue.ClaimsRing, "a", 1)
	s.ringed(catalogue.NamespacesRing, "b", 1)
	claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "a-team", Name: keptClaim, UID: "c"}}
	for _, verb := range []string{"expand", "write"} {
		for _, process := range []string{"a", "b"} {
			s.revision++
			s.claimWritten(s.team("a-team"), claim, false, false, 0)
			s.written(auditWrite{writeID: writeID{verb, "c", s.revision}, process: process})
		}
	}
	s.conclude()
	s.expect(t, nonOwner, nonOwner)
}

func TestTheLeaderMayWriteWhatItsLeaseNames(t *testing.T) {
	for holder, want := range map[string][]string{
		"host;controllers=garbage-collector-controller,persistentvolume-expander-controller": nil,
		"host;controllers=*": nil,
		"host;controllers=*,-persistentvolume-expander-controller,-persistentvolume-protection-controller": {nonOwner},
		"host;controllers=garbage-collector-controller":                                                    {nonOwner},
	} {
		s := begin()
		s.ringed(catalogue.ClaimsRing, "a", 1)
		s.leaderWritten(holder)
		claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "a-team", Name: keptClaim, UID: "c"}}
		s.revision++
		s.allowOn(catalogue.ClaimsRing, writeID{"expand", "c", s.revision}, claim)
		s.written(auditWrite{writeID: writeID{"expand", "c", s.revision}, process: "b"})
		s.conclude()
		s.expect(t, want...)
	}
}
