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

package controllerring

import (
	"math"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/identity"
	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/utils/ptr"
)

const controller = "replicaset-controller"

func controlledBy(uids ...types.UID) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{UID: "own"}
	for i, uid := range uids {
		meta.OwnerReferences = append(meta.OwnerReferences, metav1.OwnerReference{UID: uid, Controller: ptr.To(i == 0)})
	}
	return meta
}

func attributes(resource string, before, after runtime.Object, subresource string) admission.Attributes {
	group, name, _ := strings.Cut(resource, "/")
	return admission.NewAttributesRecord(after, before, schema.GroupVersionKind{}, "ns", "name",
		schema.GroupVersionResource{Group: group, Version: "v1", Resource: name}, subresource, admission.Update, nil, false, nil)
}

func TestWhatGovernsAWrite(t *testing.T) {
	pod := func(uids ...types.UID) *core.Pod { return &core.Pod{ObjectMeta: controlledBy(uids...)} }
	set := func(uids ...types.UID) *apps.ReplicaSet { return &apps.ReplicaSet{ObjectMeta: controlledBy(uids...)} }
	for name, tc := range map[string]struct {
		controller string
		attributes admission.Attributes
		want       []types.UID
	}{
		"create":                       {controller, attributes("/pods", nil, pod("x", "y"), ""), []types.UID{"x"}},
		"delete":                       {controller, attributes("/pods", pod("x"), nil, ""), []types.UID{"x"}},
		"update":                       {controller, attributes("/pods", pod("x"), pod("x"), ""), []types.UID{"x", "x"}},
		"status":                       {controller, attributes("/pods", pod("x"), pod("x"), "status"), []types.UID{"x", "x"}},
		"adoption":                     {controller, attributes("/pods", pod(), pod("x"), ""), []types.UID{"x"}},
		"release":                      {controller, attributes("/pods", pod("x"), pod(), ""), []types.UID{"x"}},
		"from one to another":          {controller, attributes("/pods", pod("x"), pod("y"), ""), []types.UID{"x", "y"}},
		"no controller":                {controller, attributes("/pods", pod(), pod(), ""), nil},
		"nothing but metadata less":    {controller, attributes("/pods", nil, &metav1.DeleteOptions{}, ""), nil},
		"a ReplicaSet by its own":      {controller, attributes("apps/replicasets", set("deployment"), set("deployment"), "status"), []types.UID{"own", "own"}},
		"a resource of that name":      {controller, attributes("example.com/replicasets", nil, set("x"), ""), []types.UID{"x"}},
		"a controller that is foreign": {"foreign", attributes("/pods", nil, pod("x"), ""), nil},
	} {
		t.Run(name, func(t *testing.T) {
			keys, n := governing(tc.controller, tc.attributes)
			if n != len(tc.want) {
				t.Fatalf("%d keys, want those of %q", n, tc.want)
			}
			for i, uid := range tc.want {
				if keys[i] != hashkey.OfUID(uid) {
					t.Errorf("key %d is %x, want that of %q", i, keys[i], uid)
				}
			}
		})
	}
}

func ringOf(keys map[string]int64) *ring.View {
	var records []ring.Record
	for name, key := range keys {
		records = append(records, ring.Record{Name: name, UID: types.UID("uid-" + name), Key: &key})
	}
	return ring.NewView(1, records...)
}

func TestJudge(t *testing.T) {
	key := hashkey.OfUID("x")
	write := attributes("/pods", nil, &core.Pod{ObjectMeta: controlledBy("x")}, "")
	for name, tc := range map[string]struct {
		ring map[string]int64
		uid  types.UID
		want string
	}{
		"owner of all":         {ring: map[string]int64{"a": 5}},
		"at the end":           {ring: map[string]int64{"a": key, "b": key - 1}},
		"below the end":        {ring: map[string]int64{"a": key + 1, "b": 0}},
		"just above the end":   {ring: map[string]int64{"a": key - 1, "b": math.MaxInt64}, want: "not_owner"},
		"above the highest":    {ring: map[string]int64{"a": key - 2, "b": key - 1}},
		"not above the lowest": {ring: map[string]int64{"a": key - 1, "b": key - 2}, want: "not_owner"},
		"gone":                 {ring: map[string]int64{"b": math.MaxInt64}, want: "gone"},
		"another":              {ring: map[string]int64{"a": math.MaxInt64}, uid: "other", want: "replaced"},
	} {
		t.Run(name, func(t *testing.T) {
			identity := identity.Identity{Name: "a", UID: "uid-a"}
			if tc.uid != "" {
				identity.UID = tc.uid
			}
			got := ""
			if refusal := judge(ringOf(tc.ring), controller, identity, write); refusal != nil {
				got = refusal.reason
			}
			if got != tc.want {
				t.Errorf("refused for %q, want %q", got, tc.want)
			}
		})
	}
	newcomer := ring.NewView(1, ring.Record{Name: "a", UID: "uid-a"})
	if refusal := judge(newcomer, controller, identity.Identity{Name: "a", UID: "uid-a"}, write); refusal == nil || !strings.Contains(refusal.message, "belongs to nobody; ControllerInstance a owns nothing") {
		t.Errorf("a newcomer: %v", refusal)
	}
}

// Every key of a small line is tried, for rings of two and three, against what the
// moved boundary would do: the neighbours keep theirs, and nobody else is concerned.
func TestRefuseMove(t *testing.T) {
	for _, keys := range []map[string]int64{
		{"a": 3, "b": 7}, {"a": 3, "b": math.MaxInt64}, {"a": 0, "b": 1}, {"a": 2, "b": 5, "c": 7}, {"a": 5, "b": 2, "c": 7}, {"a": 7, "b": 5, "c": 2},
	} {
		view := ringOf(keys)
		for name, own := range keys {
			for next := range int64(10) {
				taken := false
				for _, key := range keys {
					taken = taken || key == next
				}
				moved := map[string]int64{}
				for n, key := range keys {
					moved[n] = key
				}
				moved[name] = next
				// It is a move if the others follow one another as before.
				want := !taken && order(moved) == order(keys)
				if got := refuseMove(view, name, next) == ""; got != want {
					t.Errorf("%v: %s from %d to %d: allowed %v, want %v", keys, name, own, next, got, want)
				}
			}
		}
	}
	if message := refuseMove(ringOf(map[string]int64{"a": 5}), "a", 3); !strings.Contains(message, "owns all hash keys") {
		t.Errorf("alone: %q", message)
	}
	if message := refuseMove(ringOf(map[string]int64{"a": 5}), "nobody", 3); !strings.Contains(message, "owns no range") {
		t.Errorf("not in the ring: %q", message)
	}
}

// order returns the names in order of key, beginning with a: the ring has no first.
func order(keys map[string]int64) string {
	var names string
	for _, r := range ringOf(keys).Ring() {
		names += r.Name
	}
	i := strings.Index(names, "a")
	return names[i:] + names[:i]
}
