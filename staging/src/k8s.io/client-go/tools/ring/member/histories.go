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
	"maps"
	"net/http"
	"strings"
	"sync"

	"k8s.io/client-go/tools/ring/fence"
)

// Histories notices by the answers of API servers that an etcd of theirs was restored to an earlier
// state, however far its revisions are by then. An API server that tells no history is believed.
type Histories struct {
	changed func(reason string)

	lock sync.Mutex
	// heard has what was told at each host that API servers are reached at: etcds of several clusters
	// may have the same name.
	heard map[string]*heard
}

// heard is what API servers at one host have told.
type heard struct {
	// known has the identities by the names of etcds.
	known map[string]string
	// last is the value of the last header: hardly any differs from the one before.
	last string
	// asks is the value of the header of requests.
	asks string
}

// NewHistories returns one that calls changed, once at least and not while it judges an answer,
// when a history is another than before. What the process has seen cannot be relied on then, and it
// has to end.
func NewHistories(changed func(reason string)) *Histories {
	return &Histories{changed: changed, heard: map[string]*heard{}}
}

// WrapTransport returns a transport whose requests ask for the history, and fail where that is
// another than in an answer before, also one to another client of these Histories. It fits
// rest.Config.Wrap.
func (h *Histories) WrapTransport(next http.RoundTripper) http.RoundTripper {
	return &historyTransport{histories: h, next: next}
}

// judge returns why the value of a header of an API server at that host tells another history than
// one before; "" if it tells the same.
func (h *Histories) judge(host, value string) string {
	h.lock.Lock()
	defer h.lock.Unlock()
	here, ok := h.heard[host]
	if !ok {
		here = &heard{known: map[string]string{}}
		h.heard[host] = here
	}
	if value == here.last {
		return ""
	}
	histories := fence.ParseHistories(value)
	for name, identity := range histories {
		if before, ok := here.known[name]; ok && before != identity {
			return fmt.Sprintf("the API server says that the history of etcd has the identity %s, and it had %s before", identity, before)
		}
	}
	maps.Copy(here.known, histories)
	here.last, here.asks = value, fence.FormatHistories(here.known)
	return ""
}

// ask returns the value of the header of a request to that host.
func (h *Histories) ask(host string) string {
	h.lock.Lock()
	defer h.lock.Unlock()
	if here, ok := h.heard[host]; ok && here.asks != "" {
		return here.asks
	}
	return unknown
}

// unknown is the value of the header of a request by which no history is known.
const unknown = "?"

// leaves says whether a request deletes a record: a process that ends for another history does so,
// and has to know that it has.
func leaves(req *http.Request) bool {
	return req.Method == http.MethodDelete && strings.Contains(req.URL.Path, "/controllerinstances/")
}

type historyTransport struct {
	histories *Histories
	next      http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *historyTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	asks, known, leaving := req.Clone(req.Context()), unknown, leaves(req)
	if !leaving {
		known = t.histories.ask(req.URL.Host)
	}
	asks.Header.Set(fence.HistoryHeader, known)
	resp, err := t.next.RoundTrip(asks)
	if err != nil {
		return nil, err
	}
	value := resp.Header.Get(fence.HistoryHeader)
	if value == "" || leaving {
		return resp, nil
	}
	if reason := t.histories.judge(req.URL.Host, value); reason != "" {
		resp.Body.Close()
		go t.histories.changed(reason)
		return nil, fmt.Errorf("%s %s: %s", req.Method, req.URL.Path, reason)
	}
	return resp, nil
}

// WrappedRoundTripper lets client-go find the transport underneath.
func (t *historyTransport) WrappedRoundTripper() http.RoundTripper { return t.next }
