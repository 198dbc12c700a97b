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
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/tools/ring"
)

// contact knows whether the last answer of the API server was what was asked for. A watch that is lost
// is asked for again in silence: what has been seen stays as it is, and grows old.
type contact struct {
	lock sync.Mutex
	// since is when it began to fail, and why, last; zero: it does not.
	since time.Time
	why   error
}

// wrap returns a transport that takes note of what comes of its requests.
func (c *contact) wrap(transport http.RoundTripper) http.RoundTripper {
	return noting{transport, c}
}

type noting struct {
	http.RoundTripper
	*contact
}

// RoundTrip notes what has come of the request.
func (n noting) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := n.RoundTripper.RoundTrip(request)
	switch {
	case err != nil:
		n.note(err)
	case response.StatusCode >= http.StatusBadRequest:
		n.note(errors.New("it answers " + response.Status))
	default:
		n.note(nil)
	}
	return response, err
}

func (c *contact) note(err error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	switch {
	case err == nil:
		c.since = time.Time{}
	case c.since.IsZero():
		c.since = time.Now()
	}
	c.why = err
}

// text says for how long there has been no contact as of now, in a line; "": there is. With a zero now
// it does not say for how long.
func (c *contact) text(now time.Time) string {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.since.IsZero() {
		return ""
	}
	since := ""
	if !now.IsZero() {
		since = " for " + duration.HumanDuration(max(0, now.Sub(c.since)))
	}
	return fmt.Sprintf("No contact with the API server%s, so what follows is old: %s\n", since, ring.Printable(c.why.Error()))
}
