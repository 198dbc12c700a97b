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

package replication

import (
	"context"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	ringtesting "k8s.io/kubernetes/pkg/controller/ring/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

// A ReplicationManager holds a copy of the ReplicaSetController that its handlers were made
// for, and its informer holds ReplicationControllers. The gate holds for it all the same.
func TestReplicationControllersPassTheGate(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	rc := &v1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "rc", UID: types.UID("uid-of-rc"), ResourceVersion: "1"},
		Spec: v1.ReplicationControllerSpec{
			Replicas: ptr.To[int32](2),
			Selector: map[string]string{"app": "rc"},
			Template: &v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "rc"}}},
		},
	}
	client := ringtesting.NewClient(rc)
	gate := &ringtesting.Gate{}
	env, informers := ringtesting.NewEnv(t, ctx, catalogue.ReplicationControllerController, gate, client)
	c, err := OnRing(ctx, env)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { informers.Run(ctx) })
	for _, source := range informers.Sources {
		source.SetRanges(hashkey.All())
	}
	wg.Go(func() { c.Run(ctx) })
	c.SetWorkers(ctx, 1)

	key := metav1.HashKeyOf(rc)
	mine := ringtesting.Around(key)
	pods := func() []v1.Pod {
		t.Helper()
		list, err := client.CoreV1().Pods("ns").List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return list.Items
	}
	eventually := func(what string, done func() bool) {
		t.Helper()
		if err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			return done(), nil
		}); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for _, source := range informers.Sources {
		eventually("everything is held", func() bool { return source.Held().Covers(hashkey.All()) })
	}
	c.Acquired(t.Context(), mine)
	eventually("the gate turns the ReplicationController away", func() bool {
		_, _, turnedAway := gate.Count()
		return turnedAway > 0
	})
	if n := len(pods()); n != 0 {
		t.Fatalf("%d pods were created though the gate was shut", n)
	}
	c.Prepare(mine)
	gate.Set(mine)
	c.Acquired(t.Context(), mine)
	eventually("pods are created behind the open gate", func() bool { return len(pods()) == 2 })
	for _, pod := range pods() {
		// The server would name it if the client did not: create-once does.
		if pod.Name == "" || pod.GenerateName != "rc-" || !metav1.IsControlledBy(&pod, rc) {
			t.Errorf("pod %q of %q, controlled by %v; want a name of the client's, and the ReplicationController", pod.Name, pod.GenerateName, pod.OwnerReferences)
		}
	}
}
