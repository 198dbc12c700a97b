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
	"net/http"
	"sync"

	"k8s.io/client-go/tools/ring/fence"
)

// Histories notices by the answers of API servers that an etcd of theirs was restored to an earlier
// state, however far its revisions are by then. An API server that tells no history is believed.
type Histories struct {
	changed func(reason string)

	lock sync.Mutex
	// known has the identities that were told, by the names of etcds.
	known map[string]string
	// last is the value that was judged last: hardly any differs from the one before.
	last string
}

// NewHistories returns one that calls changed, once at least and not while it judges an answer, when a
// history is another than before. What the process has seen cannot be relied on then, and it has to end.
func NewHistories(changed func(reason string)) *Histories {
	return &Histories{changed: changed, known: map[string]string{}}
}

// WrapTransport returns a transport whose requests ask for the history, and fail where that is another
// than in an answer before, also one to another client of these Histories. It fits rest.Config.Wrap.
func (h *Histories) WrapTransport(next http.RoundTripper) http.RoundTripper {
	return &historyTransport{histories: h, next: next}
}

// judge returns why the value of a header tells another history than one before; "" if it tells the
// same.
func (h *Histories) judge(told string) string {
	h.lock.Lock()
	defer h.lock.Unlock()
	if told == h.last {
		return ""
	}
	histories := fence.ParseHistories(told)
	for name, identity := range histories {
		if before, ok := h.known[name]; ok && before != identity {
			return fmt.Sprintf("the API server says that the history of etcd has the identity %s, and it had %s before", identity, before)
		}
	}
	for name, identity := range histories {
		h.known[name] = identity
	}
	h.last = told
	return ""
}

type historyTransport struct {
	histories *Histories
	next      http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *historyTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	asks := req.Clone(req.Context())
	asks.Header.Set(fence.HistoryHeader, "?")
	resp, err := t.next.RoundTrip(asks)
	if err != nil {
		return nil, err
	}
	told := resp.Header.Get(fence.HistoryHeader)
	if told == "" {
		return resp, nil
	}
	if reason := t.histories.judge(told); reason != "" {
		resp.Body.Close()
		go t.histories.changed(reason)
		return nil, fmt.Errorf("%s %s: %s", req.Method, req.URL.Path, reason)
	}
	return resp, nil
}

// WrappedRoundTripper lets client-go find the transport underneath.
func (t *historyTransport) WrappedRoundTripper() http.RoundTripper { return t.next }
