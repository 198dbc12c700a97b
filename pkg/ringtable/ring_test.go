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

package ringtable

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
)

const (
	workloads = "workloads"
	quarter   = int64(1) << 61
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

type options func(*shardingv1alpha1.ControllerInstance)

// instance returns an Active instance whose caches hold everything.
func instance(name string, more ...options) *shardingv1alpha1.ControllerInstance {
	i := &shardingv1alpha1.ControllerInstance{
		ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1", CreationTimestamp: metav1.NewTime(now.Add(-90 * time.Second))},
		Spec:       shardingv1alpha1.ControllerInstanceSpec{Ring: workloads, HolderIdentity: "host:" + name},
		Status: shardingv1alpha1.ControllerInstanceStatus{
			Phase:  shardingv1alpha1.InstanceActive,
			Cached: []shardingv1alpha1.HashKeyRange{{First: 0, Last: math.MaxInt64}},
		},
	}
	for _, option := range more {
		option(i)
	}
	return i
}

func key(k int64) options {
	return func(i *shardingv1alpha1.ControllerInstance) { i.Spec.HashKey = (*shardingv1alpha1.HashKey)(&k) }
}

func next(k int64) options {
	return func(i *shardingv1alpha1.ControllerInstance) { i.Spec.NextHashKey = (*shardingv1alpha1.HashKey)(&k) }
}

func donor(name string) options {
	return func(i *shardingv1alpha1.ControllerInstance) { i.Spec.Donor = name }
}

func phase(p shardingv1alpha1.InstancePhase) options {
	return func(i *shardingv1alpha1.ControllerInstance) { i.Status.Phase = p }
}

func cached(first, last int64) options {
	return func(i *shardingv1alpha1.ControllerInstance) {
		i.Status.Cached = []shardingv1alpha1.HashKeyRange{{First: shardingv1alpha1.HashKey(first), Last: shardingv1alpha1.HashKey(last)}}
	}
}

// replicaSet returns a ReplicaSet with a key near that one: up to an end of a range, which the
// tests lay at quarters of the line, or from any other key on.
func replicaSet(near int64, ready, wanted int32) *appsv1.ReplicaSet {
	const width = uint64(quarter) / 64
	keys := hashkey.Range{Start: uint64(near), End: uint64(near) + width}
	if near == math.MaxInt64 || near%quarter == 0 && near > 0 {
		keys = hashkey.Range{Start: uint64(near) + 1 - width, End: uint64(near) + 1}
	}
	for i := 0; ; i++ {
		if uid := types.UID(fmt.Sprintf("uid-%d", i)); keys.Contains(hashkey.OfUID(uid)) {
			return &appsv1.ReplicaSet{
				ObjectMeta: metav1.ObjectMeta{UID: uid},
				Spec:       appsv1.ReplicaSetSpec{Replicas: &wanted},
				Status:     appsv1.ReplicaSetStatus{ReadyReplicas: ready},
			}
		}
	}
}

func of(t *testing.T, instances []*shardingv1alpha1.ControllerInstance, replicaSets ...*appsv1.ReplicaSet) *Ring {
	t.Helper()
	r, err := Of(workloads, instances, append([]*appsv1.ReplicaSet{}, replicaSets...))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestOf(t *testing.T) {
	// Ranges are written as Ranges.String does; an empty string is for no range.
	type row struct {
		name, owned, coming string
	}
	text := func(ranges hashkey.Ranges) string {
		if ranges.Empty() {
			return ""
		}
		return ranges.String()
	}
	for _, tc := range []struct {
		name      string
		instances []*shardingv1alpha1.ControllerInstance
		want      []row
		gap       string
		active    int
	}{{
		name: "nobody",
		gap:  "[0000000000000000, 7fffffffffffffff]",
	}, {
		name:      "one owns everything",
		instances: []*shardingv1alpha1.ControllerInstance{instance("a", key(math.MaxInt64))},
		want:      []row{{name: "a", owned: "[0000000000000000, 7fffffffffffffff]"}},
		active:    1,
	}, {
		name:      "one owns everything, whatever its key",
		instances: []*shardingv1alpha1.ControllerInstance{instance("a", key(quarter))},
		want:      []row{{name: "a", owned: "[0000000000000000, 7fffffffffffffff]"}},
		active:    1,
	}, {
		name: "in order of key",
		instances: []*shardingv1alpha1.ControllerInstance{
			instance("a", key(math.MaxInt64)), instance("b", key(2*quarter-1)), instance("c", key(quarter-1)),
		},
		want: []row{
			{name: "c", owned: "[0000000000000000, 1fffffffffffffff]"},
			{name: "b", owned: "(1fffffffffffffff, 3fffffffffffffff]"},
			{name: "a", owned: "(3fffffffffffffff, 7fffffffffffffff]"},
		},
		active: 3,
	}, {
		name: "the lowest owns what lies above the highest",
		instances: []*shardingv1alpha1.ControllerInstance{
			instance("a", key(quarter-1)), instance("b", key(3*quarter-1)),
		},
		want: []row{
			{name: "a", owned: "(5fffffffffffffff, 1fffffffffffffff]"},
			{name: "b", owned: "(1fffffffffffffff, 5fffffffffffffff]"},
		},
		active: 2,
	}, {
		name: "instances without a key come last, by name",
		instances: []*shardingv1alpha1.ControllerInstance{
			instance("a", phase(shardingv1alpha1.InstanceInit)),
			instance("0", phase(shardingv1alpha1.InstanceLocked), donor("b"), next(2*quarter-1)),
			instance("b", key(math.MaxInt64), phase(shardingv1alpha1.InstanceWait)),
		},
		want: []row{
			{name: "b", owned: "[0000000000000000, 7fffffffffffffff]"},
			{name: "0", coming: "[0000000000000000, 3fffffffffffffff]"},
			{name: "a"},
		},
	}, {
		name: "a range comes to the receiver of a handover that can be done",
		instances: []*shardingv1alpha1.ControllerInstance{
			instance("a", key(2*quarter-1), next(quarter-1)),
			instance("b", key(math.MaxInt64), next(0)),
			instance("orphan", phase(shardingv1alpha1.InstanceLocked), donor("gone"), next(3*quarter-1)),
		},
		want: []row{
			{name: "a", owned: "[0000000000000000, 3fffffffffffffff]"},
			{name: "b", owned: "(3fffffffffffffff, 7fffffffffffffff]", coming: "[0000000000000000, 0000000000000000], (1fffffffffffffff, 3fffffffffffffff]"},
			{name: "orphan"},
		},
		active: 2,
	}, {
		name: "an owner that does not hold all of its range",
		instances: []*shardingv1alpha1.ControllerInstance{
			instance("a", key(2*quarter-1), cached(0, quarter-1)), instance("b", key(math.MaxInt64)),
		},
		want: []row{
			{name: "a", owned: "[0000000000000000, 3fffffffffffffff]"},
			{name: "b", owned: "(3fffffffffffffff, 7fffffffffffffff]"},
		},
		gap:    "(1fffffffffffffff, 3fffffffffffffff]",
		active: 2,
	}, {
		name: "an owner that has not begun",
		instances: []*shardingv1alpha1.ControllerInstance{
			instance("a", key(2*quarter-1), phase(shardingv1alpha1.InstanceLocked)), instance("b", key(math.MaxInt64)),
		},
		want: []row{
			{name: "a", owned: "[0000000000000000, 3fffffffffffffff]"},
			{name: "b", owned: "(3fffffffffffffff, 7fffffffffffffff]"},
		},
		gap:    "[0000000000000000, 3fffffffffffffff]",
		active: 1,
	}, {
		name: "one that leaves is at work until it is gone",
		instances: []*shardingv1alpha1.ControllerInstance{
			instance("a", key(2*quarter-1), phase(shardingv1alpha1.InstanceLeaving)), instance("b", key(math.MaxInt64)),
		},
		want: []row{
			{name: "a", owned: "[0000000000000000, 3fffffffffffffff]"},
			{name: "b", owned: "(3fffffffffffffff, 7fffffffffffffff]"},
		},
		active: 1,
	}, {
		name: "other rings do not count",
		instances: []*shardingv1alpha1.ControllerInstance{
			instance("a", key(math.MaxInt64)),
			instance("b", key(quarter), func(i *shardingv1alpha1.ControllerInstance) { i.Spec.Ring = "claims" }),
		},
		want:   []row{{name: "a", owned: "[0000000000000000, 7fffffffffffffff]"}},
		active: 1,
	}} {
		t.Run(tc.name, func(t *testing.T) {
			r := of(t, tc.instances)
			var got []row
			for _, i := range r.Instances {
				got = append(got, row{name: i.Name, owned: text(i.Owned), coming: text(i.Coming)})
			}
			if len(got) != len(tc.want) {
				t.Fatalf("got %v, want %v", got, tc.want)
			}
			for i := range got {
				if got[i] != tc.want[i] {
					t.Errorf("row %d: got %v, want %v", i, got[i], tc.want[i])
				}
			}
			if text(r.Gap) != tc.gap {
				t.Errorf("gap %v, want %v", r.Gap, tc.gap)
			}
			if r.Active() != tc.active {
				t.Errorf("%d Active, want %d", r.Active(), tc.active)
			}
		})
	}
}

// TestPodsGoToTheOwner: a pod counts for the owner of its key, also at the ends of a
// range and on both sides of the seam.
func TestPodsGoToTheOwner(t *testing.T) {
	instances := []*shardingv1alpha1.ControllerInstance{instance("low", key(quarter)), instance("high", key(3*quarter))}
	unset := replicaSet(quarter, 1, 0)
	unset.Spec.Replicas = nil
	r := of(t, instances,
		replicaSet(1, 1, 10),
		unset,
		replicaSet(quarter+1, 100, 1000),
		replicaSet(3*quarter, 100, 1000),
		replicaSet(3*quarter+1, 1, 10),
		replicaSet(math.MaxInt64, 1, 10),
	)
	if got, want := r.Instances[0].Pods, (Pods{Ready: 4, Wanted: 31}); got != want {
		t.Errorf("low has %v, want %v", got, want)
	}
	if got, want := r.Instances[1].Pods, (Pods{Ready: 200, Wanted: 2000}); got != want {
		t.Errorf("high has %v, want %v", got, want)
	}
	if got, want := r.Pods, (Pods{Ready: 204, Wanted: 2031}); got != want {
		t.Errorf("all have %v, want %v", got, want)
	}
}

func TestPodsOfNobodyCount(t *testing.T) {
	r := of(t, nil, replicaSet(7, 1, 3))
	if want := (Pods{Ready: 1, Wanted: 3}); r.Pods != want {
		t.Errorf("got %v, want %v", r.Pods, want)
	}
}

// TestKeysAreDerived: a ReplicaSet has the key of its UID.
func TestKeysAreDerived(t *testing.T) {
	old := replicaSet(0, 1, 1)
	old.UID = "2e4a1c9f-0000-4000-8000-000000000001"
	at := hashkey.OfUID(old.UID)
	r := of(t, []*shardingv1alpha1.ControllerInstance{instance("a", key(at-1)), instance("b", key(at))}, old)
	if r.Instances[0].Pods.Wanted != 0 || r.Instances[1].Pods.Wanted != 1 {
		t.Errorf("the pod of key %s counts for %v", hashkey.Format(at), r.Instances)
	}
}

func TestOfRefusesWhatHasNoRevision(t *testing.T) {
	bad := instance("a", key(1))
	bad.ResourceVersion = "x"
	if _, err := Of(workloads, []*shardingv1alpha1.ControllerInstance{bad}, nil); err == nil || !strings.Contains(err.Error(), workloads) {
		t.Errorf("got %v", err)
	}
}

func TestNames(t *testing.T) {
	other := instance("b")
	other.Spec.Ring = "claims"
	got := Names([]*shardingv1alpha1.ControllerInstance{instance("a"), other, instance("c")})
	if strings.Join(got, " ") != "claims workloads" {
		t.Errorf("got %v", got)
	}
}

func TestTheHostIsWhatComesBeforeTheProcess(t *testing.T) {
	for holder, want := range map[string]string{"host_4711_x": "host", "my_host:10257_4711_x": "my_host:10257", "host_x": "host", "host": "host"} {
		if got := (&Instance{Holder: holder}).Host(); got != want {
			t.Errorf("the host of %q is %q, want %q", holder, got, want)
		}
	}
}
