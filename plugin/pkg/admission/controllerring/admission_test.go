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
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/apis/core"
	catalogue "k8s.io/kubernetes/pkg/controller/ring"
	"k8s.io/utils/ptr"
)

const controller = catalogue.ReplicaSetController

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
		by         catalogue.GovernedBy
		attributes admission.Attributes
		want       []types.UID
	}{
		"create":                    {catalogue.ByController, attributes("/pods", nil, pod("x", "y"), ""), []types.UID{"x"}},
		"delete":                    {catalogue.ByController, attributes("/pods", pod("x"), nil, ""), []types.UID{"x"}},
		"update":                    {catalogue.ByController, attributes("/pods", pod("x"), pod("x"), ""), []types.UID{"x", "x"}},
		"status":                    {catalogue.ByController, attributes("/pods", pod("x"), pod("x"), "status"), []types.UID{"x", "x"}},
		"adoption":                  {catalogue.ByController, attributes("/pods", pod(), pod("x"), ""), []types.UID{"x"}},
		"release":                   {catalogue.ByController, attributes("/pods", pod("x"), pod(), ""), []types.UID{"x"}},
		"from one to another":       {catalogue.ByController, attributes("/pods", pod("x"), pod("y"), ""), []types.UID{"x", "y"}},
		"no controller":             {catalogue.ByController, attributes("/pods", pod(), pod(), ""), nil},
		"nothing but metadata less": {catalogue.ByController, attributes("/pods", nil, &metav1.DeleteOptions{}, ""), nil},
		"a ReplicaSet by its own":   {catalogue.Own, attributes("apps/replicasets", set("deployment"), set("deployment"), "status"), []types.UID{"own", "own"}},
	} {
		t.Run(name, func(t *testing.T) {
			keys, n := governing(tc.by, tc.attributes)
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
		records = append(records, ring.Record{Name: name, UID: types.UID("uid-" + name), Controller: controller, Key: &key})
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
			instance := fence.Identity{Name: "a", UID: "uid-a"}
			if tc.uid != "" {
				instance.UID = tc.uid
			}
			got := ""
			if refusal := judge(ringOf(tc.ring), instance, write); refusal != nil {
				got = refusal.reason
			}
			if got != tc.want {
				t.Errorf("refused for %q, want %q", got, tc.want)
			}
		})
	}
	joining := ring.NewView(1, ring.Record{Name: "a", UID: "uid-a", Controller: controller})
	if refusal := judge(joining, fence.Identity{Name: "a", UID: "uid-a"}, write); refusal == nil || !strings.Contains(refusal.message, "belongs to nobody; ControllerInstance a owns nothing") {
		t.Errorf("an instance that joins: %v", refusal)
	}
}

// A controller that the catalogue does not know, or what it does not say whose key
// governs, must not be written on trust.
func TestAnUnknownControllerWritesNothing(t *testing.T) {
	all := int64(math.MaxInt64)
	view := ring.NewView(1, ring.Record{Name: "a", UID: "uid-a", Controller: "somebody-elses", Key: &all})
	write := attributes("/pods", nil, &core.Pod{ObjectMeta: controlledBy("x")}, "")
	if refusal := judge(view, fence.Identity{Name: "a", UID: "uid-a"}, write); refusal == nil || refusal.reason != "unknown" {
		t.Errorf("refused for %v, want unknown", refusal)
	}
}
