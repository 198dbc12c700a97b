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

package apiserver

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericfeatures "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/ring/fence"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

type oneServer struct{ *url.URL }

func (s oneServer) ResolveEndpoint(string, string, int32) (*url.URL, error) { return s.URL, nil }

// An autoscaler on a ring may scale what an aggregated API server has, also one that was built from
// this tree.
func TestAnAggregatedServerIsNotToldOfInstances(t *testing.T) {
	for _, on := range []bool{true, false} {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, genericfeatures.ControllerRing, on)
		var got http.Header
		server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { got = req.Header }))
		at, err := url.Parse(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		handler := &proxyHandler{serviceResolver: oneServer{at}}
		handler.handlingInfo.Store(proxyHandlingInfo{serviceAvailable: true, proxyRoundTripper: server.Client().Transport})
		req := httptest.NewRequest(http.MethodPut, "https://host/apis/example.com/v1/namespaces/ns/things/a/scale", nil)
		req.Header.Set(fence.Header, "namespaces-abcde")
		req.Header.Set("X-Other", "kept")
		ctx := genericapirequest.WithUser(req.Context(), &user.DefaultInfo{Name: "controller"})
		handler.ServeHTTP(httptest.NewRecorder(), req.WithContext(ctx))
		server.Close()
		if got.Get("X-Other") != "kept" || (got.Get(fence.Header) == "") != on {
			t.Errorf("gate %v: the aggregated server got the headers %v", on, got)
		}
	}
}
