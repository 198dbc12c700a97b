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

package rest

import (
	"context"
	"fmt"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage/names"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/utils/ptr"
)

const (
	ownUID   = types.UID("a0000000-0000-4000-8000-000000000001")
	ownerUID = types.UID("c0000000-0000-4000-8000-000000000002")
	newUID   = types.UID("d0000000-0000-4000-8000-000000000003")
)

var (
	ownKey   = hashkey.OfUID(ownUID)
	ownerKey = hashkey.OfUID(ownerUID)
	newKey   = hashkey.OfUID(newUID)
)

func ref(uid types.UID, key int64) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Owner", Name: "owner", UID: uid, Controller: ptr.To(true), HashKey: key}
}

func object(uid types.UID, key int64, refs ...metav1.OwnerReference) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "name", UID: uid, HashKey: key, OwnerReferences: refs}}
}

// keyless implements metav1.Object without the field hashKey, as types of others may.
type keyless struct {
	metav1.Object
}

func (k keyless) DeepCopyObject() runtime.Object   { panic("unused") }
func (k keyless) GetObjectKind() schema.ObjectKind { panic("unused") }

// inBothForms runs the test on the object in typed and in unstructured form, the latter with
// a field that this version does not know beside each key.
func inBothForms(t *testing.T, obj *metav1.PartialObjectMetadata, test func(t *testing.T, obj metav1.Object)) {
	t.Helper()
	t.Run("typed", func(t *testing.T) { test(t, obj.DeepCopy()) })
	t.Run("unstructured", func(t *testing.T) {
		u := asUnstructured(t, obj)
		setFutureFields(u)
		test(t, u)
		want := u.DeepCopy()
		setFutureFields(want)
		if !reflect.DeepEqual(u, want) {
			t.Errorf("unknown fields were lost: %v", u)
		}
	})
}

func asUnstructured(t *testing.T, obj runtime.Object) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}

func setFutureFields(u *unstructured.Unstructured) {
	metadata := u.Object["metadata"].(map[string]interface{})
	metadata["future"] = "kept"
	refs, _ := metadata["ownerReferences"].([]interface{})
	for _, ref := range refs {
		ref.(map[string]interface{})["future"] = "kept"
	}
}

func expectKeys(t *testing.T, obj metav1.Object, own int64, owners ...int64) {
	t.Helper()
	if got := obj.(hashKeyed).GetHashKey(); got != own {
		t.Errorf("metadata.hashKey is %x, want %x", got, own)
	}
	var got []int64
	for _, ref := range obj.GetOwnerReferences() {
		got = append(got, ref.HashKey)
	}
	if !reflect.DeepEqual(got, owners) {
		t.Errorf("the owner references have the keys %x, want %x", got, owners)
	}
}

// named returns a reference that differs from ref(uid, key) in the owner's name.
func named(name string, uid types.UID, key int64) metav1.OwnerReference {
	r := ref(uid, key)
	r.Name = name
	return r
}

func TestStampHashKeysOfNewObjects(t *testing.T) {
	for name, tc := range map[string]struct {
		obj    *metav1.PartialObjectMetadata
		own    int64
		owners []int64
	}{
		"missing":  {object(ownUID, 0, ref(ownerUID, 0), ref(newUID, 0)), ownKey, []int64{0, 0}},
		"right":    {object(ownUID, ownKey, ref(ownerUID, ownerKey), ref(newUID, newKey)), ownKey, []int64{ownerKey, newKey}},
		"forged":   {object(ownUID, 1, ref(ownerUID, 2), ref(newUID, -3)), ownKey, []int64{ownerKey, newKey}},
		"swapped":  {object(ownUID, ownerKey, ref(ownerUID, newKey), ref(newUID, ownerKey)), ownKey, []int64{ownerKey, newKey}},
		"one":      {object(ownUID, 0, ref(ownerUID, 0), ref(newUID, 7)), ownKey, []int64{0, newKey}},
		"same UID": {object(ownUID, 0, ref(ownerUID, 0), named("b", ownerUID, 7)), ownKey, []int64{0, ownerKey}},
		"no UID":   {object("", 5, ref("", 6)), 0, []int64{0}},
		"no owner": {object(ownUID, 0), ownKey, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBothForms(t, tc.obj, func(t *testing.T, obj metav1.Object) {
				StampHashKeys(obj, nil)
				expectKeys(t, obj, tc.own, tc.owners...)
			})
		})
		t.Run(name+", gate off", func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ControllerRing, false)
			inBothForms(t, tc.obj, func(t *testing.T, obj metav1.Object) {
				StampHashKeys(obj, nil)
				var none []int64
				for range tc.owners {
					none = append(none, 0)
				}
				expectKeys(t, obj, 0, none...)
				if u, ok := obj.(*unstructured.Unstructured); ok {
					if _, found, _ := unstructured.NestedFieldNoCopy(u.Object, "metadata", "hashKey"); found {
						t.Errorf("the field is still there: %v", u)
					}
				}
			})
		})
	}
	t.Run("a type without the field", func(t *testing.T) {
		meta := object(ownUID, 5, ref(ownerUID, 6))
		StampHashKeys(keyless{meta}, nil)
		expectKeys(t, meta, 5, ownerKey)
	})
}

// TestOwnerKeysAreCorrectedNeverAdded: both functions follow one rule for owner references.
func TestOwnerKeysAreCorrectedNeverAdded(t *testing.T) {
	type refs = []metav1.OwnerReference
	keyed, bare := refs{ref(ownerUID, ownerKey)}, refs{ref(ownerUID, 0)}
	for name, tc := range map[string]struct {
		sent, old refs
		on, off   []int64 // the keys with the gate on and off
	}{
		"unchanged":                  {keyed, keyed, []int64{ownerKey}, []int64{ownerKey}},
		"unchanged, by stock":        {bare, bare, []int64{0}, []int64{0}},
		"client without keys":        {bare, keyed, []int64{ownerKey}, []int64{ownerKey}},
		"client with keys, by stock": {keyed, bare, []int64{0}, []int64{0}},
		"forged":                     {refs{ref(ownerUID, 2)}, keyed, []int64{ownerKey}, []int64{ownerKey}},
		"forged, by stock":           {refs{ref(ownerUID, 2)}, bare, []int64{0}, []int64{0}},
		"corrupted":                  {bare, refs{ref(ownerUID, 9)}, []int64{ownerKey}, []int64{ownerKey}},
		"changed":                    {refs{named("b", ownerUID, 0)}, keyed, []int64{ownerKey}, []int64{ownerKey}},
		"changed, by stock":          {refs{named("b", ownerUID, 3)}, bare, []int64{0}, []int64{0}},
		"all removed":                {nil, keyed, nil, nil},
		"first removed":              {bare, refs{ref(newUID, 0), ref(ownerUID, ownerKey)}, []int64{ownerKey}, []int64{ownerKey}},
		"reordered":                  {refs{ref(newUID, 3), ref(ownerUID, 0)}, refs{ref(ownerUID, ownerKey), ref(newUID, 0)}, []int64{0, ownerKey}, []int64{0, ownerKey}},
		"added without a key":        {refs{ref(newUID, 0), ref(ownerUID, 0)}, keyed, []int64{0, ownerKey}, []int64{0, ownerKey}},
		"added with a key":           {refs{ref(newUID, newKey), ref(ownerUID, 0)}, keyed, []int64{newKey, ownerKey}, []int64{0, ownerKey}},
		"added, forged":              {refs{ref(ownerUID, 0), ref(newUID, 4)}, bare, []int64{0, newKey}, []int64{0, 0}},
		"one UID, two keys": {
			refs{named("a", ownerUID, 0), named("b", ownerUID, 1)}, refs{named("a", ownerUID, ownerKey), named("b", ownerUID, 0)},
			[]int64{ownerKey, 0}, []int64{ownerKey, 0},
		},
		"one UID, reordered": {
			refs{named("b", ownerUID, 1), named("a", ownerUID, 0)}, refs{named("a", ownerUID, ownerKey), named("b", ownerUID, 0)},
			[]int64{0, ownerKey}, []int64{0, ownerKey},
		},
		"one UID, one removed": {
			refs{named("b", ownerUID, 1)}, refs{named("a", ownerUID, ownerKey), named("b", ownerUID, 0)},
			[]int64{0}, []int64{0},
		},
		"one UID, one changed": {
			refs{named("a", ownerUID, 0), named("c", ownerUID, 1)}, refs{named("a", ownerUID, ownerKey), named("b", ownerUID, 0)},
			[]int64{ownerKey, 0}, []int64{ownerKey, 0},
		},
		"one UID, equal but for the key": {
			refs{ref(ownerUID, 0), ref(ownerUID, 0)}, refs{ref(ownerUID, 0), ref(ownerUID, ownerKey)},
			[]int64{0, ownerKey}, []int64{0, ownerKey},
		},
		"one UID, one added": {refs{ref(ownerUID, 0), named("b", ownerUID, 5)}, bare, []int64{0, 0}, []int64{0, 0}},
	} {
		for gate, owners := range map[bool][]int64{true: tc.on, false: tc.off} {
			t.Run(fmt.Sprintf("%s, gate %t", name, gate), func(t *testing.T) {
				featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ControllerRing, gate)
				own := int64(0)
				if gate {
					own = ownKey
				}
				old := object(ownUID, own, tc.old...)
				inBothForms(t, object(ownUID, own, tc.sent...), func(t *testing.T, sent metav1.Object) {
					for _, old := range []runtime.Object{old.DeepCopy(), asUnstructured(t, old)} {
						before := old.DeepCopyObject()
						aligned := sent.(runtime.Object).DeepCopyObject().(metav1.Object)
						AlignHashKeys(aligned.(runtime.Object), old)
						expectKeys(t, aligned, own, owners...)

						// Before validation a second time, and with what admission has changed.
						StampHashKeys(aligned, old.(metav1.Object))
						expectKeys(t, aligned, own, owners...)
						stamped := sent.(runtime.Object).DeepCopyObject().(metav1.Object)
						StampHashKeys(stamped, old.(metav1.Object))
						expectKeys(t, stamped, own, owners...)
						if !reflect.DeepEqual(old, before) {
							t.Errorf("the old object has changed: %v, was %v", old, before)
						}
					}
				})
			})
		}
	}
}

func TestEqualButKeys(t *testing.T) {
	a := ref(ownerUID, 1)
	for name, tc := range map[string]struct {
		change func(b *metav1.OwnerReference)
		equal  bool
	}{
		"nothing":            {func(*metav1.OwnerReference) {}, true},
		"key":                {func(b *metav1.OwnerReference) { b.HashKey = 2 }, true},
		"version":            {func(b *metav1.OwnerReference) { b.APIVersion = "v2" }, false},
		"kind":               {func(b *metav1.OwnerReference) { b.Kind = "K" }, false},
		"name":               {func(b *metav1.OwnerReference) { b.Name = "n" }, false},
		"UID":                {func(b *metav1.OwnerReference) { b.UID = newUID }, false},
		"same controller":    {func(b *metav1.OwnerReference) { b.Controller = ptr.To(true) }, true},
		"controller":         {func(b *metav1.OwnerReference) { b.Controller = ptr.To(false) }, false},
		"no controller":      {func(b *metav1.OwnerReference) { b.Controller = nil }, false},
		"blockOwnerDeletion": {func(b *metav1.OwnerReference) { b.BlockOwnerDeletion = ptr.To(false) }, false},
	} {
		b := a
		tc.change(&b)
		if got := equalButKeys(a, b); got != tc.equal {
			t.Errorf("with another %s: %t, want %t", name, got, tc.equal)
		}
	}
}

// Strategies share slices between the old object and the new one.
func TestStampHashKeysLeavesASharedSliceAlone(t *testing.T) {
	shared := []metav1.OwnerReference{ref(ownerUID, ownerKey), ref(newUID, 1)}
	obj := object(ownUID, 0)
	obj.OwnerReferences = shared
	StampHashKeys(obj, nil)
	expectKeys(t, obj, ownKey, ownerKey, newKey)
	if shared[1].HashKey != 1 {
		t.Error("the slice that another object shares has changed")
	}
}

func TestStampHashKeysDoesNotAllocateWhenKeysAreRight(t *testing.T) {
	obj := object(ownUID, ownKey, ref(ownerUID, ownerKey), ref(newUID, 0))
	old := object(ownUID, ownKey, ref(ownerUID, ownerKey), ref(newUID, 0))
	refs := &obj.OwnerReferences[0]
	if allocs := testing.AllocsPerRun(100, func() { StampHashKeys(obj, old) }); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
	if refs != &obj.OwnerReferences[0] {
		t.Error("the owner references were copied")
	}
}

func TestAlignHashKeys(t *testing.T) {
	byUs := object(ownUID, ownKey, ref(ownerUID, ownerKey))
	byStock := object(ownUID, 0, ref(ownerUID, 0))
	for name, tc := range map[string]struct {
		sent, live *metav1.PartialObjectMetadata
		own        int64
		owners     []int64
	}{
		"a client that knows no keys":             {object(ownUID, 0, ref(ownerUID, 0)), byUs, ownKey, []int64{ownerKey}},
		"a client that sends no UID":              {object("", 0, ref(ownerUID, 0)), byUs, ownKey, []int64{ownerKey}},
		"forged":                                  {object(ownUID, 1, ref(ownerUID, 2)), byUs, ownKey, []int64{ownerKey}},
		"unchanged, written by stock":             {object(ownUID, 0, ref(ownerUID, 0)), byStock, 0, []int64{0}},
		"sent with keys, written by stock":        {object(ownUID, ownKey, ref(ownerUID, ownerKey)), byStock, 0, []int64{0}},
		"another UID, for preconditions to catch": {object(newUID, 5), byUs, newKey, nil},
		"created by an update":                    {object("", 5, ref(ownerUID, 6)), object("", 0), 0, []int64{ownerKey}},
		"created by an update, no keys":           {object("", 0, ref(ownerUID, 0)), object("", 0), 0, []int64{0}},
	} {
		t.Run(name, func(t *testing.T) {
			inBothForms(t, tc.sent, func(t *testing.T, sent metav1.Object) {
				for _, live := range []runtime.Object{tc.live.DeepCopy(), asUnstructured(t, tc.live)} {
					AlignHashKeys(sent.(runtime.Object), live)
					expectKeys(t, sent, tc.own, tc.owners...)
				}
			})
		})
	}
	t.Run("gate off, written with it on", func(t *testing.T) {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ControllerRing, false)
		sent := object(ownUID, 0, ref(ownerUID, 0))
		AlignHashKeys(sent, byUs)
		expectKeys(t, sent, ownKey, ownerKey)
		StampHashKeys(sent, byUs)
		expectKeys(t, sent, 0, ownerKey)
	})
	t.Run("no metadata", func(t *testing.T) {
		AlignHashKeys(&metav1.Status{}, byUs)
		AlignHashKeys(object(ownUID, 0), &metav1.Status{})
	})
}

// keyStrategy changes an owner while it prepares the object, as a strategy may.
type keyStrategy struct {
	runtime.ObjectTyper
	names.NameGenerator
}

func (keyStrategy) ObjectKinds(runtime.Object) ([]schema.GroupVersionKind, bool, error) {
	return []schema.GroupVersionKind{{Version: "v1", Kind: "Key"}}, false, nil
}
func (keyStrategy) NamespaceScoped() bool                         { return true }
func (keyStrategy) AllowCreateOnUpdate(context.Context) bool      { return false }
func (keyStrategy) AllowUnconditionalUpdate(context.Context) bool { return true }
func (keyStrategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	obj.(metav1.Object).SetOwnerReferences([]metav1.OwnerReference{ref(newUID, 7)})
}
func (keyStrategy) PrepareForUpdate(_ context.Context, obj, _ runtime.Object) {
	obj.(metav1.Object).SetOwnerReferences([]metav1.OwnerReference{ref(newUID, 7)})
}
func (keyStrategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return requireKeys(obj, newKey)
}
func (keyStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return requireKeys(obj, old.(metav1.Object).GetOwnerReferences()[0].HashKey)
}
func (keyStrategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }
func (keyStrategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}
func (keyStrategy) Canonicalize(runtime.Object) {}

// requireKeys makes validation fail if the keys are not right yet.
func requireKeys(obj runtime.Object, owner int64) field.ErrorList {
	meta := obj.(metav1.Object)
	if meta.(hashKeyed).GetHashKey() != hashkey.OfUID(meta.GetUID()) || meta.GetOwnerReferences()[0].HashKey != owner {
		return field.ErrorList{field.Invalid(field.NewPath("metadata"), meta, "wrong keys")}
	}
	return nil
}

func TestBeforeCreateAndUpdateStampHashKeys(t *testing.T) {
	ctx := genericapirequest.WithNamespace(context.Background(), "ns")
	sent := object("", 5, ref(ownerUID, 6))
	for _, obj := range []runtime.Object{sent.DeepCopy(), asUnstructured(t, sent)} {
		meta := obj.(metav1.Object)
		FillObjectMetaSystemFields(meta)
		if err := BeforeCreate(keyStrategy{}, ctx, obj); err != nil {
			t.Fatal(err)
		}
		key := hashkey.OfUID(meta.GetUID())
		expectKeys(t, meta, key, newKey)

		// The client sends the update without a UID and with a key of its choice, whether
		// storage holds the keys or not.
		meta.SetResourceVersion("1")
		update := obj.DeepCopyObject()
		update.(metav1.Object).SetUID("")
		update.(hashKeyed).SetHashKey(8)
		byStock := obj.DeepCopyObject()
		byStock.(hashKeyed).SetHashKey(0)
		byStock.(metav1.Object).SetOwnerReferences([]metav1.OwnerReference{ref(newUID, 0)})
		for _, stored := range []runtime.Object{obj, byStock} {
			updated := update.DeepCopyObject()
			if err := BeforeUpdate(keyStrategy{}, ctx, updated, stored); err != nil {
				t.Fatal(err)
			}
			expectKeys(t, updated.(metav1.Object), key, stored.(metav1.Object).GetOwnerReferences()[0].HashKey)
		}
	}
}
