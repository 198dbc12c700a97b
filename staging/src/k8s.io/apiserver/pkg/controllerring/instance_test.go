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
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/ring/fence"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

// onlyRing lets "worker" work on the ring "r", and nobody do anything else.
func onlyRing(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	switch {
	case a.GetName() == "broken":
		return authorizer.DecisionNoOpinion, "", errors.New("no answer")
	case a.GetUser().GetName() == "worker" && a.GetVerb() == "work" && a.GetAPIGroup() == "sharding.k8s.io" && a.GetResource() == "rings" && a.GetName() == "r" && a.IsResourceRequest():
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "because", nil
}

func TestARequestThatChangesSomethingNamesAnInstanceOfARingThatTheUserMayWorkOn(t *testing.T) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	scheme.AddUnversionedTypes(schema.GroupVersion{Version: "v1"}, &metav1.Status{})
	codecs := serializer.NewCodecFactory(scheme)

	const name = "r/a/1/0/c"
	for what, tc := range map[string]struct {
		off    bool
		user   string
		verb   string
		header []string
		want   string
		status int
	}{
		"none":                       {want: "none", status: http.StatusOK},
		"an instance":                {header: []string{name}, want: name, status: http.StatusOK},
		"no instance":                {header: []string{"a"}, want: "want RING/NAME/UID/EPOCH/CONTROLLER", status: http.StatusBadRequest},
		"empty":                      {header: []string{""}, want: "want RING/NAME/UID/EPOCH/CONTROLLER", status: http.StatusBadRequest},
		"two":                        {header: []string{name, name}, want: "2 instances are named", status: http.StatusBadRequest},
		"a stranger":                 {user: "stranger", header: []string{name}, want: `rings.sharding.k8s.io \"r\" is forbidden: User \"stranger\" cannot work resource \"rings\" in API group \"sharding.k8s.io\" at the cluster scope: because`, status: http.StatusForbidden},
		"another ring":               {header: []string{"q/a/1/0/c"}, want: `rings.sharding.k8s.io \"q\" is forbidden`, status: http.StatusForbidden},
		"no answer":                  {header: []string{"broken/a/1/0/c"}, want: `whether the user has the verb \"work\" on ring broken cannot be decided: no answer`, status: http.StatusInternalServerError},
		"a read":                     {verb: "get", user: "stranger", header: []string{"a"}, want: "none", status: http.StatusOK},
		"a watch":                    {verb: "watch", user: "stranger", header: []string{name}, want: "none", status: http.StatusOK},
		"a delete of many":           {verb: "deletecollection", header: []string{name}, want: name, status: http.StatusOK},
		"feature gate off":           {off: true, user: "stranger", header: []string{name}, want: "none", status: http.StatusOK},
		"feature gate off, no sense": {off: true, header: []string{"a"}, want: "none", status: http.StatusOK},
	} {
		t.Run(what, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ControllerRing, !tc.off)
			handler := WithInstance(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				got := "none"
				if instance, ok := FromContext(req.Context()); ok {
					got = instance.String()
				}
				_, _ = w.Write([]byte(got))
			}), authorizer.AuthorizerFunc(onlyRing), codecs, true)
			if tc.verb == "" {
				tc.verb = "create"
			}
			if tc.user == "" {
				tc.user = "worker"
			}
			req := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/default/pods", nil)
			ctx := request.WithRequestInfo(audit.WithAuditContext(req.Context()), &request.RequestInfo{IsResourceRequest: true, Verb: tc.verb})
			req = req.WithContext(request.WithUser(ctx, &user.DefaultInfo{Name: tc.user}))
			for _, value := range tc.header {
				req.Header.Add(fence.Header, value)
			}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, req)
			if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.want) {
				t.Errorf("got %d %s, want %d with %q", w.Code, w.Body, tc.status, tc.want)
			}
			// Only who was judged is told so, and is in the audit log.
			repeated, want := w.Header().Get(fence.Header), ""
			if tc.status == http.StatusOK && tc.want == name {
				want = name
			}
			if repeated != want {
				t.Errorf("the answer names %q, want %q", repeated, want)
			}
			if annotated, ok := audit.AuditContextFrom(ctx).GetEventAnnotation("sharding.k8s.io/controller-instance"); annotated != want || ok != (want != "") {
				t.Errorf("the audit event names %q, want %q", annotated, want)
			}
		})
	}
}
