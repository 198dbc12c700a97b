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

package v1

import (
	"encoding/json"
	"math"
	"testing"

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// noField is a metav1.Object of a third party, without the field hashKey.
type noField struct{ Object }

func TestHashKeyOf(t *testing.T) {
	uid := types.UID("a0000000-0000-4000-8000-000000000001")
	for name, tc := range map[string]struct {
		obj  Object
		want int64
	}{
		"stored":   {&ObjectMeta{UID: uid, HashKey: 42}, 42},
		"derived":  {&ObjectMeta{UID: uid}, hashkey.OfUID(uid)},
		"no field": {noField{&ObjectMeta{UID: uid, HashKey: 42}}, hashkey.OfUID(uid)},
	} {
		if got := HashKeyOf(tc.obj); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

func TestHashKeyOfController(t *testing.T) {
	uid := types.UID("c0000000-0000-4000-8000-000000000002")
	other := OwnerReference{UID: "d0000000-0000-4000-8000-000000000003", HashKey: 1, Controller: ptr.To(false)}
	for name, tc := range map[string]struct {
		refs  []OwnerReference
		want  int64
		found bool
	}{
		"stored":        {[]OwnerReference{other, {UID: uid, HashKey: 42, Controller: ptr.To(true)}}, 42, true},
		"derived":       {[]OwnerReference{other, {UID: uid, Controller: ptr.To(true)}}, hashkey.OfUID(uid), true},
		"no controller": {[]OwnerReference{other, {UID: uid, HashKey: 42}}, 0, false},
		"no owner":      {nil, 0, false},
	} {
		meta := &ObjectMeta{OwnerReferences: tc.refs}
		for _, obj := range []Object{meta, noField{meta}} {
			if got, found := HashKeyOfController(obj); got != tc.want || found != tc.found {
				t.Errorf("%s, %T: %d, %t; want %d, %t", name, obj, got, found, tc.want, tc.found)
			}
		}
	}
}

func TestNewControllerRefCarriesTheHashKey(t *testing.T) {
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "Owner"}
	for _, owner := range []*ObjectMeta{{UID: "uid", HashKey: hashkey.OfUID("uid")}, {UID: "uid"}} {
		if got, want := NewControllerRef(owner, gvk).HashKey, hashkey.OfUID("uid"); got != want {
			t.Errorf("the reference to %v has the key %d, want %d", owner, got, want)
		}
	}
}

func TestHashKeysRoundTrip(t *testing.T) {
	for _, key := range []int64{0, 1, 1<<53 + 1, math.MaxInt64} {
		original := &ObjectMeta{HashKey: key, OwnerReferences: []OwnerReference{{UID: "uid", HashKey: key}}}
		expect := func(form string, got *ObjectMeta, err error) {
			t.Helper()
			if err != nil {
				t.Errorf("%s: %v", form, err)
			} else if got.HashKey != key || got.OwnerReferences[0].HashKey != key {
				t.Errorf("%s: %d becomes %v", form, key, got)
			}
		}

		data, err := original.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		got := &ObjectMeta{}
		expect("protobuf", got, got.Unmarshal(data))

		if data, err = json.Marshal(original); err != nil {
			t.Fatal(err)
		}
		got = &ObjectMeta{}
		expect("JSON", got, json.Unmarshal(data, got))

		expect("copy", original.DeepCopy(), nil)
	}
}
