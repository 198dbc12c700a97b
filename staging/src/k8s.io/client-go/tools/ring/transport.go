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

package ring

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// WrapTransport makes a client obey the gate's deadline: a request that changes
// something is not sent once the deadline has passed, and one under way is given
// up at it. It fits rest.Config.Wrap.
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
	deadline := t.gate.Deadline()
	if !t.gate.clock.Now().Before(deadline) {
		return nil, fmt.Errorf("%s %s not sent: this instance could not renew its ControllerInstance in time, another may own the object now", req.Method, req.URL.Path)
	}
	ctx, cancel := context.WithDeadline(req.Context(), deadline)
	resp, err := t.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &cancelOnClose{ReadCloser: resp.Body, cancel: cancel}
	return resp, nil
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
