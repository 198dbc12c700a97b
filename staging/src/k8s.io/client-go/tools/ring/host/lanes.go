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
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
)

// lanes sends each request over a connection on which no other is unanswered: over one that is
// dead, or to a server that is slow, nothing waits for what was sent before.
type lanes struct {
	open func() (*lane, error)

	lock sync.Mutex
	// idle are those without a request, the one last used at the end.
	idle []*lane
}

// maxIdle is how many lanes are kept that are not used. If all connections die unseen, so many
// requests go unanswered until one is sent over a new connection.
const maxIdle = 2

// lane has one connection, once it has been used. That of a registry is used again and again, for
// one request at a time.
type lane struct {
	http.RoundTripper
	// hangUp closes the connection. The transport learns of it later than hangUp returns, so a lane
	// that was hung up must not be used again.
	hangUp func()
}

// laneTimeout bounds how long a connection of a lane takes to open, where config.Dial says nothing
// else.
const laneTimeout = 5 * time.Second

// openLane returns a lane of its own for that config.
func openLane(config *rest.Config) (*lane, error) {
	config = rest.CopyConfig(config)
	if config.Dial == nil {
		config.Dial = (&net.Dialer{Timeout: laneTimeout, KeepAlive: laneTimeout}).DialContext
	}
	dialer := connrotation.NewDialer(config.Dial)
	config.Dial = dialer.DialContext
	transport, err := rest.TransportFor(config)
	return &lane{RoundTripper: transport, hangUp: dialer.CloseAll}, err
}

// RoundTrip implements http.RoundTripper.
func (l *lanes) RoundTrip(req *http.Request) (*http.Response, error) {
	free, err := l.take()
	if err != nil {
		return nil, err
	}
	resp, err := free.RoundTrip(req)
	if err != nil {
		l.giveBack(free, false)
		return nil, err
	}
	resp.Body = &laneBody{ReadCloser: resp.Body, lanes: l, lane: free}
	return resp, nil
}

func (l *lanes) take() (*lane, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if last := len(l.idle) - 1; last >= 0 {
		free := l.idle[last]
		l.idle = l.idle[:last]
		return free, nil
	}
	return l.open()
}

// giveBack takes a lane back. One whose request was not answered to the end may be dead, and is not
// used again.
func (l *lanes) giveBack(used *lane, answered bool) {
	if !answered || !l.keep(used) {
		used.hangUp()
	}
}

// keep keeps a lane for the next request, unless there are enough.
func (l *lanes) keep(used *lane) bool {
	l.lock.Lock()
	defer l.lock.Unlock()
	if len(l.idle) >= maxIdle {
		return false
	}
	l.idle = append(l.idle, used)
	return true
}

// laneBody is an answer that gives its lane back when it has been closed.
type laneBody struct {
	io.ReadCloser
	lanes *lanes
	lane  *lane
	// ended says that all of it was read.
	ended  atomic.Bool
	closed sync.Once
}

// Read implements io.Reader.
func (b *laneBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.ended.Store(true)
	}
	return n, err
}

// Close implements io.Closer.
func (b *laneBody) Close() error {
	err := b.ReadCloser.Close()
	b.closed.Do(func() { b.lanes.giveBack(b.lane, b.ended.Load()) })
	return err
}
