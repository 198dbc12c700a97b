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

package controllerring

import (
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage/etcd3/history"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/ring/fence"
)

// WithHistories has each answer to a request with the header fence.HistoryHeader tell the
// identities of the etcds that this process reads, as they are when the answer begins. It refuses
// writes by clients that know others: they were decided on what is lost. With the feature gate
// ControllerRing off it returns the handler.
func WithHistories(handler http.Handler) http.Handler {
	if !utilfeature.DefaultFeatureGate.Enabled(features.ControllerRing) {
		return handler
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if known := req.Header[fence.HistoryHeader]; len(known) > 0 {
			w = responsewriter.WrapForHTTP1Or2(&telling{ResponseWriter: w})
			if writes(req) && isOfAnother(known[0]) {
				http.Error(w, "this write was decided on a history of etcd that is lost: etcd was restored to an earlier state, so its client has to begin anew", http.StatusConflict)
				return
			}
		}
		handler.ServeHTTP(w, req)
	})
}

// writes says whether the request may write.
func writes(req *http.Request) bool {
	switch req.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return true
	}
	return false
}

// isOfAnother says whether a client that knows these histories has seen another of an etcd than
// this process.
func isOfAnother(known string) bool {
	here := history.Identities()
	for name, identity := range fence.ParseHistories(known) {
		if now, ok := here[name]; ok && now != identity {
			return true
		}
	}
	return false
}

// telling writes an answer that tells the identities.
type telling struct {
	http.ResponseWriter
	told bool
}

var _ responsewriter.UserProvidedDecorator = &telling{}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (t *telling) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (t *telling) WriteHeader(code int) {
	t.tell()
	t.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (t *telling) Write(content []byte) (int, error) {
	t.tell()
	return t.ResponseWriter.Write(content)
}

func (t *telling) tell() {
	if t.told {
		return
	}
	t.told = true
	// An aggregated API server may have told its own, to which its etcd is another.
	t.Header().Del(fence.HistoryHeader)
	if known := history.Identities(); len(known) > 0 {
		t.Header().Set(fence.HistoryHeader, fence.FormatHistories(known))
	}
}
