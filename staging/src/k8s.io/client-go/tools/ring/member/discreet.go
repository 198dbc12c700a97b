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
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/ring/fence"
)

// Discreet returns a transport that sends nothing that tells of a write which the fence or the gate
// has stopped, such as an event or a condition of what the controller works on: it is no fault of
// that, and whoever owns it now makes the write. It fits rest.Config.Wrap.
func Discreet(next http.RoundTripper) http.RoundTripper { return &discreetTransport{next} }

type discreetTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t *discreetTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	tells, err := tellsOfFence(req)
	if err != nil {
		return nil, err
	}
	if tells {
		return notTold(req)
	}
	return t.next.RoundTrip(req)
}

// WrappedRoundTripper lets client-go find the transport underneath.
func (t *discreetTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// tellsOfFence says whether a request writes the text of an error of the fence or of the gate into
// an event or a status. That is the same in every encoding. People may have it elsewhere in an
// object.
func tellsOfFence(req *http.Request) (bool, error) {
	if isRead(req) || req.GetBody == nil {
		return false, nil
	}
	body, err := req.GetBody()
	if err != nil {
		return false, err
	}
	defer body.Close()
	content, err := io.ReadAll(body)
	if err != nil || !bytes.Contains(content, []byte(fence.CauseFenced)) {
		return false, err
	}
	path := strings.Split(req.URL.Path, "/")
	switch {
	case slices.Contains(path, "events"):
		return true, nil
	case req.Method == http.MethodPost:
		return false, nil
	}
	status, known := statusIn(content)
	return bytes.Contains(status, []byte(fence.CauseFenced)) || !known && path[len(path)-1] == "status", nil
}

// statusIn returns the status in a whole object or in a merge patch, as JSON, and whether that can
// be told.
func statusIn(content []byte) (status []byte, known bool) {
	var object struct {
		Status json.RawMessage `json:"status"`
	}
	if err := json.Unmarshal(content, &object); err == nil {
		return object.Status, true
	}
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(content, nil, nil)
	if err != nil {
		return nil, false
	}
	if content, err = json.Marshal(decoded); err != nil {
		return nil, false
	}
	err = json.Unmarshal(content, &object)
	return object.Status, err == nil
}

// notTold is the answer to what is not sent. It is a conflict, so that an object's status is
// written anew from what there is then, and an event is logged and dropped.
func notTold(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		req.Body.Close()
	}
	body, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Code:     http.StatusConflict,
		Reason:   metav1.StatusReasonConflict,
		Message:  "not sent: it tells of a write that was stopped since its instance does not own the object, or cannot tell",
	})
	if err != nil {
		return nil, err
	}
	return &http.Response{
		Status:        http.StatusText(http.StatusConflict),
		StatusCode:    http.StatusConflict,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        http.Header{"Content-Type": []string{"application/json"}},
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
		Request:       req,
	}, nil
}
