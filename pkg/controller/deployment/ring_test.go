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

package deployment

import (
	"context"
	"errors"
	"slices"
	"testing"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/ring"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	ringtesting "k8s.io/kubernetes/pkg/controller/ring/testing"
	"k8s.io/kubernetes/pkg/controller/util/consistency"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

// onRing is a Deployment controller whose gate is open, with one Deployment and what it has.
type onRing struct {
	*testing.T
	ctx    context.Context
	client *fake.Clientset
	env    *ring.Env
	dc     *DeploymentController
	d      *apps.Deployment
}

func newOnRing(t *testing.T, strategy apps.DeploymentStrategyType, sets ...*apps.ReplicaSet) *onRing {
	_, ctx := ktesting.NewTestContext(t)
	gate := &ringtesting.Gate{}
	gate.Set(hashkey.All())
	o := &onRing{T: t, ctx: ctx, client: fake.NewClientset(), d: ringDeployment(strategy)}
	o.env, _ = ringtesting.NewEnv(t, ctx, catalogue.DeploymentController, gate, o.client)
	informers := o.env.Informers.Apps().V1()
	writes := newWrites(informers.ReplicaSets().Informer().GetStore())
	var err error
	if o.dc, err = NewDeploymentController(ctx, informers.Deployments(), informers.ReplicaSets(), o.env.Unread.Core().V1().Pods(), writes.noted(o.env.Client)); err != nil {
		t.Fatal(err)
	}
	if _, err := o.dc.putOnRing(o.env, writes); err != nil {
		t.Fatal(err)
	}
	o.add(informers.Deployments().Informer().GetIndexer(), o.d)
	for _, rs := range sets {
		o.add(informers.ReplicaSets().Informer().GetIndexer(), rs)
	}
	return o
}

// add adds an object to a cache, and to the server.
func (o *onRing) add(indexer cache.Indexer, object runtime.Object) {
	o.Helper()
	if err := errors.Join(indexer.Add(object), o.client.Tracker().Add(object)); err != nil {
		o.Fatal(err)
	}
}

func ringDeployment(strategy apps.DeploymentStrategyType) *apps.Deployment {
	d := newDeployment("d", 4, nil, nil, nil, map[string]string{"app": "d"})
	d.UID, d.Generation = "uid-of-d", 1
	d.Spec.Strategy.Type = strategy
	d.Spec.Template.Spec.NodeName = "new"
	return d
}

// set returns a ReplicaSet of an earlier template, and so many pods by its status.
func set(name string, replicas, status int32, observed int64) *apps.ReplicaSet {
	d := ringDeployment("")
	d.Spec.Template.Spec.NodeName = name
	rs := newReplicaSet(d, name, replicas)
	rs.UID, rs.Generation = types.UID("uid-of-"+name), 2
	rs.Status = apps.ReplicaSetStatus{Replicas: status, ObservedGeneration: observed}
	return rs
}

// sync works on the Deployment once, and returns what was written and read live.
func (o *onRing) sync() []string {
	o.Helper()
	o.client.ClearActions()
	o.dc.queue.Add(o.d.Namespace + "/" + o.d.Name)
	o.dc.processNextWorkItem(o.ctx)
	var did []string
	for _, a := range o.client.Actions() {
		what := a.GetVerb() + " " + a.GetResource().Resource
		if a.GetSubresource() != "" {
			what += "/" + a.GetSubresource()
		}
		did = append(did, what)
	}
	return did
}

// A ReplicaSet of another instance, or of none for a while, may have pods that its size does not
// tell. Nothing is scaled then.
func TestARolloutWaitsForPodsOfOthers(t *testing.T) {
	for name, tc := range map[string]struct {
		old  *apps.ReplicaSet
		want bool
	}{
		"settled":             {set("old", 4, 4, 2), false},
		"pods to come":        {set("old", 4, 1, 2), false},
		"size not seen yet":   {set("old", 4, 4, 1), true},
		"pods yet to be gone": {set("old", 2, 4, 2), true},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOnRing(t, apps.RollingUpdateDeploymentStrategyType, tc.old)
			dc := &DeploymentController{}
			if dc.waitsForPods([]*apps.ReplicaSet{tc.old}) {
				t.Error("waits as stock's controller")
			}
			did := o.sync()
			if waits := !slices.Contains(did, "create replicasets") && !slices.Contains(did, "update replicasets"); waits != tc.want {
				t.Errorf("did %q, want it to wait: %t", did, tc.want)
			}
			if !slices.Contains(did, "update deployments/status") {
				t.Errorf("did %q: the status is not told", did)
			}
		})
	}
}

// No informer has the pods of a Deployment's ReplicaSets here.
func TestRecreateReadsOldPodsLive(t *testing.T) {
	for name, tc := range map[string]struct {
		old     *apps.ReplicaSet
		phase   v1.PodPhase
		reads   bool
		creates bool
	}{
		"not scaled down":    {set("old", 4, 4, 2), v1.PodRunning, false, false},
		"no pods yet":        {set("old", 4, 0, 2), v1.PodRunning, false, false},
		"pods still counted": {set("old", 0, 4, 2), v1.PodRunning, false, false},
		"one still runs":     {set("old", 0, 0, 2), v1.PodRunning, true, false},
		"all have ended":     {set("old", 0, 0, 2), v1.PodSucceeded, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOnRing(t, apps.RecreateDeploymentStrategyType, tc.old)
			for i, owner := range []*apps.ReplicaSet{tc.old, set("stranger", 1, 1, 2)} {
				pod := &v1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: tc.old.Namespace, Name: owner.Name, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, apps.SchemeGroupVersion.WithKind("ReplicaSet"))}},
					Status:     v1.PodStatus{Phase: []v1.PodPhase{tc.phase, v1.PodRunning}[i]},
				}
				if err := o.client.Tracker().Add(pod); err != nil {
					t.Fatal(err)
				}
			}
			did := o.sync()
			if reads := slices.Contains(did, "list pods"); reads != tc.reads {
				t.Errorf("did %q, want it to read pods: %t", did, tc.reads)
			}
			if creates := slices.Contains(did, "create replicasets"); creates != tc.creates {
				t.Errorf("did %q, want it to create a ReplicaSet: %t", did, tc.creates)
			}
		})
	}
}

// A ReplicaSet of an earlier Deployment with that name is in another range.
func TestACollidingReplicaSetIsReadLive(t *testing.T) {
	o := newOnRing(t, apps.RollingUpdateDeploymentStrategyType)
	o.client.PrependReactor("create", "replicasets", func(action core.Action) (bool, runtime.Object, error) {
		rs := action.(core.CreateAction).GetObject().(*apps.ReplicaSet)
		rs.OwnerReferences[0].UID = "another"
		if err := o.client.Tracker().Add(rs); err != nil {
			t.Error(err)
		}
		return false, nil, nil
	})
	did := o.sync()
	if !slices.Contains(did, "get replicasets") {
		t.Errorf("did %q, want it to get the ReplicaSet", did)
	}
	d, err := o.client.AppsV1().Deployments(o.d.Namespace).Get(o.ctx, o.d.Name, metav1.GetOptions{})
	if err != nil || ptr.Deref(d.Status.CollisionCount, 0) != 1 {
		t.Errorf("collisions: %v, %v; want 1", d.Status.CollisionCount, err)
	}
}

// store is a store as of a revision.
type store struct {
	cache.Store
	revision string
}

func (s *store) LastStoreSyncResourceVersion() string { return s.revision }

// What was written to one ReplicaSet counts for the next.
func TestADeploymentIsSyncedWhenItsWritesAreSeen(t *testing.T) {
	s := &store{revision: "5"}
	w := newWrites(s)
	owned := newReplicaSet(ringDeployment(""), "new", 1)
	owned.OwnerReferences[0].UID = "uid-of-d"
	owned.ResourceVersion = "7"
	client := fake.NewClientset()
	client.PrependReactor("*", "replicasets", func(core.Action) (bool, runtime.Object, error) { return true, owned, nil })
	sets := w.noted(client).AppsV1().ReplicaSets(owned.Namespace)
	key := owned.Namespace + "/d"
	for name, write := range map[string]func() error{
		"create": func() error { _, err := sets.Create(t.Context(), owned, metav1.CreateOptions{}); return err },
		"update": func() error { _, err := sets.Update(t.Context(), owned, metav1.UpdateOptions{}); return err },
	} {
		s.revision = "5"
		if err := w.seen(key); err != nil {
			t.Errorf("%s: before: %v", name, err)
		}
		if err := write(); err != nil {
			t.Fatal(err)
		}
		var inconsistent *consistency.ConsistencyError
		if err := w.seen(key); !errors.As(err, &inconsistent) {
			t.Errorf("%s: synced at revision 5 after a write at 7: %v", name, err)
		}
		if err := w.seen(owned.Namespace + "/other"); err != nil {
			t.Errorf("%s: another Deployment waits, too: %v", name, err)
		}
		s.revision = "7"
		if err := w.seen(key); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		s.revision = "5"
		if err := write(); err != nil {
			t.Fatal(err)
		}
		w.forget(cache.ObjectName{Namespace: owned.Namespace, Name: "d"}, "uid-of-d")
		if err := w.seen(key); err != nil {
			t.Errorf("%s: after it was forgotten: %v", name, err)
		}
	}
}
