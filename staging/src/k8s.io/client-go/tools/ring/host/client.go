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

package host

import (
	"net/http"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/ring/member"
)

// Client returns a copy of config for the clients with which that controller writes. What they
// write names the instance, so that the API server can refuse what another instance owns by then;
// nothing is sent while the process is not on the ring. It is fit for all of controller-runtime's
// manager: what no object's key governs goes out without a name at any time. That is what belongs
// to one of Ungoverned.
func (h *Host) Client(config *rest.Config, controller string) *rest.Config {
	config = rest.CopyConfig(config)
	named := h.gate.WrapTransport(controller)
	config.Wrap(h.process.WrapTransport)
	config.Wrap(func(plain http.RoundTripper) http.RoundTripper {
		return &choosingTransport{plain: member.Discreet(plain), named: named(plain)}
	})
	return config
}

// Ungoverned returns the resources, as in group/resource, that a Client writes without naming the
// instance: events, the Leases of an election, and reviews of who may do what.
func Ungoverned() []string {
	return []string{"/events", "events.k8s.io/events", "coordination.k8s.io/leases", "authentication.k8s.io/*", "authorization.k8s.io/*"}
}

// choosingTransport sends what is governed by the one transport, and all else by the other.
type choosingTransport struct {
	plain, named http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *choosingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if isOfInformer(req) || !isGoverned(req.URL.Path) {
		return t.plain.RoundTrip(req)
	}
	return t.named.RoundTrip(req)
}

// WrappedRoundTripper lets client-go find the transport underneath.
func (t *choosingTransport) WrappedRoundTripper() http.RoundTripper { return t.plain }

// isOfInformer says whether an informer sends that request. Then it does not show that work gets
// on.
func isOfInformer(req *http.Request) bool {
	query := req.URL.Query()
	return req.Method == http.MethodGet && (query.Has("watch") || query.Has("shardSelector"))
}

// isGoverned says whether a request to that path writes a resource that hash keys govern. Whatever
// it does not know is.
func isGoverned(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	// A server may be reached below a path of its own.
	i := slices.IndexFunc(parts, func(p string) bool { return p == "api" || p == "apis" })
	if i < 0 {
		return true
	}
	group, rest := "", parts[i+1:]
	if parts[i] == "apis" && len(rest) > 0 {
		group, rest = rest[0], rest[1:]
	}
	// The version, and the namespace.
	rest = rest[min(1, len(rest)):]
	if len(rest) > 2 && rest[0] == "namespaces" {
		rest = rest[2:]
	}
	if len(rest) == 0 {
		return true
	}
	return !slices.ContainsFunc(Ungoverned(), func(u string) bool { return u == group+"/"+rest[0] || u == group+"/*" })
}
