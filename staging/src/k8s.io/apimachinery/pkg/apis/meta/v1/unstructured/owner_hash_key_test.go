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

package unstructured

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
)

// owner returns an owner reference with a field that this version does not know.
func owner(uid string, controller interface{}, key interface{}) map[string]interface{} {
	ref := map[string]interface{}{"kind": "K", "name": "n", "uid": uid, "future": "kept"}
	if controller != nil {
		ref["controller"] = controller
	}
	if key != nil {
		ref["hashKey"] = key
	}
	return ref
}

func withOwners(owners ...interface{}) *Unstructured {
	return &Unstructured{Object: map[string]interface{}{"metadata": map[string]interface{}{"ownerReferences": owners}}}
}

func TestGetControllerHashKey(t *testing.T) {
	for name, tc := range map[string]struct {
		obj   *Unstructured
		key   int64
		found bool
	}{
		"stored":                 {withOwners(owner("a", nil, int64(1)), owner("b", true, int64(42))), 42, true},
		"derived":                {withOwners(owner("a", false, int64(1)), owner("b", true, nil)), hashkey.OfUID("b"), true},
		"no integer":             {withOwners(owner("b", true, "42")), hashkey.OfUID("b"), true},
		"no controller":          {withOwners(owner("a", nil, int64(1)), owner("b", false, int64(2)), owner("c", "true", int64(3))), 0, false},
		"no owner":               {withOwners(), 0, false},
		"no map":                 {withOwners("b"), 0, false},
		"no metadata":            {&Unstructured{Object: map[string]interface{}{}}, 0, false},
		"no object":              {&Unstructured{}, 0, false},
		"metadata of other type": {&Unstructured{Object: map[string]interface{}{"metadata": "odd"}}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			if key, found := tc.obj.GetControllerHashKey(); key != tc.key || found != tc.found {
				t.Errorf("got %d, %t; want %d, %t", key, found, tc.key, tc.found)
			}
			if key, found := metav1.HashKeyOfController(tc.obj); key != tc.key || found != tc.found {
				t.Errorf("HashKeyOfController: %d, %t; want %d, %t", key, found, tc.key, tc.found)
			}
		})
	}
}

func TestSetOwnerHashKeys(t *testing.T) {
	keys := map[types.UID]int64{"a": 10, "b": 20, "none": 0}
	var obj *Unstructured
	keyOf := func(i int, ref metav1.OwnerReference) int64 {
		if raw := obj.rawOwnerReferences()[i].(map[string]interface{}); !reflect.DeepEqual(ref, extractOwnerReference(raw)) {
			t.Errorf("reference %d is %v, want %v", i, ref, raw)
		}
		return keys[ref.UID]
	}

	obj = withOwners(owner("a", nil, nil), owner("b", true, int64(99)), owner("none", nil, int64(99)), owner("none", nil, "99"), "no map", owner("a", nil, "10"))
	before := obj.DeepCopy()
	refsBefore := obj.rawOwnerReferences()
	obj.SetOwnerHashKeys(keyOf)

	want := withOwners(owner("a", nil, int64(10)), owner("b", true, int64(20)), owner("none", nil, nil), owner("none", nil, nil), "no map", owner("a", nil, int64(10)))
	if !reflect.DeepEqual(obj, want) {
		t.Errorf("got %v, want %v", obj, want)
	}
	if !reflect.DeepEqual(refsBefore, before.rawOwnerReferences()) {
		t.Errorf("references that another object may share have changed: %v, were %v", refsBefore, before.rawOwnerReferences())
	}

	obj = withOwners(owner("a", nil, int64(10)), owner("none", nil, nil))
	refsBefore = obj.rawOwnerReferences()
	obj.SetOwnerHashKeys(keyOf)
	if &refsBefore[0] != &obj.rawOwnerReferences()[0] {
		t.Error("the references were copied where all keys are right already")
	}

	for _, obj = range []*Unstructured{{}, {Object: map[string]interface{}{"metadata": "odd"}}} {
		before := obj.DeepCopy()
		obj.SetOwnerHashKeys(keyOf)
		if !reflect.DeepEqual(obj, before) {
			t.Errorf("%v became %v", before, obj)
		}
	}
}
