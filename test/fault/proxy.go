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
	"fmt"
	"net"
	"sync"
)

// treatment is what a proxy does with the bytes from one side.
type treatment int

const (
	pass treatment = iota
	// drop discards them. The connection is closed when the proxy is healed, because its
	// other end waits for bytes that are lost.
	drop
	// hold delivers them when the proxy is healed, like a very slow network.
	hold
)

// proxy forwards the TCP connections of one process to the API server from a loopback
// address of its own. That address identifies the process in the audit log.
type proxy struct {
	listener net.Listener
	source   net.IP

	lock sync.Mutex
	// targets are where connections lead to, in turns.
	targets []string
	turn    int
	// requests and answers are the treatments of the bytes to and from the target.
	requests, answers treatment
	// healed is closed when both pass again.
	healed chan struct{}
	// stopped counts the connections, and the directions of connections, that waited for
	// healed.
	stopped int
	conns   map[net.Conn]bool
	closed  bool
}

// newProxy starts a proxy on a free port of 127.0.0.1.
func newProxy(target string, source net.IP) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: listener, targets: []string{target}, source: source, healed: make(chan struct{}), conns: map[net.Conn]bool{}}
	go p.accept()
	return p, nil
}

func (p *proxy) url() string { return fmt.Sprintf("https://%s", p.listener.Addr()) }

// lead has new connections lead to these targets, in turns, and returns the ones before.
func (p *proxy) lead(targets ...string) (before []string) {
	p.lock.Lock()
	defer p.lock.Unlock()
	before, p.targets = p.targets, targets
	return before
}

func (p *proxy) next() string {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.turn++
	return p.targets[p.turn%len(p.targets)]
}

// hangUp ends the connections that chosen returns true for, on both sides.
func (p *proxy) hangUp(chosen func() bool) {
	p.lock.Lock()
	defer p.lock.Unlock()
	for c := range p.conns {
		if chosen() {
			c.Close()
		}
	}
}

// cut sets the treatments until heal is called.
func (p *proxy) cut(requests, answers treatment) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.requests, p.answers = requests, answers
}

// heal makes both directions pass again.
func (p *proxy) heal() {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.requests, p.answers = pass, pass
	close(p.healed)
	p.healed = make(chan struct{})
}

// close ends the proxy and all connections through it.
func (p *proxy) close() {
	p.listener.Close()
	p.heal()
	p.lock.Lock()
	defer p.lock.Unlock()
	p.closed = true
	for c := range p.conns {
		c.Close()
	}
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.serve(client)
	}
}

func (p *proxy) serve(client net.Conn) {
	defer p.forget(client)
	if !p.remember(client) {
		return
	}
	p.lock.Lock()
	cut, healed := p.requests != pass || p.answers != pass, p.healed
	if cut {
		p.stopped++
	}
	p.lock.Unlock()
	if cut {
		// A connection that begins while the proxy is cut gets no answer.
		<-healed
		return
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: p.source}}
	server, err := dialer.Dial("tcp", p.next())
	if err != nil {
		return
	}
	defer p.forget(server)
	if !p.remember(server) {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { p.pump(server, client, &p.requests) })
	wg.Go(func() { p.pump(client, server, &p.answers) })
	wg.Wait()
}

func (p *proxy) remember(c net.Conn) bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.conns[c] = true
	return !p.closed
}

func (p *proxy) forget(c net.Conn) {
	p.lock.Lock()
	defer p.lock.Unlock()
	delete(p.conns, c)
	c.Close()
}

// pump forwards one direction of a connection until it ends.
func (p *proxy) pump(to, from net.Conn, how *treatment) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32*1024)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			p.lock.Lock()
			treatment, healed := *how, p.healed
			if treatment != pass {
				p.stopped++
			}
			p.lock.Unlock()
			if treatment != pass {
				<-healed
			}
			if treatment == drop {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
