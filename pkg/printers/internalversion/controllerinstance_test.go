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

package internalversion

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/sharding"
	"k8s.io/kubernetes/pkg/printers"
	"k8s.io/utils/ptr"
)

func newControllerInstance(name, ring string, key, next *int64) sharding.ControllerInstance {
	return sharding.ControllerInstance{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       sharding.ControllerInstanceSpec{Ring: ring, HashKey: key, NextHashKey: next},
	}
}

func TestPrintControllerInstance(t *testing.T) {
	full := newControllerInstance("a", "workloads", ptr.To[int64](math.MaxInt64), ptr.To[int64](1<<62))
	full.CreationTimestamp = metav1.Time{Time: time.Now().Add(-90 * time.Minute)}
	full.Spec.HolderIdentity, full.Spec.Donor = "host1_4711", "b"
	full.Spec.Controllers = []string{"replicaset-controller", "job-controller"}
	full.Status = sharding.ControllerInstanceStatus{Phase: sharding.InstanceActive, Weight: 12, Heap: &sharding.ProcessHeap{LiveBytes: 5<<19 - 1}, Controllers: []sharding.ControllerState{{Name: "replicaset-controller", Working: true}, {Name: "job-controller", Working: true}}}
	drained := newControllerInstance("a", "workloads", nil, nil)
	drained.Spec.Drained, drained.Status.Phase = true, sharding.InstanceInit
	justDrained := newControllerInstance("a", "workloads", nil, nil)
	justDrained.Spec.Drained = true
	waits := newControllerInstance("a", "workloads", nil, nil)
	waits.Spec.Controllers = []string{"replicaset-controller", "job-controller", "daemonset-controller", "deployment-controller"}
	waits.Status.Controllers = []sharding.ControllerState{
		{Name: "replicaset-controller", Reason: "the leader's Lease is held by host_1, a kube-controller-manager without rings"},
		{Name: "job-controller", Working: true, Reason: "about to begin"},
		{Name: "daemonset-controller", Working: true},
	}

	hostile := newControllerInstance("a", "workloads", nil, nil)
	hostile.Spec.Controllers = []string{"c"}
	hostile.Status.Controllers = []sharding.ControllerState{{Name: "c", Reason: "\x1b[2J\n\u202e\u009b\xff"}}

	tests := map[string]struct {
		instance sharding.ControllerInstance
		wide     bool
		want     []interface{}
	}{
		"new": {
			instance: newControllerInstance("a", "workloads", nil, nil),
			want:     []interface{}{"a", "workloads", "<none>", "-", int64(0), "0/0", "<unknown>", "<none>"},
		},
		"new, wide": {
			instance: newControllerInstance("a", "workloads", nil, nil),
			wide:     true,
			want:     []interface{}{"a", "workloads", "<none>", "-", int64(0), "0/0", "<unknown>", "<none>", "", "<none>", "<none>", "<none>", "<none>"},
		},
		"is to own a range": {
			instance: newControllerInstance("a", "workloads", nil, ptr.To[int64](255)),
			want:     []interface{}{"a", "workloads", "<none>", "-→00000000000000ff", int64(0), "0/0", "<unknown>", "<none>"},
		},
		"drained": {
			instance: drained,
			want:     []interface{}{"a", "workloads", "Init,Drained", "-", int64(0), "0/0", "<unknown>", "<none>"},
		},
		"drained, has told nothing yet": {
			instance: justDrained,
			want:     []interface{}{"a", "workloads", "<none>,Drained", "-", int64(0), "0/0", "<unknown>", "<none>"},
		},
		"waits": {
			instance: waits,
			want: []interface{}{"a", "workloads", "<none>", "-", int64(0), "2/4", "<unknown>",
				"replicaset-controller: the leader's Lease is held by host_1, a kube-controller-manager without rings; job-controller: about to begin"},
		},
		"writes what controls a terminal": {
			instance: hostile,
			want:     []interface{}{"a", "workloads", "<none>", "-", int64(0), "0/1", "<unknown>", `c: \u001b[2J\n\u202e\u009b\xff`},
		},
		"full": {
			instance: full,
			want:     []interface{}{"a", "workloads", "Active", "≤7fffffffffffffff→4000000000000000", int64(12), "2/2", "90m", "<none>"},
		},
		"full, wide": {
			instance: full,
			wide:     true,
			want:     []interface{}{"a", "workloads", "Active", "≤7fffffffffffffff→4000000000000000", int64(12), "2/2", "90m", "<none>", "host1_4711", "b", "4000000000000000", "2Mi", "replicaset-controller,job-controller"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			rows, err := printControllerInstance(&test.instance, printers.GenerateOptions{Wide: test.wide})
			if err != nil {
				t.Fatal(err)
			}
			if len(rows) != 1 {
				t.Fatalf("got %d rows", len(rows))
			}
			if diff := cmp.Diff(test.want, rows[0].Cells); diff != "" {
				t.Errorf("cells (-want +got):\n%s", diff)
			}
			if rows[0].Object.Object != &test.instance {
				t.Errorf("the row is not of the object")
			}
		})
	}
}

func TestPrintControllerInstanceList(t *testing.T) {
	const max = int64(math.MaxInt64)
	type owner struct {
		ring      string
		key, next *int64
	}
	rs := func(key int64) owner { return owner{ring: "workloads", key: ptr.To(key)} }
	tests := map[string]struct {
		owners []owner
		want   []string
	}{
		"nobody": {},
		"one that owns nothing": {
			owners: []owner{{ring: "workloads"}},
			want:   []string{"-"},
		},
		"one with the highest key": {
			owners: []owner{rs(max)},
			want:   []string{"[0000000000000000, 7fffffffffffffff]"},
		},
		"one with another key": {
			owners: []owner{rs(5)},
			want:   []string{"[0000000000000000, 7fffffffffffffff]"},
		},
		"three, not in order": {
			owners: []owner{rs(max), rs(1<<61 - 1), rs(1<<62 - 1)},
			want: []string{
				"(3fffffffffffffff, 7fffffffffffffff]",
				"[0000000000000000, 1fffffffffffffff]",
				"(1fffffffffffffff, 3fffffffffffffff]",
			},
		},
		"the lowest also owns what lies above the highest": {
			owners: []owner{rs(0x0fffffffffffffff), rs(0x5fffffffffffffff)},
			want: []string{
				"(5fffffffffffffff, 0fffffffffffffff]",
				"(0fffffffffffffff, 5fffffffffffffff]",
			},
		},
		"lowest key 0": {
			owners: []owner{rs(0), rs(max)},
			want:   []string{"[0000000000000000, 0000000000000000]", "(0000000000000000, 7fffffffffffffff]"},
		},
		"move, join": {
			owners: []owner{
				{ring: "workloads", key: ptr.To(max), next: ptr.To[int64](0x5fffffffffffffff)},
				{ring: "workloads", next: ptr.To[int64](0x1fffffffffffffff)},
				rs(0x3fffffffffffffff),
			},
			want: []string{"(3fffffffffffffff, 7fffffffffffffff]→5fffffffffffffff", "-→1fffffffffffffff", "[0000000000000000, 3fffffffffffffff]"},
		},
		"rings apart": {
			owners: []owner{rs(0xff), {ring: "claims", key: ptr.To(max)}, rs(max)},
			want:   []string{"[0000000000000000, 00000000000000ff]", "[0000000000000000, 7fffffffffffffff]", "(00000000000000ff, 7fffffffffffffff]"},
		},
		"of two with one key the first by name owns its range": {
			owners: []owner{rs(0xff), rs(max), rs(0xff)},
			want:   []string{"[0000000000000000, 00000000000000ff]", "(00000000000000ff, 7fffffffffffffff]", "-"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			list := &sharding.ControllerInstanceList{}
			for i, o := range test.owners {
				list.Items = append(list.Items, newControllerInstance(fmt.Sprint("instance-", i), o.ring, o.key, o.next))
			}
			rows, err := printControllerInstanceList(list, printers.GenerateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i, row := range rows {
				got = append(got, row.Cells[3].(string))
				if row.Cells[0] != list.Items[i].Name || row.Cells[1] != list.Items[i].Spec.Ring {
					t.Errorf("row %d is that of %v", i, row.Cells)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("ranges (-want +got):\n%s", diff)
			}
		})
	}
}
