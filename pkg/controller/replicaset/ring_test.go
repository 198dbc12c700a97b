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

package replicaset

import (
	"context"
	"slices"
	"testing"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/ring"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	ringtesting "k8s.io/kubernetes/pkg/controller/ring/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

type ringFixture struct {
	*ReplicaSetController
	ring      *ring.Controller
	gate      *ringtesting.Gate
	pods      *controller.FakePodControl
	env       *ring.Env
	clientset *fake.Clientset
}

func newRingFixture(t *testing.T, ctx context.Context, objects ...*apps.ReplicaSet) *ringFixture {
	f := &ringFixture{gate: &ringtesting.Gate{}, pods: &controller.FakePodControl{}, clientset: fake.NewClientset()}
	f.env, _ = ringtesting.NewEnv(t, ctx, catalogue.ReplicaSetController, f.gate, f.clientset)
	f.ReplicaSetController = NewReplicaSetController(ctx, f.env.Informers.Apps().V1().ReplicaSets(), f.env.Informers.Core().V1().Pods(), f.env.Client, BurstReplicas)
	f.podControl = f.pods
	for _, rs := range objects {
		if err := f.clientset.Tracker().Add(rs); err != nil {
			t.Fatal(err)
		}
		if err := f.env.Informers.Apps().V1().ReplicaSets().Informer().GetIndexer().Add(rs); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if f.ring, err = f.OnRing(ctx, f.env); err != nil {
		t.Fatal(err)
	}
	return f
}

func ringReplicaSet(name string, replicas int32) *apps.ReplicaSet {
	labels := map[string]string{"name": name}
	return &apps.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name, UID: types.UID("uid-of-" + name), ResourceVersion: "1"},
		Spec: apps.ReplicaSetSpec{
			Replicas: ptr.To(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}},
		},
	}
}

func TestReleasedForgetsExpectations(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	mine, other := ringReplicaSet("mine", 3), ringReplicaSet("other", 3)
	f := newRingFixture(t, ctx, mine, other)
	f.queue.Add("default/mine")
	f.queue.Add("default/other")
	f.gate.Set(hashkey.All())
	f.processNextWorkItem(ctx)
	f.processNextWorkItem(ctx)
	if n := len(f.pods.Templates); n != 6 {
		t.Errorf("%d pods were created through an open gate, want 6", n)
	}
	f.ring.Released(ringtesting.Around(metav1.HashKeyOf(mine)))
	if _, found, _ := f.expectations.GetExpectations("default/mine"); found {
		t.Error("the expectations of a released ReplicaSet are still there")
	}
	if _, found, _ := f.expectations.GetExpectations("default/other"); !found {
		t.Error("the expectations of another ReplicaSet are gone")
	}
}

// Several instances may own ReplicaSets of one Deployment. The pods of all of them rank the
// pods to delete.
func TestRelatedPodsOfOthersAreReadLive(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "d", UID: "uid-of-d", Controller: ptr.To(true)}
	mine, other, stranger := ringReplicaSet("mine", 1), ringReplicaSet("other", 1), ringReplicaSet("stranger", 1)
	mine.OwnerReferences = []metav1.OwnerReference{owner}
	other.OwnerReferences = []metav1.OwnerReference{owner}
	f := newRingFixture(t, ctx, mine, other, stranger)
	for _, rs := range []*apps.ReplicaSet{mine, other, stranger} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: rs.Namespace, Name: "pod-of-" + rs.Name, UID: types.UID("pod-of-" + rs.Name), Labels: rs.Spec.Selector.MatchLabels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(rs, controllerKind)},
		}}
		if err := f.clientset.Tracker().Add(pod); err != nil {
			t.Fatal(err)
		}
		if rs == mine {
			if err := f.env.Informers.Core().V1().Pods().Informer().GetIndexer().Add(pod); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tc := range []struct {
		open hashkey.Ranges
		want []string
	}{
		{open: ringtesting.Around(metav1.HashKeyOf(mine)), want: []string{"pod-of-mine", "pod-of-other"}},
		{open: hashkey.All(), want: []string{"pod-of-mine"}}, // from the cache, which has no other pod
	} {
		f.gate.Set(tc.open)
		pods, err := f.relatedPods(ctx, mine)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, pod := range pods {
			names = append(names, pod.Name)
		}
		slices.Sort(names)
		if !slices.Equal(names, tc.want) {
			t.Errorf("the gate open for %v: related pods %v, want %v", tc.open, names, tc.want)
		}
	}
}

var controllerKind = apps.SchemeGroupVersion.WithKind("ReplicaSet")
