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

package member

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	protobufserializer "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/ring/fence"
)

// What the fence and the gate say of a write goes into no object.
func TestNothingIsSentThatTellsOfAStoppedWrite(t *testing.T) {
	deployment := func(argument, message string) []byte {
		d := &apps.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}}
		d.Spec.Template.Spec.Containers = []v1.Container{{Args: []string{argument}}}
		d.Status.Conditions = []apps.DeploymentCondition{{Message: message}}
		var protobuf bytes.Buffer
		if err := protobufserializer.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(d, &protobuf); err != nil {
			t.Fatal(err)
		}
		return protobuf.Bytes()
	}
	const events, deployments, status = "/api/v1/namespaces/ns/events", "/apis/apps/v1/namespaces/ns/deployments/web", "/apis/apps/v1/namespaces/ns/deployments/web/status"
	for name, tc := range map[string]struct {
		method, path, body string
		sent               bool
	}{
		"another event":                  {http.MethodPost, events, `{"message": "Error creating: exceeded quota"}`, true},
		"an event of the gate":           {http.MethodPost, events, fmt.Sprintf(`{"message": "Error creating: %v"}`, errNotRenewed), false},
		"an event again":                 {http.MethodPatch, events + "/web", fmt.Sprintf(`{"message": "Error creating: %v"}`, errNotRenewed), false},
		"a condition of the fence":       {http.MethodPut, status, fmt.Sprintf(`{"status": {"message": "epoch 2 (%s)"}}`, fence.CauseFenced), false},
		"a condition without a status":   {http.MethodPut, deployments, fmt.Sprintf(`{"status": {"message": "epoch 2 (%s)"}}`, fence.CauseFenced), false},
		"a patch that an end stops":      {http.MethodPatch, status, fmt.Sprintf(`[{"op": "add", "value": "%v"}]`, errShut), false},
		"a merge patch":                  {http.MethodPatch, deployments, fmt.Sprintf(`{"status": {"message": "%v"}}`, errShut), false},
		"protobuf":                       {http.MethodPut, status, string(deployment("", errShut.Error())), false},
		"a read":                         {http.MethodGet, status, string(fence.CauseFenced), true},
		"a user's pod":                   {http.MethodPost, "/api/v1/namespaces/ns/pods", string(fence.CauseFenced), true},
		"a user's object":                {http.MethodPut, deployments, fmt.Sprintf(`{"spec": {"args": ["%s"]}, "status": {}}`, fence.CauseFenced), true},
		"the status of that":             {http.MethodPut, status, fmt.Sprintf(`{"spec": {"args": ["%s"]}, "status": {}}`, fence.CauseFenced), true},
		"the status of that in protobuf": {http.MethodPut, status, string(deployment(string(fence.CauseFenced), "")), true},
		"a patch of that":                {http.MethodPatch, deployments, fmt.Sprintf(`{"spec": {"args": ["%s"]}}`, fence.CauseFenced), true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{answer: func(*http.Request) (*http.Response, error) {
				return response(http.StatusOK, strings.NewReader("")), nil
			}}
			req, err := http.NewRequestWithContext(t.Context(), tc.method, "http://server"+tc.path, strings.NewReader(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := Discreet(s).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if sent := len(s.requests) == 1; sent != tc.sent {
				t.Fatalf("sent: %t", sent)
			}
			if tc.sent {
				return
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			var status metav1.Status
			if err := json.Unmarshal(body, &status); err != nil {
				t.Fatal(err)
			}
			if err := (&apierrors.StatusError{ErrStatus: status}); !apierrors.IsConflict(err) || fence.IsFenced(err) {
				t.Errorf("answered %v, want a conflict that is not the fence's", err)
			}
		})
	}
}
