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
package main

import (
	"math"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"
)

// worker returns an instance that works on all that it owns.
func worker(name, ring string, key int64) *shardingv1alpha1.ControllerInstance {
	i := instance(name, ring).(*shardingv1alpha1.ControllerInstance)
	i.Spec.HashKey, i.Spec.HolderIdentity = ptr.To(key), "host-"+name+"_1_x"
	i.Spec.Controllers = []string{"replicaset-controller"}
	i.Status.Cached = []shardingv1alpha1.HashKeyRange{{First: 0, Last: math.MaxInt64}}
	i.Status.Controllers = []shardingv1alpha1.ControllerState{{Name: "replicaset-controller", Working: true}}
	return i
}

func TestStatus(t *testing.T) {
	well := worker("a", "workloads", math.MaxInt64)
	locked := worker("b", "claims", math.MaxInt64)
	locked.Status.Phase = shardingv1alpha1.InstanceLocked
	waits := worker("c", "namespaces", math.MaxInt64)
	waits.Status.Controllers = []shardingv1alpha1.ControllerState{{Name: "replicaset-controller", Reason: "the leader runs it"}}
	silent := worker("d", "namespaces", math.MaxInt64)
	silent.Status.Controllers = nil
	gives := worker("e", "workloads", math.MaxInt64)
	gives.Spec.NextHashKey, gives.Status.Phase = ptr.To[int64](1<<62-1), shardingv1alpha1.InstanceWait
	receives := worker("f", "workloads", 1<<61)
	joins := worker("g", "workloads", 0)
	joins.Spec.HashKey, joins.Status = nil, shardingv1alpha1.ControllerInstanceStatus{Phase: shardingv1alpha1.InstanceInit}
	for name, tc := range map[string]struct {
		instances []runtime.Object
		rings     []string
		want      string
		fails     bool
	}{
		"nobody":            {nil, nil, "No ring has instances.\n", true},
		"no such ring":      {[]runtime.Object{well}, []string{"x"}, "x: no instance is on the ring: nothing works on any hash key\n", true},
		"well":              {[]runtime.Object{well}, nil, "workloads: every hash key is owned and worked on, by 1 instances\n", false},
		"one joins":         {[]runtime.Object{well, joins}, nil, "workloads: every hash key is owned and worked on, by 2 instances\n", false},
		"one ring of two":   {[]runtime.Object{well, locked}, nil, "claims: nothing works on 100.0% of the hash keys: [0000000000000000, 7fffffffffffffff]\nworkloads: every", true},
		"the other":         {[]runtime.Object{well, locked}, []string{"workloads"}, "workloads: every", false},
		"waits":             {[]runtime.Object{waits}, nil, "namespaces: waits: replicaset-controller: the leader runs it\n", true},
		"does not say why":  {[]runtime.Object{silent}, nil, "namespaces: d does not work on replicaset-controller\n", true},
		"keys change hands": {[]runtime.Object{gives, receives}, nil, "workloads: 50.0% of the hash keys change hands just now: (3fffffffffffffff, 7fffffffffffffff]\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			err := status(t.Context(), fake.NewClientset(tc.instances...), tc.rings, 0, &out)
			if !strings.HasPrefix(out.String(), tc.want) || (err != nil) != tc.fails {
				t.Errorf("got %q and %v, want %q", out.String(), err, tc.want)
			}
		})
	}
}

func TestStatusWaits(t *testing.T) {
	i := worker("a", "workloads", math.MaxInt64)
	i.Status.Phase = shardingv1alpha1.InstanceLocked
	client := fake.NewClientset(i)
	var out strings.Builder
	if err := status(t.Context(), client, nil, 10*time.Millisecond, &out); err == nil || !strings.Contains(err.Error(), "after 10ms, not every") {
		t.Errorf("got %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- status(t.Context(), client, nil, time.Hour, &out) }()
	i = i.DeepCopy()
	i.Status.Phase = shardingv1alpha1.InstanceActive
	if _, err := client.ShardingV1alpha1().ControllerInstances().UpdateStatus(t.Context(), i, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil || !strings.HasSuffix(out.String(), "by 1 instances\n") {
		t.Errorf("got %v, and %s", err, out.String())
	}
}

func TestBalance(t *testing.T) {
	a, b := worker("a", "workloads", 1<<62-1), worker("b", "workloads", math.MaxInt64)
	a.Status.Weight, b.Status.Weight = 100, 300
	even := worker("c", "claims", math.MaxInt64)
	for name, tc := range map[string]struct {
		instances []runtime.Object
		rings     []string
		want, err string
	}{
		"nobody":       {nil, nil, "No ring has instances.\n", ""},
		"no such ring": {[]runtime.Object{a}, []string{"x"}, "", "ring x has no instance"},
		"two rings": {[]runtime.Object{a, b, even}, nil, `claims:
INSTANCE   WEIGHT   WANTED   BESIDE THE RING
c          0        0        0
Each has about what it should have.

workloads:
INSTANCE   WEIGHT   WANTED   BESIDE THE RING
a          100      200      0
b          300      200      0
kubectl ring move b 6aaaaaaaaaaaaaaa  # b gives about 100 objects to a
`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			err := balance(t.Context(), fake.NewClientset(tc.instances...), tc.rings, &out)
			if out.String() != tc.want || tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("got %v and\n%s", err, out.String())
			}
		})
	}
}

func TestHistory(t *testing.T) {
	at := func(second int) metav1.Time {
		return metav1.Time{Time: time.Date(2026, 1, 2, 3, 4, second, 0, time.UTC)}
	}
	event := func(name, instance, message string, second int) runtime.Object {
		return &v1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: name, Namespace: "default"},
			InvolvedObject: v1.ObjectReference{Kind: "ControllerInstance", Name: instance},
			Reason:         "TookOver", Message: message, LastTimestamp: at(second),
		}
	}
	other := event("x", "pod", "started", 0).(*v1.Event)
	other.InvolvedObject.Kind = "Pod"
	client := fake.NewClientset(event("e1", "workloads-b", "later", 9), event("e2", "claims-a", "first", 1), other)
	var out strings.Builder
	if err := history(t.Context(), client, nil, &out); err != nil {
		t.Fatal(err)
	}
	want := `TIME                   INSTANCE      REASON     TIMES   WHAT
2026-01-02T03:04:01Z   claims-a      TookOver   1       first
2026-01-02T03:04:09Z   workloads-b   TookOver   1       later
`
	if out.String() != want {
		t.Errorf("got\n%s", out.String())
	}
	for ring, want := range map[string]string{"workloads": "later", "x": "No instance has told of a handover.\n"} {
		out.Reset()
		if err := history(t.Context(), client, []string{ring}, &out); err != nil || !strings.Contains(out.String(), want) || strings.Contains(out.String(), "first") {
			t.Errorf("%s: %v\n%s", ring, err, out.String())
		}
	}
}
