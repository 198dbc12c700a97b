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

package app

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/pkg/controller/tainteviction"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// leads returns a context in which these controllers are built, with the informers of a leader.
func leads(t *testing.T, controllers string, ring bool) (ControllerContext, informers.SharedInformerFactory) {
	t.Helper()
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod"},
		Spec:       v1.PodSpec{NodeName: "node", Hostname: "host", ImagePullSecrets: []v1.LocalObjectReference{{Name: "secret"}}},
		Status:     v1.PodStatus{Phase: v1.PodRunning, Message: "all well"},
	}
	client := fake.NewClientset(pod)
	i := newLeaderInformers(client)
	typed := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(func(obj any) (any, error) {
		i.transform(obj)
		return obj, nil
	}))
	metadata := metadatainformer.NewSharedInformerFactory(metadatafake.NewSimpleMetadataClient(runtime.NewScheme()), 0)
	c := ControllerContext{InformerFactory: typed, ObjectOrMetadataInformerFactory: i.generic(informerfactory.NewInformerFactory(typed, metadata), metadata), leaderInformers: i}
	c.ComponentConfig.Generic.Controllers = strings.Split(controllers, ",")
	descriptors := NewControllerDescriptors()
	if !ring {
		for _, name := range catalogue.ControllerNames() {
			delete(descriptors, name)
		}
	}
	if err := i.keepFor(c, maps.Clone(descriptors)); err != nil {
		t.Fatal(err)
	}
	return c, typed
}

// The garbage collector looks at the UID of what is, and never at that of what was.
func TestTheCollectorHearsThatAnObjectMadeAnewHasGone(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, genericfeatures.ControllerRing, true)
	c, typed := leads(t, names.GarbageCollectorController, false)
	pods, err := c.ObjectOrMetadataInformerFactory.ForResource(v1.SchemeGroupVersion.WithResource("pods"))
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan string, 10)
	note := func(what string, obj any) {
		if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj
		}
		told <- fmt.Sprintf("%s %s", what, obj.(*v1.Pod).UID)
	}
	if _, err := pods.Informer().AddEventHandlerWithResyncPeriod(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { note("added", obj) },
		UpdateFunc: func(_, obj any) { note("updated", obj) },
		DeleteFunc: func(obj any) { note("deleted", obj) },
	}, 0); err != nil {
		t.Fatal(err)
	}
	store := typed.Core().V1().Pods().Informer()
	go store.RunWithContext(t.Context())
	if !cache.WaitForCacheSync(t.Context().Done(), store.HasSynced) {
		t.Fatal("the informer has no list")
	}
	for _, uid := range []types.UID{"", "new"} { // one update, and another object
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: uid, Labels: map[string]string{"a": "b"}}}
		if _, err := c.leaderInformers.client.CoreV1().Pods("ns").Update(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"added ", "updated ", "deleted ", "added new"} {
		if got := <-told; got != want {
			t.Errorf("told: %q, want %q", got, want)
		}
	}
}

func TestLeaderInformers(t *testing.T) {
	for _, tc := range []struct {
		name        string
		off, ring   bool
		controllers string
		// What is left of the pod, and whether ReplicaSets are held by their metadata.
		node, host, phase string
		metadata          bool
	}{
		{name: "the controllers of a leader", controllers: "*", node: "node", phase: "Running", metadata: true},
		{name: "one that reads a field", controllers: names.TaintEvictionController, node: "node", metadata: true},
		{name: "one that reads metadata", controllers: names.GarbageCollectorController, metadata: true},
		{name: "one of a ring's is back", ring: true, controllers: "*", node: "node", host: "host", phase: "Running"},
		{name: "one of a ring's is there and disabled", ring: true, controllers: names.TaintEvictionController, node: "node", metadata: true},
		{name: "the feature gate is off", off: true, controllers: "*", node: "node", host: "host", phase: "Running"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, genericfeatures.ControllerRing, !tc.off)
			c, typed := leads(t, tc.controllers, tc.ring)
			pods := typed.Core().V1().Pods().Lister()
			sets, err := c.ObjectOrMetadataInformerFactory.ForResource(appsv1.SchemeGroupVersion.WithResource("replicasets"))
			if err != nil {
				t.Fatal(err)
			}
			counted, err := c.leaderInformers.counting(typed.ForResource)(appsv1.SchemeGroupVersion.WithResource("replicasets"))
			if err != nil {
				t.Fatal(err)
			}
			if counted.Informer().GetStore() != sets.Informer().GetStore() {
				t.Error("quotas count what another informer holds")
			}
			if own := typed.Apps().V1().ReplicaSets().Informer().GetStore(); (own != sets.Informer().GetStore()) != tc.metadata {
				t.Errorf("ReplicaSets are held by their metadata: %v, want %v", !tc.metadata, tc.metadata)
			}
			ctx, cancel := context.WithCancel(context.Background())
			defer typed.Shutdown()
			defer cancel()
			typed.Start(ctx.Done())
			typed.WaitForCacheSync(ctx.Done())
			pod, err := pods.Pods("ns").Get("pod")
			if err != nil {
				t.Fatal(err)
			}
			if pod.Spec.NodeName != tc.node || pod.Spec.Hostname != tc.host || string(pod.Status.Phase) != tc.phase {
				t.Errorf("of the pod there is node %q, host %q, phase %q", pod.Spec.NodeName, pod.Spec.Hostname, pod.Status.Phase)
			}
			whole, err := c.leaderInformers.wholePods(ctx, typed.Core().V1().Pods()).Lister().Pods("ns").List(labels.Everything())
			if err != nil || len(whole) != 1 || whole[0].Spec.Hostname != "host" {
				t.Errorf("whole pods are %v, %v", whole, err)
			}
		})
	}
}

// Pods are evicted from a tainted Node whichever other controllers the leader runs: in stock it is
// others that add the index by which they are found.
func TestTaintEvictionNeedsNoOtherController(t *testing.T) {
	for _, controllers := range []string{"*", "*,-" + names.NodeLifecycleController, names.TaintEvictionController} {
		t.Run(controllers, func(t *testing.T) {
			c, typed := leads(t, controllers, false)
			client := c.leaderInformers.client
			_, ctx := ktesting.NewTestContext(t)
			ctx, cancel := context.WithCancel(ctx)
			node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
			if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			eviction, err := tainteviction.New(ctx, client, typed.Core().V1().Pods(), typed.Core().V1().Nodes(), names.TaintEvictionController)
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			defer wg.Wait()
			defer typed.Shutdown()
			defer cancel()
			typed.Start(ctx.Done())
			wg.Go(func() { eviction.Run(ctx) })
			typed.WaitForCacheSync(ctx.Done())
			// Where the taint is seen before the pod, the pod's own event would do.
			if _, err := typed.Core().V1().Pods().Informer().GetIndexer().ByIndex("spec.nodeName", "node"); err != nil {
				t.Fatal(err)
			}
			node.Spec.Taints = []v1.Taint{{Key: "away", Effect: v1.TaintEffectNoExecute}}
			if _, err := client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
				_, err := client.CoreV1().Pods("ns").Get(ctx, "pod", metav1.GetOptions{})
				return apierrors.IsNotFound(err), nil
			}); err != nil {
				t.Errorf("waiting until the pod is evicted: %v", err)
			}
		})
	}
}

// The leader runs ring controllers on informers of their own until the last instance of a ring has
// ceased to; the others go on.
func TestASecondSetOfInformersHasAName(t *testing.T) {
	i := newLeaderInformers(fake.NewClientset())
	first, err := i.informerName(cache.NewInformerName("kube-controller-manager"))
	if err != nil {
		t.Fatal(err)
	}
	defer first.Release()
	second, err := i.informerName(cache.NewInformerName("kube-controller-manager"))
	if err != nil {
		t.Fatalf("there can be no second set: %v", err)
	}
	defer second.Release()
	var off *leaderInformers
	if _, err := off.informerName(cache.NewInformerName("kube-controller-manager")); err == nil {
		t.Error("with the feature gate off it is not as in stock")
	}
}

// With a custom resource a stock lister has none, and quotas ask the API server instead.
func TestCountingKnowsNoMoreThanStock(t *testing.T) {
	c, typed := leads(t, "*", false)
	if _, err := c.leaderInformers.counting(typed.ForResource)(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}); err == nil {
		t.Error("there is an informer of a custom resource")
	}
}
