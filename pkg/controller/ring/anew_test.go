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
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/kubernetes/pkg/controller/ring"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	ringtesting "k8s.io/kubernetes/pkg/controller/ring/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// A controller that looks at no UIDs is told of an object that was made anew under its name, though
// the informer tells of an update: that the old one is gone, and that the new one has come. The old
// one has not changed since the range was opened.
func TestAnObjectMadeAnewIsAnother(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	endpoints := func(name, uid, revision string) *v1.Endpoints {
		return &v1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid), ResourceVersion: revision}}
	}
	client := ringtesting.NewClient(endpoints("web", "old", "1"), endpoints("other", "other", "1"))
	env, informers := ringtesting.NewEnv(t, ctx, catalogue.EndpointsController, &ringtesting.Gate{}, client)
	core := env.Informers.Core().V1()
	core.Pods().Informer()
	core.Services().Informer()
	told := make(chan string, 10)
	note := func(what string, obj any) {
		if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj
		}
		told <- fmt.Sprintf("%s %s", what, obj.(*v1.Endpoints).UID)
	}
	if _, err := core.Endpoints().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { note("added", obj) },
		UpdateFunc: func(_, obj any) { note("updated", obj) },
		DeleteFunc: func(obj any) { note("deleted", obj) },
	}); err != nil {
		t.Fatal(err)
	}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	c, err := ring.New(env, ring.Config[string]{
		Queue: &queue, Item: ring.Named, Name: ring.Named,
		Work: func(context.Context) bool { return false }, Run: func(context.Context, int) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { informers.Run(ctx) })
	for _, source := range informers.Sources {
		source.SetRanges(hashkey.All())
		if err := source.WaitFor(ctx, hashkey.All()); err != nil {
			t.Fatal(err)
		}
	}
	c.Prepare(hashkey.All())
	update := func(e *v1.Endpoints) {
		t.Helper()
		if _, err := client.CoreV1().Endpoints("ns").Update(ctx, e, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	// The watch of a fake client, which may begin later, has nothing from before.
	for revision := 101; len(got) == 0; revision++ {
		update(endpoints("other", "other", fmt.Sprint(revision)))
		select {
		case event := <-told:
			got = append(got, event)
		case <-time.After(100 * time.Millisecond):
		}
	}
	update(endpoints("web", "new", "1000000"))
	for !slices.Contains(got, "added new") && !slices.Contains(got, "updated new") {
		got = append(got, <-told)
	}
	got = slices.Compact(got)
	if want := []string{"updated other", "deleted old", "added new"}; !slices.Equal(got, want) {
		t.Errorf("the controller was told %q, want %q", got, want)
	}
}
