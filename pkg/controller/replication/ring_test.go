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
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

// testGate is open for the keys of its ranges.
type testGate struct {
	lock       sync.Mutex
	open       hashkey.Ranges
	turnedAway int
}

func (g *testGate) set(open hashkey.Ranges) {
	g.lock.Lock()
	defer g.lock.Unlock()
	g.open = open
}

func (g *testGate) turned() int {
	g.lock.Lock()
	defer g.lock.Unlock()
	return g.turnedAway
}

func (g *testGate) Enter(key int64) (func(), bool) {
	g.lock.Lock()
	defer g.lock.Unlock()
	if !g.open.Contains(key) {
		g.turnedAway++
		return nil, false
	}
	return func() {}, true
}

func (g *testGate) Serves(key int64) bool {
	g.lock.Lock()
	defer g.lock.Unlock()
	return g.open.Contains(key)
}

func (g *testGate) ServesAll() bool {
	g.lock.Lock()
	defer g.lock.Unlock()
	return g.open.Covers(hashkey.All())
}

// A ReplicationManager holds a copy of the ReplicaSetController that its handlers were made
// for, and its informer holds ReplicationControllers. The gate holds for it all the same.
func TestReplicationControllersPassTheGate(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	rc := &v1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "rc", UID: types.UID("uid-of-rc")},
		Spec: v1.ReplicationControllerSpec{
			Replicas: ptr.To[int32](2),
			Selector: map[string]string{"app": "rc"},
			Template: &v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "rc"}}},
		},
	}
	client := fake.NewClientset(rc)
	factory := informers.NewSharedInformerFactory(client, 0)
	gate := &testGate{}
	c := replicaset.OnRing(ctx, gate, client, func(client kubernetes.Interface) *replicaset.ReplicaSetController {
		return &NewReplicationManager(ctx, factory.Core().V1().Pods(), factory.Core().V1().ReplicationControllers(), client, BurstReplicas).ReplicaSetController
	})
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { c.Run(ctx) })
	c.SetWorkers(ctx, 1)

	key := metav1.HashKeyOf(rc)
	mine := hashkey.NewRanges(hashkey.Range{Start: uint64(key), End: uint64(key) + 1})
	if keys := c.Keys(mine); len(keys) != 1 || keys[0] != key {
		t.Errorf("keys %v, want %d alone", keys, key)
	}
	if keys := c.Keys(hashkey.All().Minus(mine)); len(keys) != 0 {
		t.Errorf("keys %v outside of the range", keys)
	}
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
	eventually("the gate turns the ReplicationController away", func() bool { return gate.turned() > 0 })
	if n := len(pods()); n != 0 {
		t.Fatalf("%d pods were created though the gate was shut", n)
	}
	gate.set(mine)
	c.Acquired(mine)
	eventually("pods are created behind the open gate", func() bool { return len(pods()) == 2 })
	for _, pod := range pods() {
		// The server would name it if the client did not: create-once does.
		if pod.Name == "" || pod.GenerateName != "rc-" || !metav1.IsControlledBy(&pod, rc) {
			t.Errorf("pod %q of %q, controlled by %v; want a name of the client's, and the ReplicationController", pod.Name, pod.GenerateName, pod.OwnerReferences)
		}
	}
}
