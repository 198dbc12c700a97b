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
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/ring/member"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/clock"
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

func TestRingzShowsTheMembersOfThisProcess(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	h := &ringHost{}
	defer abandonOnExit(ctx, h)()
	for _, name := range []string{"workloads", "claims"} {
		m, err := member.New(member.Config{
			Client: fake.NewClientset().ShardingV1alpha1().ControllerInstances(), Ring: name, HolderIdentity: "host_1",
			Controllers: map[string]member.Controller{"replicaset-controller": nil}, Gate: member.NewGate(clock.RealClock{}),
		})
		if err != nil {
			t.Fatal(err)
		}
		h.joins(name, m)
	}
	var rings []string
	for _, s := range ringSnapshots() {
		rings = append(rings, s.Ring)
	}
	if !slices.Equal(rings, []string{"claims", "workloads"}) {
		t.Errorf("it shows the rings %q", rings)
	}
	h.left("claims")
	if s := ringSnapshots(); len(s) != 1 || s[0].Name != "" {
		t.Errorf("it shows %+v", s)
	}
}
