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

package main

import (
	"io"
	"net/http"
	"sync/atomic"
)

// traffic counts requests, and the bytes of their responses.
type traffic struct{ requests, received atomic.Int64 }

func (t *traffic) reset() {
	t.requests.Store(0)
	t.received.Store(0)
}

func (t *traffic) wrap(rt http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := rt.RoundTrip(r)
		if err == nil {
			// A request that finds no server costs it nothing.
			t.requests.Add(1)
			response.Body = counted{response.Body, t}
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (rt roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return rt(r) }

type counted struct {
	io.ReadCloser
	traffic *traffic
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.traffic.received.Add(int64(n))
	return n, err
}
