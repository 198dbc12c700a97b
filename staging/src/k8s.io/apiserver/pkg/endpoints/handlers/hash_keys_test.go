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

package handlers

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/utils/ptr"
)

func bareMeta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: "a", UID: "uid", OwnerReferences: []metav1.OwnerReference{{Name: "o", UID: "owner"}}}
}

func keyedMeta() metav1.ObjectMeta {
	meta := bareMeta()
	meta.HashKey = ptr.To(hashkey.OfUID("uid"))
	meta.OwnerReferences[0].HashKey = ptr.To(hashkey.OfUID("owner"))
	return meta
}

// custom returns an object that has a field items at its top, as a list has.
func custom(keyed bool) unstructured.Unstructured {
	ref := map[string]interface{}{"name": "o", "uid": "owner"}
	metadata := map[string]interface{}{"name": "a", "uid": "uid", "ownerReferences": []interface{}{ref}}
	if keyed {
		ref["hashKey"], metadata["hashKey"] = hashkey.OfUID("owner"), hashkey.OfUID("uid")
	}
	return unstructured.Unstructured{Object: map[string]interface{}{
		"apiVersion": "example.com/v1", "kind": "K", "metadata": metadata, "items": []interface{}{map[string]interface{}{"metadata": "kept"}},
	}}
}

// TestWithHashKeys: all metadata at the top level of an answer has keys, and what others may share
// is as it was.
func TestWithHashKeys(t *testing.T) {
	template := func(meta metav1.ObjectMeta) *v1.PodTemplate {
		return &v1.PodTemplate{ObjectMeta: meta, Template: v1.PodTemplateSpec{ObjectMeta: bareMeta()}}
	}
	table := func(meta metav1.ObjectMeta) *metav1.Table {
		return &metav1.Table{Rows: []metav1.TableRow{
			{Cells: []interface{}{"a"}, Object: runtime.RawExtension{Object: &metav1.PartialObjectMetadata{ObjectMeta: meta}}},
			{Cells: []interface{}{"b"}},
			{Cells: []interface{}{"c"}, Object: runtime.RawExtension{Object: &v1.Pod{ObjectMeta: meta}}},
		}}
	}
	list := metav1.ListMeta{ResourceVersion: "7", Continue: "more"}
	for name, tc := range map[string]struct{ bare, keyed runtime.Object }{
		"object":              {&v1.Pod{ObjectMeta: bareMeta()}, &v1.Pod{ObjectMeta: keyedMeta()}},
		"another key":         {&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid", HashKey: ptr.To(int64(7))}}, &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid", HashKey: ptr.To(hashkey.OfUID("uid"))}}},
		"template":            {template(bareMeta()), template(keyedMeta())},
		"bookmark":            {&v1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}}, &v1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}}},
		"list":                {&v1.PodList{ListMeta: list, Items: []v1.Pod{{ObjectMeta: bareMeta()}, {}}}, &v1.PodList{ListMeta: list, Items: []v1.Pod{{ObjectMeta: keyedMeta()}, {}}}},
		"empty list":          {&v1.PodList{ListMeta: list, Items: []v1.Pod{}}, &v1.PodList{ListMeta: list, Items: []v1.Pod{}}},
		"list of all kinds":   {&metainternalversion.List{ListMeta: list, Items: []runtime.Object{&v1.Pod{ObjectMeta: bareMeta()}}}, &metainternalversion.List{ListMeta: list, Items: []runtime.Object{&v1.Pod{ObjectMeta: keyedMeta()}}}},
		"metadata":            {&metav1.PartialObjectMetadata{ObjectMeta: bareMeta()}, &metav1.PartialObjectMetadata{ObjectMeta: keyedMeta()}},
		"list of metadata":    {&metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{{ObjectMeta: bareMeta()}}}, &metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{{ObjectMeta: keyedMeta()}}}},
		"table":               {table(bareMeta()), table(keyedMeta())},
		"custom":              {ptr.To(custom(false)), ptr.To(custom(true))},
		"list of custom":      {&unstructured.UnstructuredList{Items: []unstructured.Unstructured{custom(false)}}, &unstructured.UnstructuredList{Items: []unstructured.Unstructured{custom(true)}}},
		"custom, no metadata": {&unstructured.Unstructured{Object: map[string]interface{}{"kind": "K"}}, &unstructured.Unstructured{Object: map[string]interface{}{"kind": "K"}}},
		"status":              {&metav1.Status{Message: "no metadata"}, &metav1.Status{Message: "no metadata"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.bare.DeepCopyObject()
			if got := withHashKeys(tc.bare); !reflect.DeepEqual(got, tc.keyed) {
				t.Errorf("got %s\nwant %s", mustEncode(t, got), mustEncode(t, tc.keyed))
			}
			if !reflect.DeepEqual(tc.bare, before) {
				t.Errorf("what others may share has changed: %s, was %s", mustEncode(t, tc.bare), mustEncode(t, before))
			}
		})
	}
}

func mustEncode(t *testing.T, obj runtime.Object) string {
	t.Helper()
	data, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestWhoIsServedHashKeys: who has asked, or everybody where the server says so.
func TestWhoIsServedHashKeys(t *testing.T) {
	serves := func(toAll, asked bool) bool {
		var served bool
		handler := WithHashKeys(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			served = servesHashKeys(req, negotiation.MediaTypeOptions{HashKeys: asked})
		}), toAll)
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/api", nil))
		return served
	}
	for _, gate := range []bool{true, false} {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ControllerRing, gate)
		for _, toAll := range []bool{true, false} {
			for _, asked := range []bool{true, false} {
				if got, want := serves(toAll, asked), gate && (toAll || asked); got != want {
					t.Errorf("gate %t, to all %t, asked %t: served %t, want %t", gate, toAll, asked, got, want)
				}
			}
		}
	}
}
