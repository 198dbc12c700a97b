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
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

const (
	// maxIdleConnections is how many connections a process keeps for its next requests, as Go's
	// http.Transport does.
	maxIdleConnections = 2
	// noticesDead is how long a client takes to notice that a connection is dead, by the pings of
	// HTTP/2.
	noticesDead = 45 * time.Second
	// maxDelay is how much longer than others a request, or its answer, can take that fares well.
	maxDelay = 300 * time.Millisecond
)

var (
	errRefused = errors.New("connection refused")
	errReset   = errors.New("connection reset by peer")
	errKilled  = errors.New("the process was killed")
)

// reach is how far a request comes.
type reach int

const (
	reachServer reach = iota
	reachNobody       // it arrives once something does again, if somebody still waits or not
	reachRefusal
)

// condition is how requests fare for a while.
type condition struct {
	from, until time.Time
	// of is whose requests they are; nil: everybody's.
	of *process
	// latency is what a request and its answer take altogether.
	latency time.Duration
	reach   reach
	// lost and failing are the parts of all requests that hang and that get an error.
	lost, failing float64
}

func (c *condition) String() string {
	whose := "all requests"
	if c.of != nil {
		whose = "requests of " + c.of.String()
	}
	what := fmt.Sprintf("take %v", c.latency)
	switch {
	case c.reach == reachNobody:
		what = "get no answer"
	case c.reach == reachRefusal:
		what = "are refused"
	}
	if c.lost > 0 || c.failing > 0 {
		what += fmt.Sprintf(", %v of them are lost and %v fail", c.lost, c.failing)
	}
	return fmt.Sprintf("%s %s for %v", whose, what, c.until.Sub(c.from))
}

// network is the way to the API servers.
type network struct {
	world *world

	lock       sync.Mutex
	conditions []*condition
	// changed is closed and replaced when a condition begins or ends.
	changed chan struct{}
}

func newNetwork(w *world) *network {
	return &network{world: w, changed: make(chan struct{})}
}

// impose has a condition hold for a while from now.
func (n *network) impose(c condition, lasts time.Duration) {
	c.from, c.until = time.Now(), time.Now().Add(lasts)
	n.world.chronicle.note(nil, "%v", &c)
	n.lock.Lock()
	n.conditions = append(n.conditions, &c)
	n.lock.Unlock()
	n.wake()
	time.AfterFunc(lasts, n.wake)
}

// wake has watches look at what holds now.
func (n *network) wake() {
	n.lock.Lock()
	defer n.lock.Unlock()
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *network) whenChanged() <-chan struct{} {
	n.lock.Lock()
	defer n.lock.Unlock()
	return n.changed
}

func (n *network) settleDown() {
	n.lock.Lock()
	for _, c := range n.conditions {
		if now := time.Now(); c.until.After(now) {
			c.until = now
		}
	}
	n.lock.Unlock()
	n.wake()
}

// during calls f for each condition of p that held at any time from then to then.
func (n *network) during(p *process, from, until time.Time, f func(*condition)) {
	n.lock.Lock()
	defer n.lock.Unlock()
	for _, c := range n.conditions {
		if (c.of == nil || p == nil || c.of == p) && !c.from.After(until) && c.until.After(from) {
			f(c)
		}
	}
}

// latency is what a request of p takes that is sent at that time.
func (n *network) latency(p *process, at time.Time) time.Duration {
	var latency time.Duration
	n.during(p, at, at, func(c *condition) { latency = max(latency, c.latency) })
	return latency
}

// reached says how far a message of p comes that is on its way at any time from then to then.
func (n *network) reached(p *process, from, until time.Time) reach {
	farthest := reachServer
	n.during(p, from, until, func(c *condition) {
		if c.reach != reachServer {
			farthest = c.reach
		}
	})
	return farthest
}

// flight is how one request fares.
type flight struct {
	// out and back are how long it and its answer take.
	out, back time.Duration
	// lost and unanswered say that the request and its answer never arrive. failed says that it
	// gets an error and does not arrive, cut that it gets one and arrives, reset that it does so
	// in place of its answer. troubled says that it fares worse than others do at that time.
	lost, unanswered, failed, cut, reset, troubled bool
}

// flight draws how a request of p fares that is sent now.
func (n *network) flight(p *process, d *dice) flight {
	f := flight{out: d.upTo(3 * time.Millisecond), back: d.upTo(3 * time.Millisecond)}
	if n.world.faults.requests && n.world.disturbed.Load() {
		f = n.mishap(f, d)
	}
	now := time.Now()
	latency := n.latency(p, now)
	f.out, f.back = f.out+latency/2, f.back+latency/2
	n.during(p, now, now, func(c *condition) {
		f.lost = f.lost || c.lost > 0 && d.chance(c.lost)
		f.failed = f.failed || c.failing > 0 && d.chance(c.failing)
	})
	f.troubled = f.troubled || f.lost || f.failed
	return f
}

// mishap has some requests fare badly.
func (n *network) mishap(f flight, d *dice) flight {
	draw := d.below(100)
	f.troubled = draw < 11
	switch {
	case draw < 2:
		f.out = d.upTo(latest)
	case draw < 4:
		f.back = d.upTo(latest)
	case draw < 5:
		f.lost = true
	case draw < 6:
		f.unanswered = true
	case draw < 8:
		f.failed = true
	case draw < 10:
		f.cut, f.out = true, d.upTo(latest)
	case draw < 11:
		f.reset = true
	case draw < 25:
		f.out, f.back = d.upTo(maxDelay), d.upTo(maxDelay)
	}
	return f
}

// connection is one to the API servers. Only one request at a time is under way on it.
type connection struct{ dead atomic.Bool }

// transport is a process's connections. A request takes an idle one, the last one first, or opens
// another. One whose request was given up is not used again.
type transport struct {
	lock sync.Mutex
	idle []*connection
	// open are all that may be in use.
	open map[*connection]bool
}

func (t *transport) take() *connection {
	t.lock.Lock()
	defer t.lock.Unlock()
	if last := len(t.idle) - 1; last >= 0 {
		c := t.idle[last]
		t.idle = t.idle[:last]
		return c
	}
	c := &connection{}
	if t.open == nil {
		t.open = map[*connection]bool{}
	}
	t.open[c] = true
	return c
}

// put gives a connection back that is of further use or not.
func (t *transport) put(c *connection, ofUse bool) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if ofUse && len(t.idle) < maxIdleConnections {
		t.idle = append(t.idle, c)
		return
	}
	delete(t.open, c)
}

// die makes black holes of all connections that there are.
func (t *transport) die() {
	t.lock.Lock()
	defer t.lock.Unlock()
	for c := range t.open {
		c.dead.Store(true)
	}
}

// carry takes a request of p through the network on c. arrive is called where it arrives, even if
// its sender is gone by then.
func carry[T any](ctx context.Context, p *process, f flight, c *connection, arrive func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	if !p.diedAt().IsZero() {
		return none, errKilled
	}
	n := p.world.network
	answer := make(chan result, 1)
	passes := func(took time.Duration) bool {
		from := time.Now()
		time.Sleep(took)
		for !c.dead.Load() {
			changed := n.whenChanged()
			switch n.reached(p, from, time.Now()) {
			case reachServer:
				return true
			case reachRefusal:
				answer <- result{none, errRefused}
				return false
			}
			if now := time.Now(); n.reached(p, now, now) == reachNobody {
				<-changed
			}
			from = time.Now()
		}
		return false
	}
	go func() {
		if !passes(f.out) || f.lost {
			return
		}
		if f.failed {
			answer <- result{none, errRefused}
			return
		}
		value, err := arrive()
		if !passes(f.back) || f.unanswered {
			return
		}
		if f.reset {
			err = errReset
		}
		answer <- result{value, err}
	}()
	if f.cut {
		return none, errReset
	}
	select {
	case a := <-answer:
		p.thaw()
		return a.value, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-p.killed:
		return none, errKilled
	case <-time.After(noticesDead):
		return none, errReset
	}
}

// pump passes the events of a watch on until it ends. Closing out tells the member.
func (n *network) pump(ctx context.Context, p *process, c *connection, in watch.Interface, out chan<- watch.Event, stopped <-chan struct{}) {
	defer close(out)
	defer in.Stop()
	// rest waits for something that may not come.
	rest := func(until <-chan time.Time) bool {
		select {
		case <-until:
			return true
		case <-ctx.Done():
		case <-stopped:
		case <-p.killed:
		}
		return false
	}
	for {
		changed, now := n.whenChanged(), time.Now()
		silent := n.reached(p, now, now) == reachNobody
		switch {
		case n.reached(p, now, now) == reachRefusal:
			return
		case c.dead.Load():
			p.trouble("its watch is on a dead connection", slowed).endAfter(noticesDead)
			rest(time.After(noticesDead))
			return
		case p.stalls.CompareAndSwap(true, false):
			p.trouble("its watch is silent", slowed).endAfter(noticesSilence)
			select {
			case <-n.world.calm:
			case <-ctx.Done():
			case <-stopped:
			case <-p.killed:
			}
			return
		}
		events := in.ResultChan()
		if silent {
			events = nil
		}
		select {
		case event, ok := <-events:
			if !ok {
				return
			}
			lag, event, ended := n.lag(p, event)
			if ended || !rest(time.After(lag)) {
				return
			}
			p.thaw()
			select {
			case out <- event:
			case <-ctx.Done():
				return
			case <-stopped:
				return
			case <-p.killed:
				return
			}
		case <-changed:
		case <-ctx.Done():
			return
		case <-stopped:
			return
		case <-p.killed:
			return
		}
	}
}

// lag draws how late an event comes, or what comes in its place.
func (n *network) lag(p *process, event watch.Event) (lag time.Duration, instead watch.Event, ended bool) {
	d := p.dice.watches
	lag = d.upTo(5 * time.Millisecond)
	if !n.world.faults.watches || !n.world.disturbed.Load() {
		return lag, event, false
	}
	switch draw := d.below(100); {
	case draw < 2:
		lag = d.upTo(8 * time.Second)
		p.trouble("its watch is late", slowed).endAfter(lag)
	case draw < 12:
		lag = d.upTo(500 * time.Millisecond)
		p.trouble("its watch is late", slowed).endAfter(lag)
	case draw < 13:
		ended = true
	case draw < 14:
		event = watch.Event{Type: watch.Error, Object: tooOld}
	}
	return lag, event, ended
}
