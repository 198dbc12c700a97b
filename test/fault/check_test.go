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
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/test/harness/audit"
)

// story feeds a checker with changes, one step at a time.
type story struct{ *checker }

func begin() story {
	return story{newChecker(func(holder string) string { return holder })}
}

func (s story) instance(name string, key int64) {
	s.revision++
	s.instanceWritten(&shardingv1alpha1.ControllerInstance{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       shardingv1alpha1.ControllerInstanceSpec{Ring: catalogue.WorkloadsRing, HolderIdentity: name, HashKey: (*shardingv1alpha1.HashKey)(&key)},
		Status:     shardingv1alpha1.ControllerInstanceStatus{Phase: shardingv1alpha1.InstanceActive},
	})
}

func (s story) wants(set string, generation int64, replicas int32, observed int64) {
	s.revision++
	s.setWritten(&apps.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: set, UID: types.UID(set), Generation: generation},
		Spec:       apps.ReplicaSetSpec{Replicas: &replicas},
		Status:     apps.ReplicaSetStatus{ObservedGeneration: observed},
	}, s.revision)
}

// deploys writes a Deployment that may have a pod more than it wants, and part a ReplicaSet of it.
func (s story) deploys(t *testing.T, deployment string, generation int64, replicas int32, observed int64) {
	t.Helper()
	s.revision++
	surge := intstr.FromInt32(1)
	if err := s.deploymentWritten(&apps.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: deployment, UID: types.UID(deployment), Generation: generation},
		Spec:       apps.DeploymentSpec{Replicas: &replicas, Strategy: apps.DeploymentStrategy{RollingUpdate: &apps.RollingUpdateDeployment{MaxSurge: &surge}}},
		Status:     apps.DeploymentStatus{ObservedGeneration: observed},
	}, s.revision); err != nil {
		t.Fatal(err)
	}
}

func (s story) part(deployment, set string, generation int64, replicas int32, observed int64) {
	yes := true
	s.revision++
	s.setWritten(&apps.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: set, UID: types.UID(set), Generation: generation, OwnerReferences: []metav1.OwnerReference{{UID: types.UID(deployment), Controller: &yes}}},
		Spec:       apps.ReplicaSetSpec{Replicas: &replicas, Template: v1.PodTemplateSpec{Spec: v1.PodSpec{NodeName: set}}},
		Status:     apps.ReplicaSetStatus{ObservedGeneration: observed},
	}, s.revision)
}

func pod(set, name string) *v1.Pod {
	yes := true
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), OwnerReferences: []metav1.OwnerReference{{UID: types.UID(set), Controller: &yes}}}}
}

func (s story) create(set, name string) { s.revision++; s.podCreated(pod(set, name)) }
func (s story) delete(set, name string) { s.revision++; s.podDeleted(pod(set, name)) }
func (s story) by(process, verb, name string) {
	s.written(auditWrite{writeID: writeID{verb: verb, uid: types.UID(name)}, process: process})
}

func (s story) expect(t *testing.T, kinds ...string) {
	t.Helper()
	var got []string
	for _, v := range s.violations {
		got = append(got, v.kind)
	}
	if !slices.Equal(got, kinds) {
		t.Errorf("found %q, want %q", got, kinds)
	}
}

func TestNonOwner(t *testing.T) {
	s := begin()
	key := metav1.HashKeyOf(&apps.ReplicaSet{ObjectMeta: metav1.ObjectMeta{UID: "set"}})
	s.wants("set", 1, 9, 0)
	s.wants("set", 2, 0, 0)
	// a owns the keys up to the ReplicaSet's, and those above b's. b owns only its own.
	s.instance("a", key)
	s.instance("b", key+1)
	s.create("set", "p1")
	s.by("a", "create", "p1")
	s.expect(t)
	// The audit log may come first, or after the key has another owner.
	s.by("a", "create", "p2")
	s.create("set", "p2")
	s.create("set", "p3")
	s.instance("a", key-1)
	s.by("a", "create", "p3")
	s.expect(t)
	s.create("set", "p4")
	s.by("a", "create", "p4")
	s.conclude()
	s.expect(t, nonOwner)
	s.delete("set", "p1")
	s.by("b", "delete", "p1")
	s.conclude()
	s.expect(t, nonOwner)
	// The lowest instance also owns the keys above the highest.
	s.instance("b", key-2)
	s.create("set", "p5")
	s.by("b", "create", "p5")
	s.conclude()
	s.expect(t, nonOwner)
	s.instanceGone("b")
	s.instanceGone("a")
	s.create("set", "p6")
	s.by("a", "create", "p6")
	s.conclude()
	s.expect(t, nonOwner, nonOwner)
	if len(s.lost) != 2 || s.work != 7 || len(s.due) != 0 {
		t.Errorf("%d records lost, %d writes judged, %d due; want 2, 7, 0", len(s.lost), s.work, len(s.due))
	}
}

func TestStatusIsAWriteToo(t *testing.T) {
	s := begin()
	s.instance("a", 5)
	s.wants("set", 1, 9, 0)
	s.wants("set", 2, 9, 0) // the specification, which no controller writes
	s.wants("set", 2, 9, 1)
	s.written(auditWrite{writeID: writeID{"status", "set", s.revision}, process: "b"})
	if len(s.due) != 0 {
		t.Errorf("%d writes due, want 0", len(s.due))
	}
	s.conclude()
	s.expect(t, nonOwner)
}

func TestExcess(t *testing.T) {
	s := begin()
	s.processOf = nil
	s.wants("set", 1, 1, 0)
	s.create("set", "p1")
	s.expect(t)
	s.create("set", "p2")
	s.expect(t, excess)
	s.delete("set", "p2")
	s.expect(t, excess)
	s.delete("set", "p1")
	s.expect(t, excess, needless)
	s.create("set", "p3")
	// The controller may act on any generation from the observed one on.
	s.wants("set", 2, 3, 1)
	s.wants("set", 3, 0, 1)
	s.create("set", "p4")
	s.create("set", "p5")
	s.expect(t, excess, needless)
	if left := s.unsettled(); len(left) != 1 || !strings.Contains(left[0], "wants 0, has 3") {
		t.Errorf("unsettled: %q", left)
	}
	s.wants("set", 3, 0, 3)
	s.create("set", "p6")
	s.expect(t, excess, needless, excess)
}

func TestSurge(t *testing.T) {
	s := begin()
	s.processOf = nil
	s.deploys(t, "d", 1, 2, 0)
	s.part("d", "old", 1, 2, 0)
	s.deploys(t, "d", 1, 2, 1)
	s.create("old", "p1")
	s.create("old", "p2")
	// A rollout may have one more, of whichever ReplicaSet.
	s.part("d", "new", 1, 2, 0)
	s.create("new", "p3")
	s.expect(t)
	s.create("new", "p4")
	s.expect(t, surge)
	// What the old one is about to delete does not count.
	s.part("d", "old", 2, 0, 2)
	s.part("d", "new", 2, 3, 1)
	s.create("new", "p5")
	s.expect(t, surge)
	s.create("new", "p6")
	s.expect(t, surge, excess, surge)
}

func TestSurgeOfADeploymentThatIsScaledDown(t *testing.T) {
	s := begin()
	s.processOf = nil
	s.deploys(t, "d", 1, 3, 1)
	s.part("d", "set", 1, 3, 1)
	s.create("set", "p1")
	s.deploys(t, "d", 2, 0, 1)
	s.deploys(t, "d", 2, 0, 2)
	// The ReplicaSet has not heard of it yet.
	s.create("set", "p2")
	s.part("d", "set", 2, 0, 1)
	s.create("set", "p3")
	s.expect(t)
	s.part("d", "set", 2, 0, 2)
	s.create("set", "p4")
	s.expect(t, excess, surge)
}

// A write that removes an object names the revision of the write before it, which may have been
// when another owned it.
func TestARemovalNamesTheRevisionBefore(t *testing.T) {
	for _, owner := range []string{"a", "b"} {
		s := begin()
		removal := writeID{"write", "set", 7}
		s.allow(removal, "set", "set", "set")
		s.written(auditWrite{writeID: removal, process: owner})
		s.instance("a", 5)
		s.allow(removal, "set", "set", "set")
		s.conclude()
		if owner == "a" {
			s.expect(t)
		} else {
			s.expect(t, nonOwner)
		}
	}
}

func TestWritesWithoutAnAnswer(t *testing.T) {
	s := begin()
	s.instance("a", 5)
	s.wants("set", 1, 9, 0)
	s.create("set", "p1")
	s.create("set", "p2")
	s.create("set", "p3")
	s.unclear["create p1"] = []string{"b", "a"}
	s.unclear["create p2"] = []string{"b"}
	left := s.conclude()
	s.expect(t, nonOwner)
	if len(left) != 1 || left[0].object != "p3" {
		t.Errorf("not in the audit log: %v, want p3", left)
	}
}

func TestPodsForOwnersThatAreGone(t *testing.T) {
	s := begin()
	key := metav1.HashKeyOf(&metav1.ObjectMeta{UID: "gone"})
	s.instance("a", key)
	s.instance("b", key+1)
	s.create("gone", "p1")
	of := pod("gone", "p2")
	of.OwnerReferences[0].Kind = "Job"
	if _, err := s.podWritten(of, true, false, s.revision); err != nil {
		t.Fatal(err)
	}
	s.by("a", "create", "p1")
	s.by("b", "create", "p2")
	if left := s.conclude(); len(left) != 0 {
		t.Errorf("not in the audit log: %v", left)
	}
	s.expect(t, nonOwner)
}

// What changes nothing is answered with the revision of the write before it.
func TestWritesThatAnotherRepeats(t *testing.T) {
	s := begin()
	s.instance("a", 5)
	s.wants("set", 1, 9, 0)
	s.wants("set", 2, 0, 0)
	s.create("set", "p1")
	s.create("set", "p2")
	s.create("set", "p3")
	s.delete("set", "p1")
	s.by("b", "create", "p1")
	s.by("a", "create", "p1")
	s.by("b", "create", "p2")
	s.by("b", "delete", "p1")
	s.by("b", "create", "p3")
	s.unclear["create p2"] = []string{"b", "a"}
	s.unclear["create p3"] = []string{"c"}
	s.unclear["delete p1"] = []string{"a"}
	if left := s.conclude(); len(left) != 0 || s.work != 4 {
		t.Errorf("%d writes are missed, and %d judged; want none, and 4", len(left), s.work)
	}
	s.expect(t, nonOwner)
	if want := "create p3 for set"; !strings.Contains(s.violations[0].text, want) {
		t.Errorf("found %q, want %q", s.violations[0].text, want)
	}
}

// The first of its two transactions marks the object, the second removes it.
func TestADeleteThatTheFenceRefusesMayHaveMarkedItsObject(t *testing.T) {
	fenced := metav1.Status{Code: 409, Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: fence.CauseFenced}}}}
	for _, tc := range []struct {
		verb   string
		status metav1.Status
		want   bool
	}{
		{"delete", fenced, true},
		{"create", fenced, false},
		{"delete", metav1.Status{Code: 409}, false},
	} {
		if got := (&auditEvent{Event: audit.Event{Verb: tc.verb, ResponseStatus: tc.status}}).failed(); got != tc.want {
			t.Errorf("%s with %+v leaves open whether it was done: %t, want %t", tc.verb, tc.status, got, tc.want)
		}
	}
}

// What the leader's collectors delete, or finish where somebody else's deletion was cut, is no
// write of a ring.
func TestWhatCollectorsDeleteIsNotJudged(t *testing.T) {
	for agent, want := range map[string]string{
		"generic-garbage-collector": "", "pod-garbage-collector": "", "job-controller": "delete",
	} {
		e := auditEvent{Event: audit.Event{Verb: "delete", UserAgent: "kube-controller-manager/v1.37.2 system:serviceaccount:kube-system:" + agent}}
		e.ObjectRef.Resource = "pods"
		if got := e.verb(); got != want {
			t.Errorf("a deletion by %s is judged as %q, want %q", agent, got, want)
		}
	}
}

func TestADeletionWithoutAnAnswerExcusesOne(t *testing.T) {
	deletion := func(verb, home string) claim { return claim{writeID: writeID{verb: verb}, home: home} }
	found := func(homes ...string) (all []violation) {
		for _, home := range homes {
			all = append(all, violation{kind: needless, home: home})
		}
		return append(all, violation{kind: excess, home: "a"})
	}
	for name, tc := range map[string]struct {
		untold []claim
		want   []violation
	}{
		"none":                 {nil, found("a", "a", "b")},
		"of the ReplicaSet":    {[]claim{deletion("delete", "a")}, found("a", "b")},
		"of another":           {[]claim{deletion("delete", "c")}, found("a", "a", "b")},
		"more than there were": {[]claim{deletion("delete", "b"), deletion("delete", "b")}, found("a", "a")},
		"a creation":           {[]claim{deletion("create", "a")}, found("a", "a", "b")},
	} {
		if got := excuse(found("a", "a", "b"), tc.untold); !slices.Equal(got, tc.want) {
			t.Errorf("%s: left are %v, want %v", name, got, tc.want)
		}
	}
}
