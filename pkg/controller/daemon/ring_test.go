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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
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
