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
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/ring/fence"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

func TestWithInstance(t *testing.T) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	scheme.AddUnversionedTypes(schema.GroupVersion{Version: "v1"}, &metav1.Status{})
	codecs := serializer.NewCodecFactory(scheme)

	for name, tc := range map[string]struct {
		off    bool
		header []string
		want   string
		status int
	}{
		"none":                       {want: "none", status: http.StatusOK},
		"an instance":                {header: []string{"a/1"}, want: "a/1", status: http.StatusOK},
		"no instance":                {header: []string{"a"}, want: "want NAME/UID", status: http.StatusBadRequest},
		"empty":                      {header: []string{""}, want: "want NAME/UID", status: http.StatusBadRequest},
		"two":                        {header: []string{"a/1", "b/2"}, want: "2 instances are named", status: http.StatusBadRequest},
		"feature gate off":           {off: true, header: []string{"a/1"}, want: "none", status: http.StatusOK},
		"feature gate off, no sense": {off: true, header: []string{"a"}, want: "none", status: http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ControllerRing, !tc.off)
			handler := WithInstance(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				got := "none"
				if instance, ok := FromContext(req.Context()); ok {
					got = instance.String()
				}
				_, _ = w.Write([]byte(got))
			}), codecs)
			req := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/default/pods", nil)
			for _, value := range tc.header {
				req.Header.Add(fence.Header, value)
			}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, req)
			if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.want) {
				t.Errorf("got %d %s, want %d with %q", w.Code, w.Body, tc.status, tc.want)
			}
		})
	}
}
