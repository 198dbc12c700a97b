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

package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
)

// server echoes each line, and sends it to lines with the client's address.
func server(t *testing.T) (address string, lines <-chan string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	got := make(chan string, 100)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for in := bufio.NewScanner(conn); in.Scan(); {
					got <- in.Text() + " from " + conn.RemoteAddr().(*net.TCPAddr).IP.String()
					fmt.Fprintln(conn, in.Text())
				}
			}()
		}
	}()
	return listener.Addr().String(), got
}

func TestTreatments(t *testing.T) {
	address, lines := server(t)
	p, err := New(net.IPv4(127, 0, 3, 4), "https://"+address)
	if err != nil {
		t.Skipf("no loopback address of its own: %v", err)
	}
	defer p.Close()
	dial := func() (net.Conn, *bufio.Reader) {
		t.Helper()
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.URL(), "https://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn, bufio.NewReader(conn)
	}
	answer := func(in *bufio.Reader) string {
		line, err := in.ReadString('\n')
		if err != nil {
			return err.Error()
		}
		return strings.TrimSpace(line)
	}
	expect := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}

	// stopped waits until n connections or directions have been stopped.
	stopped := func(n int) {
		t.Helper()
		for now := -1; now < n; runtime.Gosched() {
			p.lock.Lock()
			now = p.stopped
			p.lock.Unlock()
			if t.Context().Err() != nil {
				t.Fatalf("stopped %d times, want %d", now, n)
			}
		}
	}

	conn, in := dial()
	fmt.Fprintln(conn, "passed")
	expect(<-lines, "passed from 127.0.3.4")
	expect(answer(in), "passed")

	// Held requests and their answers arrive late.
	p.Treat(Hold, Hold)
	fmt.Fprintln(conn, "held")
	stopped(1)
	select {
	case line := <-lines:
		t.Errorf("%q was not held", line)
	default:
	}
	p.Heal()
	expect(<-lines, "held from 127.0.3.4")
	expect(answer(in), "held")

	// If answers are dropped, the request arrives.
	p.Treat(Pass, Drop)
	fmt.Fprintln(conn, "unanswered")
	expect(<-lines, "unanswered from 127.0.3.4")
	late, lateIn := dial()
	fmt.Fprintln(late, "too late")
	stopped(3)
	p.Heal()
	expect(answer(in), "EOF")
	if got := answer(lateIn); got == "too late" {
		t.Error("a connection that began while the proxy was cut was answered")
	}

	conn, in = dial()
	fmt.Fprintln(conn, "again")
	expect(<-lines, "again from 127.0.3.4")
	expect(answer(in), "again")
	p.Treat(Drop, Pass)
	fmt.Fprintln(conn, "lost")
	stopped(4)
	p.Heal()
	conn, in = dial()
	fmt.Fprintln(conn, "last")
	expect(<-lines, "last from 127.0.3.4")
	expect(answer(in), "last")
}

// A connection goes to a target from the proxy's own address, and ends when it is cut or the
// proxy is aimed at another target.
func TestTargets(t *testing.T) {
	first, second := listen(t), listen(t)
	source := net.IPv4(127, 0, 0, 2)
	p, err := New(source, first.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
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
	p.Cut()
	ends(client)
	client = connect(first)
	p.Aim(second.Addr().String())
	ends(client)
	connect(second)
	if got := p.Received(); got != 3 {
		t.Errorf("received %d bytes, want 3", got)
	}
}

func listen(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}
