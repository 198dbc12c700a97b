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

// Package proxy stands between processes and API servers.
package proxy

import (
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
)

// Treatment is what a proxy does with the bytes from one side.
type Treatment int

const (
	Pass Treatment = iota
	// Drop discards them. The connection is closed when the proxy is healed, because its
	// other end waits for bytes that are lost.
	Drop
	// Hold delivers them when the proxy is healed, like a very slow network.
	Hold
)

// Proxy forwards the TCP connections of one process to API servers, each to one of them at random.
type Proxy struct {
	listener net.Listener
	source   net.IP
	received atomic.Int64

	lock    sync.Mutex
	targets []string
	// requests and answers are the treatments of the bytes to and from the targets.
	requests, answers Treatment
	// healed is closed when both pass again.
	healed chan struct{}
	// stopped counts the connections, and the directions of connections, that waited for
	// healed.
	stopped int
	conns   map[net.Conn]bool
	closed  bool
}

// Source returns a loopback address of its own for each number below 60,000. On Linux a process
// can send from any of them.
func Source(n int) net.IP { return net.IPv4(127, 0, byte(1+n/250), byte(1+n%250)) }

// New starts a proxy on a free port of 127.0.0.1. It connects to the URLs of targets from the
// source address, which identifies the process in audit logs; nil leaves that to the kernel.
func New(source net.IP, targets ...string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: listener, source: source, targets: targets, healed: make(chan struct{}), conns: map[net.Conn]bool{}}
	go p.accept()
	return p, nil
}

// URL returns where the proxy listens.
func (p *Proxy) URL() string { return "https://" + p.listener.Addr().String() }

// SendsFrom says whether that is the address from which it connects.
func (p *Proxy) SendsFrom(ip string) bool { return p.source.String() == ip }

// Received returns how many bytes have come from the targets.
func (p *Proxy) Received() int64 { return p.received.Load() }

// Treat sets the treatments of requests and answers until Heal is called.
func (p *Proxy) Treat(requests, answers Treatment) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.requests, p.answers = requests, answers
}

// Heal makes both directions pass again.
func (p *Proxy) Heal() {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.requests, p.answers = Pass, Pass
	close(p.healed)
	p.healed = make(chan struct{})
}

// Aim sets the targets of further connections, and cuts those that there are.
func (p *Proxy) Aim(targets ...string) {
	p.lock.Lock()
	p.targets = targets
	p.lock.Unlock()
	p.Cut()
}

// Cut closes all connections.
func (p *Proxy) Cut() {
	p.lock.Lock()
	defer p.lock.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

// CutOne closes one connection, if there is any.
func (p *Proxy) CutOne() {
	p.lock.Lock()
	defer p.lock.Unlock()
	for c := range p.conns {
		c.Close()
		return
	}
}

// Close ends the proxy and all connections through it.
func (p *Proxy) Close() {
	p.listener.Close()
	p.Heal()
	p.lock.Lock()
	p.closed = true
	p.lock.Unlock()
	p.Cut()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.serve(client)
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer p.forget(client)
	if !p.remember(client) {
		return
	}
	p.lock.Lock()
	impaired, healed := p.requests != Pass || p.answers != Pass, p.healed
	if impaired {
		p.stopped++
	}
	target := strings.TrimPrefix(p.targets[rand.IntN(len(p.targets))], "https://")
	p.lock.Unlock()
	if impaired {
		// A connection that begins before the proxy is healed gets no answer.
		<-healed
		return
	}
	dialer := net.Dialer{}
	if p.source != nil {
		dialer.LocalAddr = &net.TCPAddr{IP: p.source}
	}
	server, err := dialer.Dial("tcp", target)
	if err != nil {
		return
	}
	defer p.forget(server)
	if !p.remember(server) {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { p.pump(server, client, &p.requests, new(atomic.Int64)) })
	wg.Go(func() { p.pump(client, server, &p.answers, &p.received) })
	wg.Wait()
}

func (p *Proxy) remember(c net.Conn) bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.conns[c] = true
	return !p.closed
}

func (p *Proxy) forget(c net.Conn) {
	p.lock.Lock()
	defer p.lock.Unlock()
	delete(p.conns, c)
	c.Close()
}

// pump forwards one direction of a connection until it ends, and counts its bytes.
func (p *Proxy) pump(to, from net.Conn, how *Treatment, count *atomic.Int64) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32*1024)
	for {
		n, err := from.Read(buffer)
		count.Add(int64(n))
		if n > 0 {
			p.lock.Lock()
			treatment, healed := *how, p.healed
			if treatment != Pass {
				p.stopped++
			}
			p.lock.Unlock()
			if treatment != Pass {
				<-healed
			}
			if treatment == Drop {
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
