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
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

// worker returns an instance that works on all that it owns.
func worker(name, ring string, key int64) *shardingv1alpha1.ControllerInstance {
	i := instance(name, ring).(*shardingv1alpha1.ControllerInstance)
	i.Spec.HashKey, i.Spec.HolderIdentity = (*shardingv1alpha1.HashKey)(ptr.To(key)), "host-"+name+"_1_x"
	i.Spec.Controllers = []string{"replicaset-controller"}
	i.Status.Cached = []shardingv1alpha1.HashKeyRange{{First: 0, Last: math.MaxInt64}}
	i.Status.Controllers = []shardingv1alpha1.ControllerState{{Name: "replicaset-controller", Working: true}}
	return i
}

func TestStatus(t *testing.T) {
	well := worker("a", "workloads", math.MaxInt64)
	space, claims, machines := worker("s", "namespaces", math.MaxInt64), worker("c", "claims", math.MaxInt64), worker("m", "machines", math.MaxInt64)
	leaves := worker("l", "workloads", math.MaxInt64)
	leaves.Status.Phase = shardingv1alpha1.InstanceLeaving
	locked := worker("b", "claims", math.MaxInt64)
	locked.Status.Phase, locked.Status.Controllers = shardingv1alpha1.InstanceLocked, nil
	waits := worker("c", "namespaces", math.MaxInt64)
	waits.Status.Controllers = []shardingv1alpha1.ControllerState{{Name: "replicaset-controller", Reason: "the leader runs it"}}
	silent := worker("d", "namespaces", math.MaxInt64)
	silent.Status.Controllers = nil
	gives := worker("e", "workloads", math.MaxInt64)
	gives.Spec.NextHashKey, gives.Status.Phase = ptr.To[shardingv1alpha1.HashKey](1<<62-1), shardingv1alpha1.InstanceWait
	receives := worker("f", "workloads", 1<<61)
	joins := worker("g", "workloads", 0)
	joins.Spec.HashKey, joins.Status = nil, shardingv1alpha1.ControllerInstanceStatus{Phase: shardingv1alpha1.InstanceInit}
	joinsToo := joins.DeepCopy()
	joinsToo.Name, joinsToo.UID = "h", "uid-h"
	for name, tc := range map[string]struct {
		instances []runtime.Object
		rings     []string
		want      string
		fails     bool
	}{
		"nobody":                 {nil, nil, "claims: no instance is on the ring: nothing works on its hash keys, unless a kube-controller-manager that leads does\nnamespaces: no", true},
		"no such ring":           {[]runtime.Object{well}, []string{"x"}, "x: no instance is on the ring: nothing works on its hash keys, unless a kube-controller-manager that leads does\nx: it is no ring of kube-controller-manager: is that its name?", true},
		"well":                   {[]runtime.Object{well}, []string{"workloads"}, "workloads: every hash key is owned and worked on, by 1 instance\n", false},
		"a ring is missing":      {[]runtime.Object{well, space}, nil, "claims: no instance is on the ring: nothing works on its hash keys, unless a kube-controller-manager that leads does\nnamespaces: every hash key is owned and worked on, by 1 instance\nworkloads: every", true},
		"all rings, and another": {[]runtime.Object{well, space, claims, machines}, nil, "claims: every hash key is owned and worked on, by 1 instance\nmachines: every", false},
		"one joins":              {[]runtime.Object{well, joins}, []string{"workloads"}, "workloads: every hash key is owned and worked on, by 1 instance, and 1 that owns nothing\n", false},
		"two join":               {[]runtime.Object{well, joins, joinsToo}, []string{"workloads"}, "workloads: every hash key is owned and worked on, by 1 instance, and 2 that own nothing\n", false},
		"one ring of two":        {[]runtime.Object{well, locked}, []string{"claims", "workloads"}, "claims: nothing works on 100.0% of the hash keys: [0000000000000000, 7fffffffffffffff]\nclaims: b does", true},
		"the other":              {[]runtime.Object{well, locked}, []string{"workloads"}, "workloads: every", false},
		"leaves":                 {[]runtime.Object{leaves}, []string{"workloads"}, "workloads: 100.0% of the hash keys change hands just now", true},
		"waits":                  {[]runtime.Object{waits}, []string{"namespaces"}, "namespaces: waits: replicaset-controller: the leader runs it\n", true},
		"does not say why":       {[]runtime.Object{silent}, []string{"namespaces"}, "namespaces: d does not work on replicaset-controller\n", true},
		"keys change hands":      {[]runtime.Object{gives, receives}, []string{"workloads"}, "workloads: 50.0% of the hash keys change hands just now: (3fffffffffffffff, 7fffffffffffffff]\n", true},
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
	names := []string{"workloads"}
	i := worker("a", "workloads", math.MaxInt64)
	i.Status.Phase = shardingv1alpha1.InstanceLocked
	client := fake.NewClientset(i)
	// A server that restarts is waited for.
	down := true
	client.PrependReactor("list", "controllerinstances", func(clienttesting.Action) (bool, runtime.Object, error) {
		if down {
			down = false
			return true, nil, errors.New("connection refused")
		}
		return false, nil, nil
	})
	var out strings.Builder
	if err := status(t.Context(), client, names, 10*time.Millisecond, &out); err == nil || !strings.Contains(err.Error(), "after 10ms") || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("got %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- status(t.Context(), client, names, time.Hour, &out) }()
	i = i.DeepCopy()
	i.Status.Phase = shardingv1alpha1.InstanceActive
	if _, err := client.ShardingV1alpha1().ControllerInstances().UpdateStatus(t.Context(), i, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil || !strings.HasSuffix(out.String(), "by 1 instance\n") {
		t.Errorf("got %v, and %s", err, out.String())
	}
}

func TestStatusDoesNotWaitForRights(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("list", "controllerinstances", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(shardingv1alpha1.Resource("controllerinstances"), "", nil)
	})
	if err := status(t.Context(), client, nil, time.Hour, io.Discard); !apierrors.IsForbidden(err) {
		t.Errorf("got %v", err)
	}
}

func TestHistory(t *testing.T) {
	at := func(second int) metav1.Time {
		return metav1.Time{Time: time.Date(2026, 1, 2, 3, 4, second, 0, time.UTC)}
	}
	revision := 0
	event := func(instance, message string, second int) runtime.Object {
		revision += 9
		return &v1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprintf("e%d", revision), Namespace: "default", ResourceVersion: fmt.Sprint(revision)},
			InvolvedObject: v1.ObjectReference{Kind: "ControllerInstance", Name: instance},
			Reason:         "TookOver", Message: message, LastTimestamp: at(second),
		}
	}
	other := event("pod", "started", 0).(*v1.Event)
	other.InvolvedObject.Kind = "Pod"
	// Of those of one second the later has a higher revision, which is no higher string.
	client := fake.NewClientset(other, event("own", "from a person", 5), event("claims-abcde", "first", 1), event("workloads-xyz12", "second", 9), event("workloads-x-abcde", "of another ring", 9),
		instance("own", "workloads"))
	var out strings.Builder
	if err := history(t.Context(), client, nil, &out); err != nil {
		t.Fatal(err)
	}
	want := `TIME                   INSTANCE            REASON     TIMES   WHAT
2026-01-02T03:04:01Z   claims-abcde        TookOver   1       first
2026-01-02T03:04:05Z   own                 TookOver   1       from a person
2026-01-02T03:04:09Z   workloads-xyz12     TookOver   1       second
2026-01-02T03:04:09Z   workloads-x-abcde   TookOver   1       of another ring
`
	if out.String() != want {
		t.Errorf("got\n%s", out.String())
	}
	for ring, want := range map[string][]string{"workloads": {"from a person", "second"}, "claims": {"first"}, "workloads-x": {"of another ring"}, "namespaces": {"No instance has told of a handover.\n"}} {
		out.Reset()
		if err := history(t.Context(), client, []string{ring}, &out); err != nil {
			t.Fatal(err)
		}
		for _, message := range []string{"first", "second", "from a person", "of another ring", "No instance has told of a handover.\n"} {
			if strings.Contains(out.String(), message) != slices.Contains(want, message) {
				t.Errorf("%s: got\n%s", ring, out.String())
			}
		}
	}
	if err := history(t.Context(), client, []string{"workload"}, &out); err == nil || !strings.HasPrefix(err.Error(), "there is no ring workload") {
		t.Errorf("of no ring: %v", err)
	}
}
