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
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"

	"k8s.io/client-go/tools/ring/fence"
)

// WrapTransport returns a wrapper, fit for rest.Config.Wrap, that makes the client of that
// controller obey the gate's deadline: a request that changes something is not sent at or
// after the deadline, and one under way is given up when the record's lease may have ended without
// a renewal. Such a request names the instance and the controller (fence.Header), so the API
// server can refuse it if the process was paused before it was sent. Where an API server
// does not judge it, the member stops all work for a while. A read that fills no cache is given
// up soon after the instance has lost its record. The client is Discreet, too.
func (g *Gate) WrapTransport(controller string) func(http.RoundTripper) http.RoundTripper {
	return func(rt http.RoundTripper) http.RoundTripper {
		return Discreet(&fencedTransport{gate: g, controller: controller, next: rt})
	}
}

// WrapReads returns a wrapper, fit for rest.Config.Wrap, for a client of servers that may take long
// to answer: a read is given up soon after the door is shut for the key that key tells of the
// request, so that a range can change hands meanwhile. If key returns false, the read goes on.
func (d *Door) WrapReads(key func(*http.Request) (int64, bool)) func(http.RoundTripper) http.RoundTripper {
	return func(rt http.RoundTripper) http.RoundTripper {
		return &endingTransport{door: d, key: key, next: rt}
	}
}

// WrapRegistryTransport is for the client with which a member writes the registry. A
// request that changes something names the instance, once it is registered. The gate's
// deadline does not bound it, as a renewal is what moves that. It fits rest.Config.Wrap.
func (g *Gate) WrapRegistryTransport(rt http.RoundTripper) http.RoundTripper {
	return &namingTransport{gate: g, next: rt}
}

// isRead says whether a request changes nothing.
func isRead(req *http.Request) bool {
	return req.Method == http.MethodGet || req.Method == http.MethodHead
}

type namingTransport struct {
	gate *Gate
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *namingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if self, ok := t.gate.identity(); ok && !isRead(req) {
		req = req.Clone(req.Context())
		req.Header.Set(fence.Header, self.String())
	}
	return t.next.RoundTrip(req)
}

// WrappedRoundTripper lets client-go find the transport underneath.
func (t *namingTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

type fencedTransport struct {
	gate       *Gate
	controller string
	next       http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *fencedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if isRead(req) {
		return t.read(req)
	}
	if reason := t.gate.whyBarred(); reason != "" {
		return nil, fmt.Errorf("%s %s not sent: %s (%s)", req.Method, req.URL.Path, reason, fence.CauseFenced)
	}
	self, ctx, cancel, err := t.gate.admit(req.Context())
	if err != nil {
		t.gate.refuse(RefusedBySelf)
		return nil, fmt.Errorf("%s %s not sent: %w", req.Method, req.URL.Path, err)
	}
	self.Controller = t.controller
	named := req.Clone(ctx)
	named.Header.Set(fence.Header, self.String())
	resp, err := t.next.RoundTrip(named)
	if err == nil && resp.StatusCode == http.StatusConflict {
		err = t.countRefusal(resp)
	}
	// Where protocols are switched somebody else has answered, such as a kubelet, and nothing is
	// stored.
	if err == nil && resp.StatusCode != http.StatusSwitchingProtocols &&
		resp.StatusCode < http.StatusMultipleChoices && resp.Header.Get(fence.Header) == "" {
		t.gate.bar(req.Method + " " + req.URL.Path)
	}
	return answer(ctx, cancel, req, resp, err)
}

// answer returns the answer to a request that ends with ctx, or says why that has ended. cancel is
// called once the request is over.
func answer(ctx context.Context, cancel context.CancelFunc, req *http.Request, resp *http.Response, err error) (*http.Response, error) {
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, errNotRenewed) || errors.Is(cause, errShut) {
			err = fmt.Errorf("%s %s given up: %w", req.Method, req.URL.Path, cause)
		}
		cancel()
		return nil, err
	}
	if stream, ok := resp.Body.(io.ReadWriteCloser); ok && resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body = &streamWithCancel{stream, cancel}
	} else {
		resp.Body = &cancelOnClose{ReadCloser: resp.Body, cancel: cancel}
	}
	return resp, nil
}

// read sends a request that changes nothing. What fills a cache goes on without a record.
func (t *fencedTransport) read(req *http.Request) (*http.Response, error) {
	if fills(req.URL.Query()) {
		return t.next.RoundTrip(req)
	}
	ctx, cancel := t.gate.whileRegistered(req.Context())
	resp, err := t.next.RoundTrip(req.WithContext(ctx))
	return answer(ctx, cancel, req, resp, err)
}

// fills says whether a read with that query may fill a cache: it goes on, or says as of when or
// what part.
func fills(query url.Values) bool {
	return slices.ContainsFunc([]string{"watch", "resourceVersion", "limit", "continue", "shardSelector"}, query.Has)
}

// countRefusal counts the answer if it is a refusal by the API server's fence.
func (t *fencedTransport) countRefusal(resp *http.Response) error {
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

type endingTransport struct {
	door *Door
	key  func(*http.Request) (int64, bool)
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *endingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	key, ok := t.key(req)
	if !ok || !isRead(req) {
		return t.next.RoundTrip(req)
	}
	ctx, cancel := t.door.during(req.Context(), key)
	resp, err := t.next.RoundTrip(req.WithContext(ctx))
	return answer(ctx, cancel, req, resp, err)
}

// WrappedRoundTripper lets client-go find the transport underneath.
func (t *endingTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// streamWithCancel is a connection that was upgraded.
type streamWithCancel struct {
	io.ReadWriteCloser
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (s *streamWithCancel) Close() error {
	defer s.cancel()
	return s.ReadWriteCloser.Close()
}

type cancelOnClose struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (c *cancelOnClose) Close() error {
	defer c.cancel()
	return c.ReadCloser.Close()
}
