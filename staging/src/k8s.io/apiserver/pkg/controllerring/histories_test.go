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
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3/history"
	"k8s.io/apiserver/pkg/storage/etcd3/testserver"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/ring/fence"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

// nothing is stored.
type nothing struct{ storage.Interface }

func (nothing) Get(context.Context, string, storage.GetOptions, runtime.Object) error { return nil }

// The histories are those that are known when the answer begins, of whatever kind that is.
func TestHistoriesAreToldToWhoAsks(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ControllerRing, true)
	etcd := testserver.RunEtcd(t, nil)
	// Nothing is known before the first read.
	open := func() {
		s := history.WrapStorage(nothing{}, etcd, storagebackend.ConfigForResource{
			Config:        storagebackend.Config{Prefix: "registry"},
			GroupResource: shardingv1alpha1.Resource("controllerinstances"),
		})
		if err := s.Get(t.Context(), "/pods/a", storage.GetOptions{}, nil); err != nil {
			t.Error(err)
		}
	}
	for name, answer := range map[string]func(http.ResponseWriter){
		"a status": func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) },
		"content":  func(w http.ResponseWriter) { fmt.Fprint(w, "content") },
		"both":     func(w http.ResponseWriter) { w.WriteHeader(http.StatusCreated); fmt.Fprint(w, "content") },
		"a watch's events": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			fmt.Fprint(w, "event")
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(WithHistories(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				open()
				answer(w)
			})))
			defer server.Close()
			for _, asks := range []bool{true, false} {
				req, err := http.NewRequest(http.MethodGet, server.URL, nil)
				if err != nil {
					t.Fatal(err)
				}
				if asks {
					req.Header.Set(fence.HistoryHeader, "?")
				}
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if told := resp.Header.Get(fence.HistoryHeader); (told != "") != asks {
					t.Errorf("who asks: %t, is told %q", asks, told)
				}
			}
		})
	}
}

// A write that was decided on another history is refused before anything is stored.
func TestWritesOfAnotherHistoryAreRefused(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ControllerRing, true)
	s := history.WrapStorage(nothing{}, testserver.RunEtcd(t, nil), storagebackend.ConfigForResource{
		Config:        storagebackend.Config{Prefix: "registry"},
		GroupResource: shardingv1alpha1.Resource("controllerinstances"),
	})
	if err := s.Get(t.Context(), "/pods/a", storage.GetOptions{}, nil); err != nil {
		t.Fatal(err)
	}
	known := history.Identities()
	lost := map[string]string{"elsewhere": "x"}
	for name := range known {
		lost[name] = "lost"
	}
	served := false
	server := httptest.NewServer(WithHistories(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true })))
	defer server.Close()
	for name, tc := range map[string]struct {
		method, header string
		refused        bool
	}{
		"of the same":           {http.MethodPost, fence.FormatHistories(known), false},
		"of one more":           {http.MethodPost, fence.FormatHistories(known) + ",elsewhere=x", false},
		"of none":               {http.MethodPost, "?", false},
		"without the header":    {http.MethodPost, "", false},
		"a read of another":     {http.MethodGet, fence.FormatHistories(lost), false},
		"a creation of another": {http.MethodPost, fence.FormatHistories(lost), true},
		"an update of another":  {http.MethodPut, fence.FormatHistories(lost), true},
		"a patch of another":    {http.MethodPatch, fence.FormatHistories(lost), true},
		"a delete of another":   {http.MethodDelete, fence.FormatHistories(lost), true},
	} {
		t.Run(name, func(t *testing.T) {
			served = false
			req, err := http.NewRequest(tc.method, server.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			if tc.header != "" {
				req.Header.Set(fence.HistoryHeader, tc.header)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if refused := resp.StatusCode == http.StatusConflict; refused != tc.refused || served == tc.refused {
				t.Errorf("answered %s, served: %t, want it refused: %t", resp.Status, served, tc.refused)
			}
			if told := resp.Header.Get(fence.HistoryHeader); tc.refused && told == "" {
				t.Error("the refusal does not tell the history")
			}
		})
	}
}
