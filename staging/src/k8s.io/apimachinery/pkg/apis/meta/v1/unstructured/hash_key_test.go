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

// withOwnKey returns an object with that UID and key and a field that this version does not know.
func withOwnKey(uid, key interface{}) *Unstructured {
	metadata := map[string]interface{}{"uid": uid, "future": "kept"}
	if key != nil {
		metadata["hashKey"] = key
	}
	return &Unstructured{Object: map[string]interface{}{"metadata": metadata, "spec": "kept"}}
}

func TestGetControllerHashKey(t *testing.T) {
	for name, tc := range map[string]struct {
		obj   *Unstructured
		key   int64
		found bool
	}{
		"no key":                 {withOwners(owner("a", false, nil), owner("b", true, nil)), hashkey.OfUID("b"), true},
		"another key":            {withOwners(owner("a", nil, int64(1)), owner("b", true, int64(42))), hashkey.OfUID("b"), true},
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

func TestClearAndFillHashKeys(t *testing.T) {
	a, b, uid := hashkey.OfUID("a"), hashkey.OfUID("b"), hashkey.OfUID("uid")
	odd := &Unstructured{Object: map[string]interface{}{"metadata": "odd"}}
	for name, tc := range map[string]struct {
		obj, cleared, filled *Unstructured
		had                  bool
	}{
		"none":       {withOwnKey("uid", nil), withOwnKey("uid", nil), withOwnKey("uid", uid), false},
		"own":        {withOwnKey("uid", int64(7)), withOwnKey("uid", nil), withOwnKey("uid", uid), true},
		"no integer": {withOwnKey("uid", "7"), withOwnKey("uid", nil), withOwnKey("uid", uid), true},
		"no UID":     {withOwnKey("", nil), withOwnKey("", nil), withOwnKey("", nil), false},
		"owners'": {
			withOwners(owner("a", nil, nil), owner("b", true, int64(7)), "no map", owner("", nil, "7")),
			withOwners(owner("a", nil, nil), owner("b", true, nil), "no map", owner("", nil, nil)),
			withOwners(owner("a", nil, a), owner("b", true, b), "no map", owner("", nil, "7")),
			true,
		},
		"no metadata":            {&Unstructured{Object: map[string]interface{}{}}, &Unstructured{Object: map[string]interface{}{}}, &Unstructured{Object: map[string]interface{}{}}, false},
		"no object":              {&Unstructured{}, &Unstructured{}, &Unstructured{}, false},
		"metadata of other type": {odd, odd, odd, false},
	} {
		t.Run(name, func(t *testing.T) {
			cleared := tc.obj.DeepCopy()
			refs := rawOwners(cleared)
			if had := cleared.ClearHashKeys(); had != tc.had || !reflect.DeepEqual(cleared, tc.cleared) {
				t.Errorf("cleared %v, had keys: %t; want %v", cleared, had, tc.cleared)
			}
			if want := rawOwners(tc.obj); !reflect.DeepEqual(refs, want) {
				t.Errorf("references that another object may share have changed: %v, were %v", refs, want)
			}

			filled, before := *tc.obj, tc.obj.DeepCopy()
			if filled.FillHashKeys(); !reflect.DeepEqual(&filled, tc.filled) {
				t.Errorf("filled %v, want %v", filled, tc.filled)
			}
			if !reflect.DeepEqual(tc.obj, before) {
				t.Errorf("what another object may share has changed: %v, was %v", tc.obj, before)
			}
		})
	}
}

func rawOwners(u *Unstructured) []interface{} {
	metadata, _ := u.Object["metadata"].(map[string]interface{})
	refs, _ := metadata["ownerReferences"].([]interface{})
	return refs
}
