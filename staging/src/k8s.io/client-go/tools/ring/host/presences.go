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
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/api/sharding/v1alpha1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/client-go/tools/ring/member"
)

// openTimeout is how long a server may take to answer a request that is to be a presence. The next
// one goes over another connection.
const openTimeout = 5 * time.Second

// errAnswered says that the connection works.
var errAnswered = errors.New("the answer is")

// Presences opens the presences of a process, of all its rings over one connection that carries
// nothing else: no failure of another request ends them.
type Presences struct {
	config *rest.Config
	url    *url.URL

	lock sync.Mutex
	// line is nil if the next presence needs a connection anew.
	line *line
}

// line is a lane for several requests at a time.
type line struct {
	*lane
	// uses are the requests that are under way on it, and dropped says that no other will be. The
	// lock of the Presences guards both.
	uses    int
	dropped bool
}

// NewPresences returns the Presences of a process. It changes config, which must not be used again.
func NewPresences(config *rest.Config) (*Presences, error) {
	config.Timeout, config.QPS, config.RateLimiter = 0, -1, nil
	// A config with a function that chooses the proxy shares no transport with others.
	if config.Proxy == nil {
		config.Proxy = http.ProxyFromEnvironment
	}
	p := &Presences{config: config}
	base, path, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for presences: %w", err)
	}
	p.url = base.JoinPath(path, "apis", v1alpha1.SchemeGroupVersion.Group, v1alpha1.SchemeGroupVersion.Version, "controllerinstances")
	return p, nil
}

// Open implements member.Presences.
func (p *Presences) Open(ctx context.Context, self fence.Identity, why string) (member.Presence, error) {
	line, err := p.take()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	answered := time.AfterFunc(openTimeout, cancel)
	var asked atomic.Bool
	resp, err := p.send(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { asked.Store(true) }}), line, self, why)
	if !answered.Stop() && err == nil {
		resp.Body.Close()
		err = context.DeadlineExceeded
	}
	if err != nil && asked.Load() && !errors.Is(err, errAnswered) && !errors.Is(err, member.ErrNoPresence) {
		err = fmt.Errorf("%w: %w", member.ErrUnanswered, err)
	}
	if err != nil {
		cancel()
		p.leave(line, !errors.Is(err, errAnswered))
		return nil, fmt.Errorf("opening the presence of ControllerInstance %s: %w", self.Name, err)
	}
	return &presence{presences: p, line: line, ctx: ctx, body: resp.Body, cancel: cancel}, nil
}

func (p *Presences) send(ctx context.Context, line *line, self fence.Identity, why string) (*http.Response, error) {
	at := *p.url
	at.RawQuery = url.Values{"watch": {"true"}, "fieldSelector": {"metadata.name=" + self.Name}}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	req.Header.Set(fence.Header, self.String())
	req.Header.Set(fence.PresenceHeader, why)
	resp, err := (&http.Client{Transport: line.lane}).Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK && resp.Header.Get(fence.PresenceHeader) != "" {
		return resp, nil
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		// Another server may open one.
		return nil, fmt.Errorf("%w: it is older, or set so", member.ErrNoPresence)
	}
	const most = 1024
	body, _ := io.ReadAll(io.LimitReader(resp.Body, most))
	if resp.StatusCode >= http.StatusInternalServerError || resp.StatusCode == http.StatusTooManyRequests {
		return nil, fmt.Errorf("%w %s: %s", errAnswered, resp.Status, body)
	}
	return nil, fmt.Errorf("%w: %w %s: %s", member.ErrNoPresence, errAnswered, resp.Status, body)
}

// take returns the line for one more request, which has to leave it.
func (p *Presences) take() (*line, error) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.line == nil {
		lane, err := openLane(p.config)
		if err != nil {
			return nil, err
		}
		p.line = &line{lane: lane}
	}
	p.line.uses++
	return p.line, nil
}

// leave ends a use of the line. If that is to be dropped, the next presence is opened over another
// connection. Presences that are open over this one stay: the last one hangs up.
func (p *Presences) leave(l *line, drop bool) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if l.uses--; drop {
		l.dropped = true
	}
	if l.dropped && p.line == l {
		p.line = nil
	}
	if l.dropped && l.uses == 0 {
		l.hangUp()
	}
}

// presence is one that is open.
type presence struct {
	presences *Presences
	line      *line
	ctx       context.Context
	body      io.ReadCloser
	cancel    context.CancelFunc
}

// Wait implements member.Presence.
func (p *presence) Wait() bool {
	defer p.cancel()
	defer p.body.Close()
	// What the record says is of no interest here.
	_, err := io.Copy(io.Discard, p.body)
	p.presences.leave(p.line, err != nil && p.ctx.Err() == nil)
	return err == nil
}
