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

package sharding

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestKeyPathsParseToThemselves(t *testing.T) {
	for p, fieldPath := range map[KeyPath]string{
		KeyPathOwn:        "object.metadata.hashKey",
		KeyPathController: "object.metadata.controllerRef.hashKey",
		KeyPathHome:       "object.metadata.home.hashKey",
		KeyPathNamespace:  "object.metadata.namespace.hashKey",
		KeyPathClaim:      "object.spec.claimRef.hashKey",
	} {
		if p.String() != fieldPath {
			t.Errorf("path %d is %q, want %q", p, p, fieldPath)
		}
	}
	for p := range NumKeyPaths {
		if got, ok := ParseKeyPath(p.String()); !ok || got != p {
			t.Errorf("ParseKeyPath(%q) = %d, %t; want %d", p, got, ok, p)
		}
	}
	for _, fieldPath := range []string{"", "object.metadata.uid", "metadata.hashKey"} {
		if got, ok := ParseKeyPath(fieldPath); ok {
			t.Errorf("ParseKeyPath(%q) = %v, want none", fieldPath, got)
		}
	}
}

// typedNamespace and typedVolume have the methods of the types in k8s.io/api.
type typedNamespace struct{ testObject }

func (n *typedNamespace) GetNamespaceHashKey() (int64, bool) {
	return hashkey.OfNamespace(n.Name), true
}

type typedVolume struct {
	testObject
	claim int64
}

func (v *typedVolume) GetClaimHashKey() (int64, bool) { return v.claim, v.claim != 0 }

// foreignObject implements no more than metav1.Object.
type foreignObject struct {
	metav1.TypeMeta
	metav1.Object
}

func (o *foreignObject) DeepCopyObject() runtime.Object { panic("not copied") }

// accessorObject gives access to its metadata and has no methods of its own.
type accessorObject struct {
	metav1.TypeMeta
	metadata metav1.ObjectMeta
}

func (o *accessorObject) GetObjectMeta() metav1.Object   { return &o.metadata }
func (o *accessorObject) DeepCopyObject() runtime.Object { panic("not copied") }

// plainMeta hides all methods of ObjectMeta except those of metav1.Object.
type plainMeta struct{ metav1.Object }

func inNamespace(obj *testObject) *testObject {
	obj.Namespace = "team"
	return obj
}

func withContent(apiVersion, kind string, content map[string]interface{}) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]interface{}{"apiVersion": apiVersion, "kind": kind}}
	for name, value := range content {
		u.Object[name] = value
	}
	u.SetName("team")
	u.SetUID(ownUID)
	return u
}

// pathKeys are the keys of an object by path, and noKey stands for one that it lacks: none of the
// keys here is 0.
type pathKeys [NumKeyPaths]int64

const noKey = 0

func TestKeyPathsReadTheirKeys(t *testing.T) {
	namespaceKey := hashkey.OfNamespace("team")
	claimRef := map[string]interface{}{"spec": map[string]interface{}{"claimRef": map[string]interface{}{"uid": string(otherOwnerUID)}}}
	preBound := map[string]interface{}{"spec": map[string]interface{}{"claimRef": map[string]interface{}{"name": "claim"}}}
	claimKey := hashkey.OfUID(otherOwnerUID)
	for name, tc := range map[string]struct {
		obj  runtime.Object
		want pathKeys
	}{
		"controlled":               {keyed(), pathKeys{ownKey, controllerKey, controllerKey}},
		"controlled, no keys":      {unkeyed(), pathKeys{ownKey, controllerKey, controllerKey}},
		"controlled, unstructured": {asUnstructured(t, keyed()), pathKeys{ownKey, controllerKey, controllerKey}},
		"controlled, no keys, unstructured": {
			asUnstructured(t, unkeyed()), pathKeys{ownKey, controllerKey, controllerKey}},
		"controlled, only metadata":  {&accessorObject{metadata: unkeyed().ObjectMeta}, pathKeys{ownKey, controllerKey, controllerKey}},
		"orphan":                     {orphan(), pathKeys{ownKey, noKey, ownKey}},
		"orphan, unstructured":       {asUnstructured(t, orphan()), pathKeys{ownKey, noKey, ownKey}},
		"namespaced":                 {inNamespace(keyed()), pathKeys{ownKey, controllerKey, controllerKey, namespaceKey}},
		"namespaced orphan":          {inNamespace(orphan()), pathKeys{ownKey, noKey, ownKey, namespaceKey}},
		"namespaced, unstructured":   {asUnstructured(t, inNamespace(keyed())), pathKeys{ownKey, controllerKey, controllerKey, namespaceKey}},
		"foreign":                    {&foreignObject{Object: plainMeta{&inNamespace(unkeyed()).ObjectMeta}}, pathKeys{ownKey, controllerKey, controllerKey, namespaceKey}},
		"foreign, cluster-scoped":    {&foreignObject{Object: plainMeta{&unkeyed().ObjectMeta}}, pathKeys{ownKey, controllerKey, controllerKey}},
		"Namespace":                  {&typedNamespace{testObject{ObjectMeta: metav1.ObjectMeta{Name: "team", UID: ownUID}}}, pathKeys{ownKey, noKey, ownKey, namespaceKey}},
		"Namespace, unstructured":    {withContent("v1", "Namespace", nil), pathKeys{ownKey, noKey, ownKey, namespaceKey}},
		"another group's Namespace":  {withContent("example.com/v1", "Namespace", nil), pathKeys{ownKey, noKey, ownKey}},
		"volume":                     {&typedVolume{*orphan(), claimKey}, pathKeys{ownKey, noKey, ownKey, noKey, claimKey}},
		"free volume":                {&typedVolume{*orphan(), 0}, pathKeys{ownKey, noKey, ownKey}},
		"volume, unstructured":       {withContent("v1", "PersistentVolume", claimRef), pathKeys{ownKey, noKey, ownKey, noKey, claimKey}},
		"pre-bound volume":           {withContent("v1", "PersistentVolume", preBound), pathKeys{ownKey, noKey, ownKey}},
		"free volume, unstructured":  {withContent("v1", "PersistentVolume", nil), pathKeys{ownKey, noKey, ownKey}},
		"another group's volume":     {withContent("example.com/v1", "PersistentVolume", claimRef), pathKeys{ownKey, noKey, ownKey}},
		"another kind with claimRef": {withContent("v1", "Pod", claimRef), pathKeys{ownKey, noKey, ownKey}},
	} {
		t.Run(name, func(t *testing.T) {
			for p := range NumKeyPaths {
				key, found, err := p.KeyOf(tc.obj)
				if err != nil || key != tc.want[p] || found == (key == noKey) {
					t.Errorf("%s: %x, %t, %v; want %x", p, key, found, err, tc.want[p])
				}
			}
		})
	}
}

func TestOnlyOptionalKeysCanBeMissing(t *testing.T) {
	for p := range NumKeyPaths {
		if _, found, err := p.KeyOf(&testObject{}); err != nil || found == p.Optional() {
			t.Errorf("%s of an object without references: found %t, %v; optional: %t", p, found, err, p.Optional())
		}
		if _, found, err := p.KeyOf(&metav1.Status{}); err == nil {
			t.Errorf("%s of an object without metadata: found %t and no error", p, found)
		}
	}
}

func TestTheKeyOfANamespaceIsThatOfItsObjects(t *testing.T) {
	for p := range NumKeyPaths {
		key, ok := p.OfNamespace("team")
		if ok != (p == KeyPathNamespace) {
			t.Errorf("%s: the objects of a namespace share a key: %t", p, ok)
		}
		if got, _, err := p.KeyOf(inNamespace(keyed())); ok && (err != nil || got != key) {
			t.Errorf("%s: an object has the key %x, %v; its namespace has %x", p, got, err, key)
		}
	}
}

func TestKeysDoNotAllocate(t *testing.T) {
	for name, obj := range map[string]runtime.Object{
		"typed":          inNamespace(keyed()),
		"typed, no keys": inNamespace(unkeyed()),
		"unstructured":   asUnstructured(t, inNamespace(keyed())),
		"volume":         &typedVolume{*orphan(), ownKey},
	} {
		keys, err := KeysOf(obj)
		if err != nil {
			t.Fatal(err)
		}
		if allocs := testing.AllocsPerRun(100, func() { _, _ = KeysOf(obj); _, _ = Governing("Home", keys, keys) }); allocs != 0 {
			t.Errorf("%s: the keys that govern a write take %v allocations", name, allocs)
		}
		for p := range NumKeyPaths {
			if allocs := testing.AllocsPerRun(100, func() { _, _, _ = p.KeyOf(obj) }); allocs != 0 {
				t.Errorf("%s: %s takes %v allocations", name, p, allocs)
			}
		}
	}
}

// BenchmarkMatches compares what upstream's selector and ours take for one object.
func BenchmarkMatches(b *testing.B) {
	obj := runtime.Object(inNamespace(keyed()))
	fieldPaths := []string{"object.metadata.uid", "object.metadata.namespace"}
	for p := range NumKeyPaths {
		fieldPaths = append(fieldPaths, p.String())
	}
	for _, fieldPath := range fieldPaths {
		b.Run(fieldPath, func(b *testing.B) {
			selector := NewSelector(ShardRangeRequirement{Key: fieldPath, Start: "0x4000000000000000", End: "0x8000000000000000"})
			for b.Loop() {
				if _, err := selector.Matches(obj); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
