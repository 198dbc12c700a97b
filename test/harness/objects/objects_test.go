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

package objects

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func TestCreate(t *testing.T) {
	var asked string
	var answer runtime.Object
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.URL.Path
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	class := &storage.StorageClass{ObjectMeta: Named("class")}
	for want, c := range map[string]struct {
		namespace string
		object    interface {
			runtime.Object
			metav1.Object
		}
		version, kind string
	}{
		"POST /api/v1/namespaces/a/pods":              {"a", Pod("", Pods(nil)), "v1", "Pod"},
		"POST /apis/apps/v1/namespaces/a/replicasets": {"a", ReplicaSet("set", 1, Pods(nil)), "apps/v1", "ReplicaSet"},
		"POST /apis/storage.k8s.io/v1/storageclasses": {"", class, "storage.k8s.io/v1", "StorageClass"},
	} {
		answer = &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: c.version, Kind: c.kind}, ObjectMeta: metav1.ObjectMeta{UID: "uid"}}
		if err := Create(t.Context(), client, c.namespace, c.object); err != nil || asked != want || c.object.GetUID() != "uid" {
			t.Errorf("asked %q, %v, and it has the UID %q, want %q", asked, err, c.object.GetUID(), want)
		}
	}
}
