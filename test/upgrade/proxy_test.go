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
	"io"
	"net"
	"testing"
)

// A connection goes to a target from the proxy's own address, and ends when it is cut or the
// proxy is aimed at another target.
func TestProxy(t *testing.T) {
	first, second := listen(t), listen(t)
	source := net.IPv4(127, 0, 0, 2)
	p, err := newProxy(source, first.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	connect := func(server net.Listener) net.Conn {
		client, err := net.Dial("tcp", p.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		behind, err := server.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close(); behind.Close() })
		if from := behind.RemoteAddr().(*net.TCPAddr).IP; !from.Equal(source) {
			t.Errorf("the connection comes from %s, want %s", from, source)
		}
		// What arrives shows that the proxy forwards, and knows the connection.
		if _, err := behind.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(client, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		return client
	}
	ends := func(c net.Conn) {
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("read %d bytes from a connection that was cut", n)
		}
	}
	client := connect(first)
	p.cut()
	ends(client)
	client = connect(first)
	p.aim(second.Addr().String())
	ends(client)
	connect(second)
}

func listen(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}
