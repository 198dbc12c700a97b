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
	"math/rand/v2"
	"net"
	"sync"
)

// proxy forwards the TCP connections of one process to API servers, each to one of them at
// random, from a loopback address of its own. That address identifies the process in the
// audit logs.
type proxy struct {
	listener net.Listener
	source   net.IP

	lock    sync.Mutex
	targets []string
	conns   map[net.Conn]bool
	closed  bool
}

// newProxy starts a proxy on a free port of 127.0.0.1.
func newProxy(source net.IP, targets ...string) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: listener, source: source, targets: targets, conns: map[net.Conn]bool{}}
	go p.accept()
	return p, nil
}

func (p *proxy) url() string { return fmt.Sprintf("https://%s", p.listener.Addr()) }

// aim sets the targets of further connections, and cuts those that there are.
func (p *proxy) aim(targets ...string) {
	p.lock.Lock()
	p.targets = targets
	p.lock.Unlock()
	p.cut()
}

// cut closes all connections.
func (p *proxy) cut() {
	p.lock.Lock()
	defer p.lock.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

// close ends the proxy and all connections through it.
func (p *proxy) close() {
	p.listener.Close()
	p.lock.Lock()
	p.closed = true
	p.lock.Unlock()
	p.cut()
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
	defer client.Close()
	p.lock.Lock()
	target := p.targets[rand.IntN(len(p.targets))]
	p.lock.Unlock()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: p.source}}
	server, err := dialer.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	if !p.remember(client, server) {
		return
	}
	defer p.forget(client, server)
	var wg sync.WaitGroup
	wg.Go(func() { pump(server, client) })
	wg.Go(func() { pump(client, server) })
	wg.Wait()
}

// pump forwards one direction of a connection until it ends.
func pump(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32*1024)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *proxy) remember(conns ...net.Conn) bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	for _, c := range conns {
		p.conns[c] = true
	}
	return !p.closed
}

func (p *proxy) forget(conns ...net.Conn) {
	p.lock.Lock()
	defer p.lock.Unlock()
	for _, c := range conns {
		delete(p.conns, c)
	}
}
