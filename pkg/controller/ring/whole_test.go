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

package ring_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/ring/member"
	"k8s.io/kubernetes/pkg/controller/ring"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	ringtesting "k8s.io/kubernetes/pkg/controller/ring/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// A DaemonSet controller deletes the pods of Nodes that it does not have.
func TestNodesAreHeldWholeOrNotAtAll(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	client := ringtesting.NewClient(
		&v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a", ResourceVersion: "1", Labels: map[string]string{"l": "a"}, Annotations: map[string]string{"a": "b"}},
			Spec:       v1.NodeSpec{Taints: []v1.Taint{{Key: "t"}}},
			Status:     v1.NodeStatus{Images: []v1.ContainerImage{{Names: []string{"image"}}}},
		},
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "b", ResourceVersion: "1"}},
	)
	env, informers := ringtesting.NewEnv(t, ctx, catalogue.DaemonSetController, &ringtesting.Gate{}, client)
	nodes := env.Informers.Core().V1().Nodes()
	indexer := nodes.Informer().GetIndexer()
	source := informers.Sources[len(informers.Sources)-1]
	part := ringtesting.Around(metav1.HashKeyOf(&metav1.ObjectMeta{UID: "a"}))

	source.SetRanges(part)
	if held := source.Held(); !held.Empty() {
		t.Errorf("holds %v before it has listed", held)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { informers.Run(ctx) })
	if err := source.WaitFor(ctx, part); err != nil {
		t.Fatal(err)
	}
	if held := source.Held(); !held.Covers(hashkey.All()) || len(indexer.List()) != 2 {
		t.Errorf("with a part of the keys it holds %v and has %d Nodes, want all", held, len(indexer.List()))
	}
	node, err := nodes.Lister().Get("a")
	if err != nil {
		t.Fatal(err)
	}
	if node.Labels["l"] != "a" || len(node.Spec.Taints) != 1 || node.Annotations != nil || node.Status.Images != nil {
		t.Errorf("kept %+v, want labels and taints alone", node)
	}
	if keys := source.Keys(hashkey.All()); len(keys) != 0 {
		t.Errorf("%d Nodes count as load of the range", len(keys))
	}
	source.SetRanges(nil)
	if err := wait.PollUntilContextTimeout(ctx, time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return source.Held().Empty() && len(indexer.List()) == 0, nil
	}); err != nil {
		t.Errorf("without a range it holds %v and has %d Nodes: %v", source.Held(), len(indexer.List()), err)
	}
}

// Two rings of a process hold one copy of the Nodes, for as long as one of them needs it.
func TestRingsShareWhatTheyHoldWhole(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	client := ringtesting.NewClient(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a", ResourceVersion: "1"}})
	whole := ring.NewWhole(ctx, client, 0)
	nodes := func(controller string) (source member.Source, informer cache.SharedIndexInformer, leave func()) {
		described := ringtesting.Described(t, controller)
		informers := ring.NewInformers(client, 0, whole)
		env, err := ring.NewEnv(ctx, described, informers, &ringtesting.Gate{}, client)
		if err != nil {
			t.Fatal(err)
		}
		running, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { informers.Run(running) })
		return informers.Sources[len(informers.Sources)-1], env.Informers.Core().V1().Nodes().Informer(), func() {
			cancel()
			wg.Wait()
			informers.Close()
		}
	}
	first, informer, leaveFirst := nodes(catalogue.DaemonSetController)
	second, other, leaveSecond := nodes(catalogue.EndpointSliceController)
	var told atomic.Int32
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { told.Add(1) }, DeleteFunc: func(any) { told.Add(100) },
	}); err != nil {
		t.Fatal(err)
	}
	part := ringtesting.Around(1)
	for _, source := range []member.Source{first, second} {
		source.SetRanges(part)
		if err := source.WaitFor(ctx, part); err != nil {
			t.Fatal(err)
		}
		if !source.Held().Covers(hashkey.All()) {
			t.Errorf("holds %v, want all", source.Held())
		}
	}
	if informer.GetIndexer() != other.GetIndexer() {
		t.Error("each ring has Nodes of its own")
	}
	await(t, ctx, "the first ring's handler is told of the Node", func() bool { return told.Load() == 1 })
	leaveFirst()
	if n := len(informer.GetIndexer().List()); n != 1 || !second.Held().Covers(hashkey.All()) {
		t.Errorf("when one ring has left, the other has %d Nodes and holds %v", n, second.Held())
	}
	leaveSecond()
	await(t, ctx, "nothing is held when nobody needs it", func() bool { return len(informer.GetIndexer().List()) == 0 })
	if n := told.Load(); n != 1 {
		t.Errorf("the handler of a ring that was left has been told of the Nodes' leaving")
	}
}
