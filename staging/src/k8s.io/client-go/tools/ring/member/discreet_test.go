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
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/tools/ring/fence"
)

// What the fence and the gate say of a write goes into no object.
func TestNothingIsSentThatTellsOfAStoppedWrite(t *testing.T) {
	for name, tc := range map[string]struct {
		method, body string
		sent         bool
	}{
		"another event":             {http.MethodPost, `{"message": "Error creating: exceeded quota"}`, true},
		"an event of the gate":      {http.MethodPost, fmt.Sprintf(`{"message": "Error creating: %v"}`, errNotRenewed), false},
		"a condition of the fence":  {http.MethodPut, fmt.Sprintf(`{"message": "epoch 2 (%s)"}`, fence.CauseFenced), false},
		"a patch that an end stops": {http.MethodPatch, fmt.Sprintf("k8s\x00%v", errShut), false},
		"a read":                    {http.MethodGet, string(fence.CauseFenced), true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{answer: func(*http.Request) (*http.Response, error) {
				return response(http.StatusOK, strings.NewReader("")), nil
			}}
			req, err := http.NewRequestWithContext(t.Context(), tc.method, "http://server/path", strings.NewReader(tc.body))
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
