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
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"slices"
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
	for name, obj := range map[string]Object{
		"no key":        &ObjectMeta{UID: uid},
		"another key":   &ObjectMeta{UID: uid, HashKey: ptr.To[int64](42)},
		"third party's": noField{&ObjectMeta{UID: uid, HashKey: ptr.To[int64](42)}},
	} {
		if got, want := HashKeyOf(obj), hashkey.OfUID(uid); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

func TestHashKeyOfController(t *testing.T) {
	uid := types.UID("c0000000-0000-4000-8000-000000000002")
	other := OwnerReference{UID: "d0000000-0000-4000-8000-000000000003", HashKey: ptr.To[int64](1), Controller: ptr.To(false)}
	for name, tc := range map[string]struct {
		refs  []OwnerReference
		want  int64
		found bool
	}{
		"no key":        {[]OwnerReference{other, {UID: uid, Controller: ptr.To(true)}}, hashkey.OfUID(uid), true},
		"another key":   {[]OwnerReference{other, {UID: uid, HashKey: ptr.To[int64](42), Controller: ptr.To(true)}}, hashkey.OfUID(uid), true},
		"no controller": {[]OwnerReference{other, {UID: uid, HashKey: ptr.To[int64](42)}}, 0, false},
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
	for _, owner := range []*ObjectMeta{{UID: "uid", HashKey: ptr.To(hashkey.OfUID("uid"))}, {UID: "uid"}} {
		if got, want := NewControllerRef(owner, gvk).HashKey, hashkey.OfUID("uid"); got == nil || *got != want {
			t.Errorf("the reference to %v has the key %v, want %d", owner, got, want)
		}
	}
}

func TestClearAndFillHashKeys(t *testing.T) {
	bare := []OwnerReference{{UID: "a"}, {UID: "b"}, {}}
	forged := []OwnerReference{{UID: "a"}, {UID: "b", HashKey: ptr.To[int64](7)}, {}}
	right := []OwnerReference{{UID: "a", HashKey: ptr.To(hashkey.OfUID("a"))}, {UID: "b", HashKey: ptr.To(hashkey.OfUID("b"))}, {}}
	for name, tc := range map[string]struct {
		meta, cleared, filled ObjectMeta
		had                   bool
	}{
		"none":       {ObjectMeta{UID: "uid", OwnerReferences: bare}, ObjectMeta{UID: "uid", OwnerReferences: bare}, ObjectMeta{UID: "uid", HashKey: ptr.To(hashkey.OfUID("uid")), OwnerReferences: right}, false},
		"own":        {ObjectMeta{UID: "uid", HashKey: ptr.To[int64](7)}, ObjectMeta{UID: "uid"}, ObjectMeta{UID: "uid", HashKey: ptr.To(hashkey.OfUID("uid"))}, true},
		"an owner's": {ObjectMeta{OwnerReferences: forged}, ObjectMeta{OwnerReferences: bare}, ObjectMeta{OwnerReferences: right}, true},
		"nothing":    {ObjectMeta{}, ObjectMeta{}, ObjectMeta{}, false},
	} {
		before := tc.meta.DeepCopy()
		cleared, filled := tc.meta, tc.meta
		if had := cleared.ClearHashKeys(); had != tc.had || !reflect.DeepEqual(cleared, tc.cleared) {
			t.Errorf("%s: cleared %v, had keys: %t", name, cleared, had)
		}
		if filled.FillHashKeys(); !reflect.DeepEqual(filled, tc.filled) {
			t.Errorf("%s: filled %v, want %v", name, filled, tc.filled)
		}
		if !reflect.DeepEqual(&tc.meta, before) {
			t.Errorf("%s: what others may share has changed: %v, was %v", name, tc.meta, before)
		}
	}
}

func TestHashKeysRoundTrip(t *testing.T) {
	for _, key := range []int64{0, 1, 1<<53 + 1, math.MaxInt64} {
		original := &ObjectMeta{HashKey: &key, OwnerReferences: []OwnerReference{{UID: "uid", HashKey: &key}}}
		expect := func(form string, got *ObjectMeta, err error) {
			t.Helper()
			if err != nil {
				t.Errorf("%s: %v", form, err)
			} else if *got.HashKey != key || *got.OwnerReferences[0].HashKey != key {
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

// TestNoKeyIsNoBytes: an object without keys is stored and sent as stock Kubernetes stores and
// sends it.
func TestNoKeyIsNoBytes(t *testing.T) {
	bare := &ObjectMeta{UID: "uid", OwnerReferences: []OwnerReference{{UID: "owner"}}}
	data, err := bare.Marshal()
	if err != nil || bytes.Contains(data, []byte("\xd0\x3e")) {
		t.Errorf("protobuf has the field 1002: %q, %v", data, err)
	}
	if data, err = json.Marshal(bare); err != nil || bytes.Contains(data, []byte("hashKey")) {
		t.Errorf("JSON has the field: %s, %v", data, err)
	}
}

// TestWhatEarlierVersionsStored had the keys at another number in protobuf, and a zero where there
// was none, in templates too. Nothing of that is read.
func TestWhatEarlierVersionsStored(t *testing.T) {
	bare, err := (&ObjectMeta{Name: "name"}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"\x00", "\x05", "\xff\xff\xff\xff\xff\xff\xff\xff\x7f"} {
		got := &ObjectMeta{}
		if err := got.Unmarshal(append(slices.Clone(bare), "\xc8\x3e"+key...)); err != nil || !reflect.DeepEqual(got, &ObjectMeta{Name: "name"}) {
			t.Errorf("with the key %q it is %v, %v", key, got, err)
		}
		ref := &OwnerReference{}
		if err := ref.Unmarshal([]byte("\xc8\x3e" + key)); err != nil || *ref != (OwnerReference{}) {
			t.Errorf("an owner reference with the key %q is %v, %v", key, ref, err)
		}
	}
}
