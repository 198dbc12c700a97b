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
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

// testGate is open for the keys of its ranges, and counts the work that passes.
type testGate struct {
	open    hashkey.Ranges
	inside  int
	entered int
	onEnter func()
}

func (g *testGate) Enter(key int64) (func(), bool) {
	if g.onEnter != nil {
		g.onEnter()
	}
	if !g.open.Contains(key) {
		return nil, false
	}
	g.entered++
	g.inside++
	return func() { g.inside-- }, true
}

func (g *testGate) Serves(key int64) bool { return g.open.Contains(key) }
func (g *testGate) ServesAll() bool       { return g.open.Covers(hashkey.All()) }

type ringFixture struct {
	*RingController
	gate      *testGate
	pods      *controller.FakePodControl
	factory   informers.SharedInformerFactory
	clientset *fake.Clientset
}

func newRingFixture(t *testing.T, ctx context.Context, objects ...*apps.ReplicaSet) *ringFixture {
	client := fake.NewClientset()
	for _, rs := range objects {
		if err := client.Tracker().Add(rs); err != nil {
			t.Fatal(err)
		}
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	f := &ringFixture{gate: &testGate{}, pods: &controller.FakePodControl{}, factory: factory, clientset: client}
	f.RingController = OnRing(ctx, f.gate, client, func(client kubernetes.Interface) *ReplicaSetController {
		return NewReplicaSetController(ctx, factory.Apps().V1().ReplicaSets(), factory.Core().V1().Pods(), client, BurstReplicas)
	})
	f.podControl = f.pods
	for _, rs := range objects {
		if err := factory.Apps().V1().ReplicaSets().Informer().GetIndexer().Add(rs); err != nil {
			t.Fatal(err)
		}
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

func around(key int64) hashkey.Ranges {
	return hashkey.NewRanges(hashkey.Range{Start: uint64(key), End: uint64(key) + 1})
}

func TestSyncPassesTheGate(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	rs := ringReplicaSet("mine", 3)
	f := newRingFixture(t, ctx, rs)
	key := cache.MetaObjectToName(rs).String()

	if err := f.syncHandler(ctx, key); err != nil {
		t.Fatal(err)
	}
	if n := len(f.pods.Templates); n != 0 {
		t.Errorf("%d pods were created though the gate was shut", n)
	}
	f.gate.open = around(metav1.HashKeyOf(rs))
	if err := f.syncHandler(ctx, key); err != nil {
		t.Fatal(err)
	}
	if n := len(f.pods.Templates); n != 3 {
		t.Errorf("%d pods were created through an open gate, want 3", n)
	}
	if f.gate.entered != 1 || f.gate.inside != 0 {
		t.Errorf("entered %d times, %d still inside; want 1 and none", f.gate.entered, f.gate.inside)
	}
}

// What a worker read before it passed the gate may be older than the previous owner's work.
// It must not act on that.
func TestSyncReadsAgainBehindTheGate(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	rs := ringReplicaSet("mine", 10)
	f := newRingFixture(t, ctx, rs)
	f.gate.open = hashkey.All()
	store := f.factory.Apps().V1().ReplicaSets().Informer().GetIndexer()
	key := cache.MetaObjectToName(rs).String()

	f.gate.onEnter = func() {
		scaled := rs.DeepCopy()
		scaled.Spec.Replicas = ptr.To[int32](2)
		if err := store.Update(scaled); err != nil {
			t.Error(err)
		}
	}
	if err := f.syncHandler(ctx, key); err != nil {
		t.Fatal(err)
	}
	if n := len(f.pods.Templates); n != 2 {
		t.Errorf("%d pods were created, want the 2 of the ReplicaSet as read behind the gate", n)
	}

	// Another ReplicaSet of the same name has another key, which has not passed the gate.
	f.pods.Clear()
	f.gate.onEnter = func() {
		other := ringReplicaSet("mine", 4)
		other.UID = "another"
		if err := store.Update(other); err != nil {
			t.Error(err)
		}
	}
	if err := f.syncHandler(ctx, key); err != nil {
		t.Fatal(err)
	}
	if n := len(f.pods.Templates); n != 0 {
		t.Errorf("%d pods were created for a ReplicaSet that has not passed the gate", n)
	}
	if f.gate.inside != 0 {
		t.Errorf("%d pieces of work never left the gate", f.gate.inside)
	}
	if f.queue.Len() != 1 {
		t.Errorf("%d keys queued, want the new ReplicaSet's", f.queue.Len())
	}
}

func TestReleasedForgetsAndAcquiredQueues(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	mine, other := ringReplicaSet("mine", 3), ringReplicaSet("other", 3)
	f := newRingFixture(t, ctx, mine, other)
	f.gate.open = hashkey.All()
	for _, rs := range []*apps.ReplicaSet{mine, other} {
		if err := f.syncHandler(ctx, cache.MetaObjectToName(rs).String()); err != nil {
			t.Fatal(err)
		}
	}
	ranges := around(metav1.HashKeyOf(mine))
	f.Released(ranges)
	if _, found, _ := f.expectations.GetExpectations("default/mine"); found {
		t.Error("the expectations of a released ReplicaSet are still there")
	}
	if _, found, _ := f.expectations.GetExpectations("default/other"); !found {
		t.Error("the expectations of another ReplicaSet are gone")
	}
	f.Prepare(around(metav1.HashKeyOf(other)))
	if _, found, _ := f.expectations.GetExpectations("default/other"); found {
		t.Error("a ReplicaSet begins with the expectations of another time")
	}
	// A donor that calls a handover off opens its gate again without having released anything.
	if err := f.syncHandler(ctx, "default/other"); err != nil {
		t.Fatal(err)
	}
	f.Prepare(around(metav1.HashKeyOf(other)))
	if _, found, _ := f.expectations.GetExpectations("default/other"); !found {
		t.Error("the expectations of work that goes on are gone")
	}
	f.Acquired(ranges)
	if key, _ := f.queue.Get(); f.queue.Len() != 0 || key != "default/mine" {
		t.Errorf("queued %q and %d more, want default/mine alone", key, f.queue.Len())
	}
	if keys := f.Keys(ranges); len(keys) != 1 || keys[0] != metav1.HashKeyOf(mine) {
		t.Errorf("keys %v, want that of mine alone", keys)
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
			if err := f.factory.Core().V1().Pods().Informer().GetIndexer().Add(pod); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tc := range []struct {
		open hashkey.Ranges
		want []string
	}{
		{open: around(metav1.HashKeyOf(mine)), want: []string{"pod-of-mine", "pod-of-other"}},
		{open: hashkey.All(), want: []string{"pod-of-mine"}}, // from the cache, which has no other pod
	} {
		f.gate.open = tc.open
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
