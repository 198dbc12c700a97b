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
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/deployment/util"
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
	writes := newWrites(o.env.Client, informers.ReplicaSets().Informer().GetStore())
	var err error
	if o.dc, err = NewDeploymentController(ctx, informers.Deployments(), informers.ReplicaSets(), o.env.Unread.Core().V1().Pods(), writes); err != nil {
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
			if dc.waitsForPods(o.ctx, o.d, []*apps.ReplicaSet{tc.old}) {
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

// Nothing may ever delete the surplus pods: a webhook forbids it, or a finalizer holds up a
// ReplicaSet whose pods are only deleted after it.
func TestWhatARolloutDoesNotWaitFor(t *testing.T) {
	current := func(replicas, status int32, observed int64) *apps.ReplicaSet {
		rs := set("new", replicas, status, observed)
		rs.Spec.Template = ringDeployment("").Spec.Template
		return rs
	}
	deleted := func(rs *apps.ReplicaSet) *apps.ReplicaSet {
		rs.DeletionTimestamp, rs.Finalizers = ptr.To(metav1.Now()), []string{"example.com/held"}
		return rs
	}
	desired := func(rs *apps.ReplicaSet, n string) *apps.ReplicaSet {
		rs.Annotations = map[string]string{util.DesiredReplicasAnnotation: n}
		return rs
	}
	for name, tc := range map[string]struct {
		sets []*apps.ReplicaSet
		d    func(*apps.Deployment)
		want bool
	}{
		"old":                          {sets: []*apps.ReplicaSet{set("old", 2, 4, 2)}, want: true},
		"old, nothing is wanted":       {sets: []*apps.ReplicaSet{set("old", 2, 4, 1)}, d: func(d *apps.Deployment) { d.Spec.Replicas = ptr.To[int32](0) }},
		"the new one":                  {sets: []*apps.ReplicaSet{current(2, 4, 2)}},
		"the new one, not seen yet":    {sets: []*apps.ReplicaSet{current(2, 4, 1)}, want: true},
		"the new one and an old one":   {sets: []*apps.ReplicaSet{current(2, 4, 2), set("old", 2, 4, 2)}, want: true},
		"the new one is scaled":        {sets: []*apps.ReplicaSet{desired(current(2, 4, 2), "3")}, want: true},
		"it has been scaled":           {sets: []*apps.ReplicaSet{desired(current(2, 4, 2), "4")}},
		"the new one is paused":        {sets: []*apps.ReplicaSet{current(2, 4, 2)}, d: func(d *apps.Deployment) { d.Spec.Paused = true }, want: true},
		"being deleted":                {sets: []*apps.ReplicaSet{deleted(set("old", 2, 4, 2))}},
		"being deleted, not seen yet":  {sets: []*apps.ReplicaSet{deleted(set("old", 2, 4, 1))}, want: true},
		"being deleted beside another": {sets: []*apps.ReplicaSet{deleted(set("old", 2, 4, 2)), set("older", 1, 2, 2)}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			_, ctx := ktesting.NewTestContext(t)
			d := ringDeployment(apps.RollingUpdateDeploymentStrategyType)
			if tc.d != nil {
				tc.d(d)
			}
			if got := (&DeploymentController{onRing: true}).waitsForPods(ctx, d, tc.sets); got != tc.want {
				t.Errorf("waits: %t, want %t", got, tc.want)
			}
		})
	}
}

// Before there is a new ReplicaSet, the last rollout's success would end the deadline for ever.
func TestTheDeadlineCountsFromTheBeginningOfAWait(t *testing.T) {
	old := set("old", 2, 4, 2)
	o := newOnRing(t, apps.RollingUpdateDeploymentStrategyType, old)
	o.d.Spec.ProgressDeadlineSeconds = ptr.To[int32](600)
	done := util.NewDeploymentCondition(apps.DeploymentProgressing, v1.ConditionTrue, util.NewRSAvailableReason, "done")
	done.LastUpdateTime = metav1.NewTime(time.Now().Add(-time.Hour))
	o.d.Status.Conditions = []apps.DeploymentCondition{*done}
	deployments := o.client.AppsV1().Deployments(o.d.Namespace)
	progress := func() *apps.DeploymentCondition {
		t.Helper()
		d, err := deployments.Get(o.ctx, o.d.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return util.GetDeploymentCondition(d.Status, apps.DeploymentProgressing)
	}
	o.sync()
	if c := progress(); c.Status != v1.ConditionTrue || c.Reason != util.ReplicaSetUpdatedReason || time.Since(c.LastUpdateTime.Time) > time.Minute {
		t.Errorf("after the wait has begun: %v", c)
	}
	// A new ReplicaSet has its own beginning.
	o.d.Status.Conditions = []apps.DeploymentCondition{*done}
	current := set("new", 2, 2, 1)
	current.Spec.Template = o.d.Spec.Template
	o.add(o.env.Informers.Apps().V1().ReplicaSets().Informer().GetIndexer(), current)
	o.sync()
	if c := progress(); strings.Contains(c.Message, "waits") {
		t.Errorf("with a new ReplicaSet: %v", c)
	}
	if err := o.env.Informers.Apps().V1().ReplicaSets().Informer().GetIndexer().Delete(current); err != nil {
		t.Fatal(err)
	}

	late := util.NewDeploymentCondition(apps.DeploymentProgressing, v1.ConditionTrue, util.ReplicaSetUpdatedReason, "waits")
	late.LastUpdateTime = done.LastUpdateTime
	o.d.Status.Conditions = []apps.DeploymentCondition{*late}
	o.sync()
	if c := progress(); c.Status != v1.ConditionFalse || c.Reason != util.TimedOutReason {
		t.Errorf("after the deadline: %v", c)
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
	client := fake.NewClientset()
	w := newWrites(client, s)
	owned := newReplicaSet(ringDeployment(""), "new", 1)
	owned.OwnerReferences[0].UID = "uid-of-d"
	owned.ResourceVersion = "7"
	client.PrependReactor("*", "replicasets", func(core.Action) (bool, runtime.Object, error) { return true, owned, nil })
	sets := w.AppsV1().ReplicaSets(owned.Namespace)
	key := owned.Namespace + "/d"
	for name, write := range map[string]func() error{
		"create": func() error { _, err := sets.Create(t.Context(), owned, metav1.CreateOptions{}); return err },
		"update": func() error { _, err := sets.Update(t.Context(), owned, metav1.UpdateOptions{}); return err },
	} {
		s.revision = "5"
		if err := w.seen(t.Context(), key); err != nil {
			t.Errorf("%s: before: %v", name, err)
		}
		if err := write(); err != nil {
			t.Fatal(err)
		}
		var inconsistent *consistency.ConsistencyError
		if err := w.seen(t.Context(), key); !errors.As(err, &inconsistent) {
			t.Errorf("%s: synced at revision 5 after a write at 7: %v", name, err)
		}
		if err := w.seen(t.Context(), owned.Namespace+"/other"); err != nil {
			t.Errorf("%s: another Deployment waits, too: %v", name, err)
		}
		s.revision = "7"
		if err := w.seen(t.Context(), key); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		s.revision = "5"
		if err := write(); err != nil {
			t.Fatal(err)
		}
		w.forget(cache.ObjectName{Namespace: owned.Namespace, Name: "d"}, "uid-of-d")
		if err := w.seen(t.Context(), key); err != nil {
			t.Errorf("%s: after it was forgotten: %v", name, err)
		}
	}
}

// A write without an answer may have been stored, or not, or be stored later.
func TestAWriteWithoutAnAnswerIsSentAgain(t *testing.T) {
	lost := errors.New("unexpected EOF")
	sets := apps.Resource("replicasets")
	const d = "d"
	for name, tc := range map[string]struct {
		// again answers the write when it is sent again; nil: it is stored, at revision 7.
		again error
		// found is the revision of the ReplicaSet, "" if there is none.
		found string
		waits bool
		// sent and gets are how often the write was sent again, and the ReplicaSet read.
		sent, gets int
	}{
		"stored late":   {nil, "", true, 1, 0},
		"stored":        {apierrors.NewAlreadyExists(sets, "new"), "7", true, 1, 1},
		"of others":     {apierrors.NewConflict(sets, "new", lost), "5", false, 1, 1},
		"no such":       {apierrors.NewNotFound(sets, "new"), "", false, 1, 1},
		"always failed": {apierrors.NewInternalError(lost), "5", false, doubtFailed, 1},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			w := newWrites(client, &store{revision: "5"})
			owned := newReplicaSet(ringDeployment(""), "new", 1)
			owned.Namespace, owned.OwnerReferences[0].UID = "ns", "uid-of-d"
			stored := func(revision string) *apps.ReplicaSet {
				rs := owned.DeepCopy()
				rs.ResourceVersion = revision
				return rs
			}
			answer, sent, gets := lost, 0, 0
			for _, verb := range []string{"create", "update"} {
				client.PrependReactor(verb, "replicasets", func(action core.Action) (bool, runtime.Object, error) {
					if rs := action.(core.CreateAction).GetObject().(*apps.ReplicaSet); *rs.Spec.Replicas != 1 {
						t.Errorf("sent again with %d replicas", *rs.Spec.Replicas)
					}
					sent++
					return true, stored("7"), answer
				})
			}
			client.PrependReactor("get", "replicasets", func(core.Action) (bool, runtime.Object, error) {
				if gets++; tc.found == "" {
					return true, nil, apierrors.NewNotFound(sets, "new")
				}
				return true, stored(tc.found), nil
			})
			api := w.AppsV1().ReplicaSets("ns")
			for verb, write := range map[string]func(*apps.ReplicaSet) error{
				"create": func(rs *apps.ReplicaSet) error {
					_, err := api.Create(t.Context(), rs, metav1.CreateOptions{})
					return err
				},
				"update": func(rs *apps.ReplicaSet) error {
					_, err := api.Update(t.Context(), rs, metav1.UpdateOptions{})
					return err
				},
			} {
				answer = lost
				rs := owned.DeepCopy()
				if write(rs) == nil {
					t.Fatalf("%s got an answer", verb)
				}
				// What was sent is sent again, whatever has become of the object.
				rs.Spec.Replicas = ptr.To[int32](3)
				if err := w.seen(t.Context(), "ns/d"); !errors.Is(err, lost) {
					t.Errorf("%s, and no answer again: %v", verb, err)
				}
				if err := w.seen(t.Context(), "ns/other"); err != nil {
					t.Errorf("%s: another Deployment waits, too: %v", verb, err)
				}
				answer, sent, gets = tc.again, 0, 0
				for range tc.sent - 1 {
					if err := w.seen(t.Context(), "ns/d"); err == nil {
						t.Errorf("%s: it does not wait", verb)
					}
				}
				for range 2 {
					if err := w.seen(t.Context(), "ns/d"); (err != nil) != tc.waits {
						t.Errorf("%s: %v, want it to wait: %t", verb, err, tc.waits)
					}
				}
				if sent != tc.sent || gets != tc.gets {
					t.Errorf("%s: sent again %d times, read %d times; want %d and %d", verb, sent, gets, tc.sent, tc.gets)
				}
				w.forget(cache.ObjectName{Namespace: "ns", Name: d}, "uid-of-d")
			}
			answer = lost
			if _, err := api.Update(t.Context(), owned, metav1.UpdateOptions{}); err == nil {
				t.Fatal("no error")
			}
			w.forget(cache.ObjectName{Namespace: "ns", Name: d}, "uid-of-d")
			if err := w.seen(t.Context(), "ns/d"); err != nil {
				t.Errorf("after it was forgotten: %v", err)
			}
			answer, sent = apierrors.NewConflict(sets, "new", lost), 0
			if _, err := api.Update(t.Context(), owned, metav1.UpdateOptions{}); err == nil {
				t.Fatal("no error")
			}
			if err := w.seen(t.Context(), "ns/d"); err != nil || sent != 1 {
				t.Errorf("one that was refused was sent %d times: %v", sent, err)
			}
		})
	}
}

// The answer to the second sending may say no more than that something is there.
func TestAWriteStaysInDoubtWhileItsReplicaSetCannotBeRead(t *testing.T) {
	lost := errors.New("unexpected EOF")
	client := fake.NewClientset()
	w := newWrites(client, &store{revision: "5"})
	owned := newReplicaSet(ringDeployment(""), "new", 1)
	owned.Namespace, owned.OwnerReferences[0].UID, owned.ResourceVersion = "ns", "uid-of-d", "5"
	answer, down := lost, true
	client.PrependReactor("update", "replicasets", func(core.Action) (bool, runtime.Object, error) { return true, nil, answer })
	client.PrependReactor("get", "replicasets", func(core.Action) (bool, runtime.Object, error) {
		if down {
			return true, nil, lost
		}
		return true, owned, nil
	})
	if _, err := w.AppsV1().ReplicaSets("ns").Update(t.Context(), owned, metav1.UpdateOptions{}); err == nil {
		t.Fatal("no error")
	}
	answer = apierrors.NewConflict(apps.Resource("replicasets"), "new", lost)
	for range 2 {
		if err := w.seen(t.Context(), "ns/d"); !errors.Is(err, lost) {
			t.Errorf("no answer to the question: %v", err)
		}
	}
	down = false
	if err := w.seen(t.Context(), "ns/d"); err != nil {
		t.Errorf("it was read: %v", err)
	}
}
