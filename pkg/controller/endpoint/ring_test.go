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

package endpoint

import (
	"context"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	core "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	ringtesting "k8s.io/kubernetes/pkg/controller/ring/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// Endpoints whose Service went while nobody worked on them are deleted, and no others: neither
// those of a Service that the cache does not have yet, nor those that people have made.
func TestOnlyEndpointsWithoutAServiceAreDeleted(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name), ResourceVersion: "1"}
	}
	var objects []runtime.Object
	for name, managed := range map[string]bool{"gone": true, "late": true, "own": false} {
		for _, namespace := range []string{"ns", "other"} {
			endpoints := &v1.Endpoints{ObjectMeta: meta(namespace, name)}
			if managed {
				endpoints.Labels = map[string]string{LabelManagedBy: ControllerName}
			}
			objects = append(objects, endpoints)
		}
	}
	late := &v1.Service{ObjectMeta: meta("ns", "late")}
	client := ringtesting.NewClient(append(objects, late)...)
	client.PrependReactor("list", "services", func(core.Action) (bool, runtime.Object, error) {
		return true, &v1.ServiceList{ListMeta: metav1.ListMeta{ResourceVersion: "2"}}, nil
	})
	gate := &ringtesting.Gate{}
	env, informers := ringtesting.NewEnv(t, ctx, catalogue.EndpointsController, gate, client)
	c, err := OnRing(ctx, env, 0)
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
	mine := ringtesting.Around(hashkey.OfNamespace("ns"))
	c.Prepare(mine)
	gate.Set(mine)
	c.Acquired(t.Context(), mine)
	// Later than anything else, as when the process is slow.
	wg.Go(func() { c.Run(ctx) })
	c.SetWorkers(ctx, 1)
	exists := func(namespace, name string) bool {
		_, err := client.CoreV1().Endpoints(namespace).Get(ctx, name, metav1.GetOptions{})
		return !apierrors.IsNotFound(err)
	}
	asked := func() bool {
		for _, action := range client.Actions() {
			if get, ok := action.(core.GetAction); ok && action.Matches("get", "services") && get.GetName() == "late" {
				return true
			}
		}
		return false
	}
	if err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return !exists("ns", "gone") && asked(), nil
	}); err != nil {
		t.Fatalf("waiting until the Endpoints without a Service are gone: %v", err)
	}
	for _, name := range []string{"late", "own"} {
		if !exists("ns", name) {
			t.Errorf("Endpoints %s have been deleted", name)
		}
	}
	if !exists("other", "gone") {
		t.Error("Endpoints of another range have been deleted")
	}
}
