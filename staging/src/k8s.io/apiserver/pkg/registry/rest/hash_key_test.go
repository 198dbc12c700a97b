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

func TestStampHashKeys(t *testing.T) {
	for name, obj := range map[string]*metav1.PartialObjectMetadata{
		"missing": object(ownUID, 0, ref(ownerUID, 0), ref(newUID, 0)),
		"right":   object(ownUID, ownKey, ref(ownerUID, ownerKey), ref(newUID, newKey)),
		"forged":  object(ownUID, 1, ref(ownerUID, 2), ref(newUID, -3)),
		"swapped": object(ownUID, ownerKey, ref(ownerUID, newKey), ref(newUID, ownerKey)),
	} {
		t.Run(name, func(t *testing.T) {
			inBothForms(t, obj, func(t *testing.T, obj metav1.Object) {
				StampHashKeys(obj)
				expectKeys(t, obj, ownKey, ownerKey, newKey)
			})
		})
		t.Run(name+", gate off", func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ControllerRing, false)
			inBothForms(t, obj, func(t *testing.T, obj metav1.Object) {
				StampHashKeys(obj)
				expectKeys(t, obj, 0, 0, 0)
				if u, ok := obj.(*unstructured.Unstructured); ok {
					if _, found, _ := unstructured.NestedFieldNoCopy(u.Object, "metadata", "hashKey"); found {
						t.Errorf("the field is still there: %v", u)
					}
				}
			})
		})
	}
	t.Run("no UID", func(t *testing.T) {
		inBothForms(t, object("", 5, ref("", 6)), func(t *testing.T, obj metav1.Object) {
			StampHashKeys(obj)
			expectKeys(t, obj, 0, 0)
		})
	})
	t.Run("no owner", func(t *testing.T) {
		inBothForms(t, object(ownUID, 0), func(t *testing.T, obj metav1.Object) {
			StampHashKeys(obj)
			expectKeys(t, obj, ownKey)
		})
	})
	t.Run("a type without the field", func(t *testing.T) {
		meta := object(ownUID, 5, ref(ownerUID, 6))
		StampHashKeys(keyless{meta})
		expectKeys(t, meta, 5, ownerKey)
	})
}

// Strategies share slices between the old object and the new one.
func TestStampHashKeysLeavesASharedSliceAlone(t *testing.T) {
	shared := []metav1.OwnerReference{ref(ownerUID, ownerKey), ref(newUID, 0)}
	obj := object(ownUID, 0, shared...)
	obj.OwnerReferences = shared
	StampHashKeys(obj)
	expectKeys(t, obj, ownKey, ownerKey, newKey)
	if shared[1].HashKey != 0 {
		t.Error("the slice that another object shares has changed")
	}
}

func TestStampHashKeysDoesNotAllocateWhenKeysAreRight(t *testing.T) {
	obj := object(ownUID, ownKey, ref(ownerUID, ownerKey), ref(newUID, newKey))
	refs := &obj.OwnerReferences[0]
	if allocs := testing.AllocsPerRun(100, func() { StampHashKeys(obj) }); allocs != 0 {
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
		"owner added":                             {object(ownUID, 0, ref(newUID, 0), ref(ownerUID, 0)), byUs, ownKey, []int64{newKey, ownerKey}},
		"owner added, forged, written by stock":   {object(ownUID, 0, ref(ownerUID, 1), ref(newUID, 2)), byStock, 0, []int64{0, newKey}},
		"owner removed":                           {object(ownUID, 0), byUs, ownKey, nil},
		"another UID, for preconditions to catch": {object(newUID, 5), byUs, newKey, nil},
		"created by an update":                    {object("", 5, ref(ownerUID, 6)), object("", 0), 0, []int64{ownerKey}},
	} {
		t.Run(name, func(t *testing.T) {
			inBothForms(t, tc.sent, func(t *testing.T, sent metav1.Object) {
				for _, live := range []runtime.Object{tc.live.DeepCopy(), asUnstructured(t, tc.live)} {
					before := live.DeepCopyObject()
					AlignHashKeys(sent.(runtime.Object), live)
					expectKeys(t, sent, tc.own, tc.owners...)
					if !reflect.DeepEqual(live, before) {
						t.Errorf("the live object has changed: %v, was %v", live, before)
					}
				}
			})
		})
	}
	t.Run("gate off, written with it on", func(t *testing.T) {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ControllerRing, false)
		sent := object(ownUID, 0, ref(ownerUID, 0), ref(newUID, 4))
		AlignHashKeys(sent, byUs)
		// Stored keys do not count; new references get no key.
		expectKeys(t, sent, ownKey, ownerKey, 0)
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
	return requireKeys(obj)
}
func (keyStrategy) ValidateUpdate(_ context.Context, obj, _ runtime.Object) field.ErrorList {
	return requireKeys(obj)
}
func (keyStrategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }
func (keyStrategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}
func (keyStrategy) Canonicalize(runtime.Object) {}

// requireKeys makes validation fail if the keys are not right yet.
func requireKeys(obj runtime.Object) field.ErrorList {
	meta := obj.(metav1.Object)
	if meta.(hashKeyed).GetHashKey() != hashkey.OfUID(meta.GetUID()) || meta.GetOwnerReferences()[0].HashKey != newKey {
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
		for _, stored := range []runtime.Object{obj, byStock} {
			updated := update.DeepCopyObject()
			if err := BeforeUpdate(keyStrategy{}, ctx, updated, stored); err != nil {
				t.Fatal(err)
			}
			expectKeys(t, updated.(metav1.Object), key, newKey)
		}
	}
}
