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
	"context"
	"fmt"
	"io"
	"net/http"

	"k8s.io/client-go/tools/ring/fence"
)

// WrapTransport makes a client obey the gate's deadline: a request that changes
// something is not sent at or after the deadline, and one under way is given up
// then. Such a request names the instance (fence.Header), so the API server can
// refuse it if the process was paused before it was sent. It fits rest.Config.Wrap.
func (g *Gate) WrapTransport(rt http.RoundTripper) http.RoundTripper {
	return &fencedTransport{gate: g, next: rt}
}

type fencedTransport struct {
	gate *Gate
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *fencedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet || req.Method == http.MethodHead {
		return t.next.RoundTrip(req)
	}
	self, deadline := t.gate.pass()
	if !t.gate.clock.Now().Before(deadline) {
		t.gate.refuse(RefusedBySelf)
		return nil, fmt.Errorf("%s %s not sent: this instance could not renew its ControllerInstance in time, so another may own the object now", req.Method, req.URL.Path)
	}
	ctx, cancel := context.WithDeadline(req.Context(), deadline)
	req = req.Clone(ctx)
	req.Header.Set(fence.Header, self.String())
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		cancel()
		return nil, err
	}
	if resp.StatusCode == http.StatusConflict {
		if err := t.look(resp); err != nil {
			cancel()
			return nil, err
		}
	}
	resp.Body = &cancelOnClose{ReadCloser: resp.Body, cancel: cancel}
	return resp, nil
}

// look counts the answer if it is a refusal by the API server's fence.
func (t *fencedTransport) look(resp *http.Response) error {
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		return err
	}
	// The cause is the same in every encoding.
	if bytes.Contains(body, []byte(fence.CauseFenced)) {
		t.gate.refuse(RefusedByServer)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// WrappedRoundTripper lets client-go find the transport underneath.
func (t *fencedTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

type cancelOnClose struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (c *cancelOnClose) Close() error {
	defer c.cancel()
	return c.ReadCloser.Close()
}
