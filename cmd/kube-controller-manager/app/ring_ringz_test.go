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

package app

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	genericfeatures "k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/server/mux"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

func TestRingzIsServedOnlyWhereThereMayBeRings(t *testing.T) {
	for _, on := range []bool{false, true} {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, genericfeatures.ControllerRing, on)
		m := mux.NewPathRecorderMux("test")
		installRingz(m)
		if got := slices.Contains(m.ListedPaths(), ringzPath); got != on {
			t.Errorf("with the feature gate %t it is listed: %t", on, got)
		}
		w := httptest.NewRecorder()
		m.ServeHTTP(w, httptest.NewRequest(http.MethodGet, ringzPath, nil))
		if code := w.Code; (code == http.StatusOK) != on {
			t.Errorf("with the feature gate %t the answer is %d", on, code)
		}
	}
}
