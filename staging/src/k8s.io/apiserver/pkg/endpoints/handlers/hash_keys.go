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
	"context"
	"net/http"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// servesHashKeys says whether an answer has hash keys: its client has asked for them, or the
// server serves them to all. With the feature gate ControllerRing off no answer has.
func servesHashKeys(req *http.Request, asked negotiation.MediaTypeOptions) bool {
	return utilfeature.DefaultFeatureGate.Enabled(features.ControllerRing) &&
		(asked.HashKeys || req.Context().Value(hashKeysForAll) != nil)
}

// WithHashKeys has handler's answers carry hash keys, whether their clients ask for them or not, if
// toAll is set.
func WithHashKeys(handler http.Handler, toAll bool) http.Handler {
	if !toAll {
		return handler
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		handler.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), hashKeysForAll, true)))
	})
}

type contextKey int

const hashKeysForAll contextKey = iota

// withHashKeys returns obj, an object, a list or a table that is about to be sent, with the hash
// keys in all metadata at its top level. It changes nothing that caches may share: what gets a
// key is copied first, and no deeper than that takes.
func withHashKeys(obj runtime.Object) runtime.Object {
	if table, ok := obj.(*metav1.Table); ok {
		return tableWithHashKeys(table)
	}
	if _, ok := obj.(*unstructured.Unstructured); !ok && meta.IsListType(obj) {
		return listWithHashKeys(obj)
	}
	if _, ok := obj.(hashKeyed); !ok {
		return obj // such as a Status
	}
	obj = shallowCopy(obj)
	obj.(hashKeyed).FillHashKeys()
	return obj
}

// hashKeyed is what has metadata with hash keys.
type hashKeyed interface {
	// FillHashKeys sets the hash keys. It changes nothing that another object may share.
	FillHashKeys()
}

func tableWithHashKeys(table *metav1.Table) runtime.Object {
	filled := *table
	filled.Rows = make([]metav1.TableRow, len(table.Rows))
	for i, row := range table.Rows {
		if row.Object.Object != nil {
			row.Object.Object = withHashKeys(row.Object.Object)
		}
		filled.Rows[i] = row
	}
	return &filled
}

func listWithHashKeys(list runtime.Object) runtime.Object {
	items, err := meta.ExtractList(list)
	if err != nil {
		return list // of what are no objects
	}
	for i := range items {
		items[i] = withHashKeys(items[i])
	}
	list = shallowCopy(list)
	if err := meta.SetList(list, items); err != nil {
		panic(err) // cannot be: they have come from a list of this type
	}
	return list
}

func shallowCopy(obj runtime.Object) runtime.Object {
	from := reflect.ValueOf(obj).Elem()
	to := reflect.New(from.Type())
	to.Elem().Set(from)
	return to.Interface().(runtime.Object)
}

func (e *watchEmbeddedEncoder) withHashKeys(obj runtime.Object) runtime.Object {
	if !e.hashKeys {
		return obj
	}
	return withHashKeys(obj)
}

// identifierWithHashKeys returns the identifier of what the encoder writes, which is id without
// hash keys: who has asked for them shares no encoded object with who has not.
func (e *watchEmbeddedEncoder) identifierWithHashKeys(id runtime.Identifier) runtime.Identifier {
	if !e.hashKeys {
		return id
	}
	return "with-hash-keys," + id
}
