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

// Package measure measures processes of a cluster from outside.
package measure

import (
	"io"
	"net"
	"strings"
	"sync/atomic"

	"k8s.io/kubernetes/pkg/localcluster"
)

// Proxy forwards TCP connections to the API server, and counts the bytes of its answers
// on the wire.
type Proxy struct {
	listener net.Listener
	target   string
	received atomic.Int64
}

// NewProxy returns a proxy that accepts connections until the program ends.
func NewProxy(cluster *localcluster.Cluster) (*Proxy, error) {
	endpoint, err := cluster.Endpoint(string(localcluster.KubeAPIServer))
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: listener, target: strings.TrimPrefix(endpoint, "https://")}
	// A connection closes when either side does.
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	return p, nil
}

// URL returns where the proxy listens.
func (p *Proxy) URL() string { return "https://" + p.listener.Addr().String() }

// Received returns how many bytes have come from the API server.
func (p *Proxy) Received() int64 { return p.received.Load() }

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return // this closes the client's connection
	}
	defer server.Close()
	go func() {
		defer server.Close()
		_, _ = io.Copy(server, client)
	}()
	_, _ = io.Copy(client, io.TeeReader(server, counter{&p.received}))
}

type counter struct{ n *atomic.Int64 }

// Write counts bytes.
func (c counter) Write(answer []byte) (int, error) {
	c.n.Add(int64(len(answer)))
	return len(answer), nil
}
