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

package fenced

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
)

func TestTheKeysThatGovernAWrite(t *testing.T) {
	const (
		own        = shardingv1alpha1.GoverningKeyOwn
		controller = shardingv1alpha1.GoverningKeyController
		home       = shardingv1alpha1.GoverningKeyHome
		namespace  = shardingv1alpha1.GoverningKeyNamespace
	)
	set := func(uid types.UID) *v1.Pod { return pod("p", uid) }
	free := pod("p", "")
	free.OwnerReferences = nil
	none := runtime.Object(nil)
	for what, tc := range map[string]struct {
		by            shardingv1alpha1.GoverningKey
		before, after runtime.Object
		want          []types.UID
	}{
		"own, create":                     {own, none, set("x"), []types.UID{"uid-of-p"}},
		"own, delete":                     {own, set("x"), none, []types.UID{"uid-of-p"}},
		"own, update":                     {own, set("x"), set("y"), []types.UID{"uid-of-p"}},
		"controller, create":              {controller, none, set("x"), []types.UID{"x"}},
		"controller, create by update":    {controller, &v1.Pod{}, set("x"), []types.UID{"x"}},
		"controller, delete":              {controller, set("x"), none, []types.UID{"x"}},
		"controller, from one to another": {controller, set("x"), set("y"), []types.UID{"x", "y"}},
		"controller, adoption":            {controller, free, set("y"), []types.UID{"y"}},
		"controller, release":             {controller, set("x"), free, []types.UID{"x"}},
		"controller, none":                {controller, free, free, nil},
		"home, from one to another":       {home, set("x"), set("y"), []types.UID{"x", "y"}},
		"home, adoption":                  {home, free, set("y"), []types.UID{"y"}},
		"home, release":                   {home, set("x"), free, []types.UID{"x"}},
		"home, no controller":             {home, free, free, []types.UID{"uid-of-p"}},
		"home, created without":           {home, none, free, []types.UID{"uid-of-p"}},
		"namespace":                       {namespace, none, set("x"), []types.UID{"ns"}},
		"namespace, delete":               {namespace, set("x"), none, []types.UID{"ns"}},
		"namespace, of a Namespace":       {namespace, none, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}}, []types.UID{"n"}},
		"namespace, of what is in no one": {namespace, none, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}}, nil},
	} {
		keys, n := sharding.Governing(string(tc.by), subjectOf(tc.before).keys, subjectOf(tc.after).keys)
		key := hashkey.OfUID
		if tc.by == namespace {
			key = func(name types.UID) int64 { return hashkey.OfNamespace(string(name)) }
		}
		var want []int64
		for _, of := range tc.want {
			want = append(want, key(of))
		}
		if !slices.Equal(keys[:n], want) {
			t.Errorf("%s: keys %x, want those of %q", what, keys[:n], tc.want)
		}
	}
}

func TestAVolumeIsGovernedByItsClaim(t *testing.T) {
	volume := func(claim types.UID) runtime.Object {
		v := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v", UID: "uid-of-v"}}
		if claim != "" {
			v.Spec.ClaimRef = &v1.ObjectReference{UID: claim}
		}
		return v
	}
	for what, tc := range map[string]struct {
		before, after runtime.Object
		want          []types.UID
	}{
		"create":       {nil, volume("c"), []types.UID{"c"}},
		"update":       {volume("c"), volume("c"), []types.UID{"c", "c"}},
		"bind":         {volume(""), volume("c"), []types.UID{"c"}},
		"hand on":      {volume("c"), volume("d"), []types.UID{"c", "d"}},
		"delete":       {volume("c"), nil, []types.UID{"c"}},
		"unclaimed":    {volume(""), volume(""), nil},
		"not a volume": {nil, pod("p", "x"), nil},
	} {
		keys, n := sharding.Governing(string(shardingv1alpha1.GoverningKeyClaim), subjectOf(tc.before).keys, subjectOf(tc.after).keys)
		var want []int64
		for _, uid := range tc.want {
			want = append(want, hashkey.OfUID(uid))
		}
		if !slices.Equal(keys[:n], want) {
			t.Errorf("%s: keys %x, want those of %q", what, keys[:n], tc.want)
		}
	}
}

func TestTheFirstLineThatCoversAWriteSaysWhoseKeyCounts(t *testing.T) {
	i := &instance{
		controllers: []string{"a", "b"},
		governs: []shardingv1alpha1.Governs{
			{Controller: "a", Resource: "pods", By: "1"},
			{Controller: "*", Resource: "pods", By: "2"},
			{Controller: "a", Group: "*", Resource: "sets", By: "3"},
			{Controller: "b", Group: "apps", Resource: "*", By: "4"},
			{Controller: "c", Group: "*", Resource: "*", By: "5"},
		},
	}
	for _, tc := range []struct{ controller, group, resource, want string }{
		{"a", "", "pods", "1"},
		{"b", "", "pods", "2"},
		{"a", "apps", "sets", "3"},
		{"a", "", "sets", "3"},
		{"b", "apps", "sets", "4"},
		{"b", "", "sets", ""},
		{"a", "apps", "pods", ""},
		{"c", "", "pods", ""},
		{"", "", "pods", ""},
	} {
		by, covered := i.governing(tc.controller, schema.GroupResource{Group: tc.group, Resource: tc.resource})
		if string(by) != tc.want || covered != (tc.want != "") {
			t.Errorf("%+v: %q, %v", tc, by, covered)
		}
	}
}
