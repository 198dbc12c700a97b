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

package daemon

import (
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	ringtesting "k8s.io/kubernetes/pkg/controller/ring/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// The next owner keeps its own account, and so does this instance if it becomes the owner again.
func TestReleasedForgetsAllThatWasKeptOfADaemonSet(t *testing.T) {
	logger, ctx := ktesting.NewTestContext(t)
	gate := &ringtesting.Gate{}
	gate.Set(hashkey.All())
	env, _ := ringtesting.NewEnv(t, ctx, catalogue.DaemonSetController, gate, fake.NewClientset())
	dsc, err := newOnRing(ctx, env)
	if err != nil {
		t.Fatal(err)
	}
	c, err := dsc.putOnRing(ctx, env)
	if err != nil {
		t.Fatal(err)
	}
	ds := newDaemonSet("ds")
	ds.UID = types.UID("uid-of-ds")
	if err := env.Informers.Apps().V1().DaemonSets().Informer().GetIndexer().Add(ds); err != nil {
		t.Fatal(err)
	}
	env.Informers.Core().V1().Pods().Informer().GetStore().Bookmark("1")
	name := types.NamespacedName{Namespace: ds.Namespace, Name: ds.Name}
	dsc.enqueue(ds)
	key, _ := dsc.queue.Get()
	dsc.queue.Done(key)
	_ = dsc.expectations.ExpectCreations(logger, key, 1)
	dsc.consistencyStore.WroteAt(name, ds.UID, podGroupResource, "1000")
	if dsc.expectations.SatisfiedExpectations(klog.FromContext(ctx), key) || dsc.consistencyStore.EnsureReady(name) == nil {
		t.Fatal("nothing is expected before the range is released")
	}
	c.Released(ringtesting.Around(metav1.HashKeyOf(ds)))
	if !dsc.expectations.SatisfiedExpectations(logger, key) {
		t.Error("expectations are remembered")
	}
	if err := dsc.consistencyStore.EnsureReady(name); err != nil {
		t.Errorf("a write is remembered: %v", err)
	}
}

// later is a queue that notes what is added for later.
type later struct {
	workqueue.TypedRateLimitingInterface[string]
	added map[string]time.Duration
}

func (l later) AddAfter(item string, after time.Duration) { l.added[item] = after }

// A DaemonSet that was made anew under its name uses its predecessor's revision while that is
// there, and looks again, as nothing tells it when that goes.
func TestADaemonSetLooksAgainForARevisionOfItsOwn(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	ds := newDaemonSet("ds")
	ds.UID = types.UID("uid-of-ds")
	patch, err := getPatch(ds)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		owner types.UID
		again bool
	}{
		{name: "a revision of its predecessor's", owner: "uid-before", again: true},
		{name: "its own", owner: ds.UID},
	} {
		t.Run(tc.name, func(t *testing.T) {
			revision := &apps.ControllerRevision{Data: runtime.RawExtension{Raw: patch}, ObjectMeta: metav1.ObjectMeta{
				Namespace: ds.Namespace, Name: ds.Name + "-" + controller.ComputeHash(&ds.Spec.Template, nil),
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&metav1.ObjectMeta{Name: ds.Name, UID: tc.owner}, controllerKind)},
			}}
			env, _ := ringtesting.NewEnv(t, ctx, catalogue.DaemonSetController, &ringtesting.Gate{}, fake.NewClientset(revision))
			dsc, err := newOnRing(ctx, env)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := dsc.putOnRing(ctx, env); err != nil {
				t.Fatal(err)
			}
			queue := later{dsc.queue, map[string]time.Duration{}}
			dsc.queue = queue
			got, err := dsc.snapshot(ctx, ds, 1)
			if err != nil || got.Name != revision.Name {
				t.Fatalf("got the revision %v, %v, want %s", got, err, revision.Name)
			}
			if _, again := queue.added[ds.Namespace+"/"+ds.Name]; again != tc.again {
				t.Errorf("it is looked at again: %v, want %v", again, tc.again)
			}
		})
	}
}
