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

package etcd3

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/api/apitesting"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/ptr"
)

// keyedForm is a way in which an earlier version stored objects with hash keys.
type keyedForm struct {
	codec            runtime.Codec
	newFunc, newList func() runtime.Object
	// keyed has keys in its metadata and in one of two owner references.
	keyed runtime.Object
}

func keyedForms() map[string]keyedForm {
	pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "pod", Namespace: "ns", UID: "uid", HashKey: ptr.To(hashkey.OfUID("uid")),
		OwnerReferences: []metav1.OwnerReference{{UID: "a", HashKey: ptr.To(hashkey.OfUID("a"))}, {UID: "b", HashKey: ptr.To[int64](0)}},
	}}
	proto := protobuf.NewSerializer(scheme, scheme)
	custom := &unstructured.Unstructured{Object: map[string]interface{}{
		"apiVersion": "example.com/v1", "kind": "Custom", "future": "kept",
		"metadata": map[string]interface{}{
			"name": "pod", "namespace": "ns", "uid": "uid", "hashKey": hashkey.OfUID("uid"),
			"ownerReferences": []interface{}{
				map[string]interface{}{"uid": "a", "hashKey": hashkey.OfUID("a")}, map[string]interface{}{"uid": "b"},
			},
		},
	}}
	newCustom := func() runtime.Object { return &unstructured.Unstructured{} }
	newCustomList := func() runtime.Object { return &unstructured.UnstructuredList{} }
	return map[string]keyedForm{
		"JSON":         {apitesting.TestCodec(codecs, examplev1.SchemeGroupVersion), newPod, newPodList, pod},
		"protobuf":     {codecs.CodecForVersions(proto, codecs.UniversalDeserializer(), examplev1.SchemeGroupVersion, example.SchemeGroupVersion), newPod, newPodList, pod},
		"unstructured": {unstructured.UnstructuredJSONScheme, newCustom, newCustomList, custom},
	}
}

// keyedStore is a store of one object, which an earlier version has stored.
type keyedStore struct {
	*store
	keyedForm
	client *kubernetes.Client
	ctx    context.Context
}

const keyedName = "/pods/ns/pod"

func newKeyedStore(t *testing.T, form keyedForm) *keyedStore {
	t.Helper()
	ctx, store, client := testSetup(t, withCodec(WithoutHashKeys(form.codec)), func(options *setupOptions) {
		options.newFunc, options.newListFunc = form.newFunc, form.newList
	})
	return &keyedStore{store, form, client, ctx}
}

// put stores data, and returns the revision.
func (s *keyedStore) put(t *testing.T, data []byte) int64 {
	t.Helper()
	put, err := s.client.Put(s.ctx, keyedName, defaultTestPrefix+string(data))
	if err != nil {
		t.Fatal(err)
	}
	return put.Header.Revision
}

// stored returns what is stored, and since which revision.
func (s *keyedStore) stored(t *testing.T) ([]byte, int64) {
	t.Helper()
	got, err := s.client.KV.Get(s.ctx, keyedName)
	if err != nil || len(got.Kvs) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	return bytes.TrimPrefix(got.Kvs[0].Value, []byte(defaultTestPrefix)), got.Kvs[0].ModRevision
}

func (s *keyedStore) update(change func(metav1.Object), cached runtime.Object) error {
	return s.GuaranteedUpdate(s.ctx, keyedName, s.newFunc(), false, nil, storage.SimpleUpdate(func(obj runtime.Object) (runtime.Object, error) {
		accessor, err := meta.Accessor(obj)
		if err == nil {
			change(accessor)
		}
		return obj, err
	}), cached)
}

// asStored returns the object as an earlier version has stored it.
func (f keyedForm) asStored(t *testing.T) []byte {
	t.Helper()
	data, err := runtime.Encode(f.codec, f.keyed)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.ReplaceAll(data, []byte("\xd0\x3e"), hashKeyTag) // in protobuf
}

func (s *keyedStore) expectNoKeys(t *testing.T, what string, obj runtime.Object) {
	t.Helper()
	accessor, err := meta.Accessor(obj)
	if err != nil {
		t.Fatal(err)
	}
	if len(accessor.GetOwnerReferences()) != 2 || accessor.GetUID() != "uid" {
		t.Errorf("%s: it has lost what it had: %v", what, obj)
	}
	if data, err := runtime.Encode(s.keyedForm.codec, obj); err != nil || mayHoldHashKeys(data) || bytes.Contains(data, []byte("\xd0\x3e")) {
		t.Errorf("%s: it carries keys: %q, %v", what, data, err)
	}
}

// TestStoredHashKeysAreNotRead: whoever reads what an earlier version stored sees no keys.
func TestStoredHashKeysAreNotRead(t *testing.T) {
	for name, form := range keyedForms() {
		t.Run(name, func(t *testing.T) {
			s := newKeyedStore(t, form)
			data := form.asStored(t)
			if !mayHoldHashKeys(data) {
				t.Fatalf("nobody would look for keys in %q", data)
			}
			revision := s.put(t, data)

			got := s.newFunc()
			if err := s.Get(s.ctx, keyedName, storage.GetOptions{}, got); err != nil {
				t.Fatal(err)
			}
			s.expectNoKeys(t, "get", got)

			list := s.newList()
			if err := s.GetList(s.ctx, "/pods/", storage.ListOptions{Recursive: true, Predicate: storage.Everything}, list); err != nil {
				t.Fatal(err)
			}
			items, err := meta.ExtractList(list)
			if err != nil || len(items) != 1 {
				t.Fatalf("listed %v, %v", items, err)
			}
			s.expectNoKeys(t, "list", items[0])

			events, err := s.Watch(s.ctx, keyedName, storage.ListOptions{ResourceVersion: fmt.Sprint(revision), Predicate: storage.Everything})
			if err != nil {
				t.Fatal(err)
			}
			defer events.Stop()
			s.put(t, data)
			if _, err := s.client.Delete(s.ctx, keyedName); err != nil {
				t.Fatal(err)
			}
			for _, want := range []watch.EventType{watch.Modified, watch.Deleted} {
				event := <-events.ResultChan()
				if event.Type != want {
					t.Fatalf("got %v, want %v", event, want)
				}
				s.expectNoKeys(t, "watch, "+string(want), event.Object)
			}
		})
	}
}

// TestUpdatesLeaveStoredHashKeys until they change something else.
func TestUpdatesLeaveStoredHashKeys(t *testing.T) {
	for name, form := range keyedForms() {
		t.Run(name, func(t *testing.T) {
			s := newKeyedStore(t, form)
			revision := s.put(t, form.asStored(t))
			cached := s.newFunc()
			if err := s.Get(s.ctx, keyedName, storage.GetOptions{}, cached); err != nil {
				t.Fatal(err)
			}

			for what, cached := range map[string]runtime.Object{"read": nil, "cached": cached} {
				if err := s.update(func(metav1.Object) {}, cached); err != nil {
					t.Fatal(err)
				}
				if _, now := s.stored(t); now != revision {
					t.Errorf("%s: an update that changes nothing was written", what)
				}
			}

			if err := s.update(func(obj metav1.Object) { obj.SetLabels(map[string]string{"a": "b"}) }, cached); err != nil {
				t.Fatal(err)
			}
			data, now := s.stored(t)
			if now == revision || mayHoldHashKeys(data) {
				t.Errorf("a change has left %q", data)
			}
			if err := s.update(func(metav1.Object) {}, nil); err != nil {
				t.Fatal(err)
			}
			if _, again := s.stored(t); again != now {
				t.Error("once changed, an update that changes nothing was written")
			}
		})
	}
}

// TestUpdatesRewriteOtherForms: what is stored in a form that is no longer written, with keys or
// without, is rewritten by an update that changes nothing, as the migration of stored objects
// needs.
func TestUpdatesRewriteOtherForms(t *testing.T) {
	forms := keyedForms()
	for now, before := range map[string]string{"JSON": "protobuf", "protobuf": "JSON"} {
		t.Run("from "+before+" to "+now, func(t *testing.T) {
			s := newKeyedStore(t, forms[now])
			for _, data := range [][]byte{
				forms[before].asStored(t),
				mustEncodeBare(t, forms[before]),
			} {
				revision := s.put(t, data)
				if err := s.update(func(metav1.Object) {}, nil); err != nil {
					t.Fatal(err)
				}
				if data, after := s.stored(t); after == revision || mayHoldHashKeys(data) || formOf(data).encoding != now {
					t.Errorf("it was not rewritten: %q", data)
				}
			}
		})
	}
	s := newKeyedStore(t, forms["JSON"])
	data := bytes.Replace(forms["JSON"].asStored(t), []byte(examplev1.SchemeGroupVersion.String()), []byte(example.SchemeGroupVersion.String()), 1)
	revision := s.put(t, data)
	if err := s.update(func(metav1.Object) {}, nil); err != nil {
		t.Fatal(err)
	}
	if data, after := s.stored(t); after == revision {
		t.Errorf("what was stored in another API version was not rewritten: %q", data)
	}
}

func mustEncodeBare(t *testing.T, form keyedForm) []byte {
	t.Helper()
	obj := form.keyed.DeepCopyObject()
	meta.ClearHashKeys(obj)
	data, err := runtime.Encode(form.codec, obj)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestFormsOfStoredObjects(t *testing.T) {
	encoded, err := direct.Marshal(map[string]interface{}{"apiVersion": "example.com/v1", "kind": "Custom", "metadata": map[string]interface{}{"name": "a"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		data []byte
		want form
	}{
		"JSON":     {[]byte(`{"kind":"Custom","apiVersion":"example.com/v1","metadata":{"name":"a"}}`), form{"JSON", "example.com/v1", "Custom"}},
		"CBOR":     {encoded, form{"CBOR", "example.com/v1", "Custom"}},
		"protobuf": {mustEncodeBare(t, keyedForms()["protobuf"]), form{"protobuf", examplev1.SchemeGroupVersion.String(), "Pod"}},
		"cut off":  {[]byte("k8s\x00\x0a\xff"), form{}},
		"nothing":  {nil, form{}},
	} {
		if got := formOf(tc.data); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
