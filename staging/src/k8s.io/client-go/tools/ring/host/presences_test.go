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
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/client-go/tools/ring/member"
)

// Only where the server may have opened a presence the process has to expect that it is asked for.
func TestAnOpeningIsUnansweredOnceTheServerIsAsked(t *testing.T) {
	for name, tc := range map[string]struct {
		// serve is what the server's end of the connection does; nil: there is none.
		serve func(net.Conn)
		want  bool
	}{
		"no server": {},
		"no answer": {serve: func(c net.Conn) { discard(c) }, want: true},
		"the connection is cut when the server has the request": {serve: func(c net.Conn) {
			_, _ = c.Read(make([]byte, 64<<10))
			c.Close()
		}, want: true},
		"the server refuses": {serve: func(c net.Conn) {
			_, _ = c.Read(make([]byte, 64<<10))
			_, _ = c.Write([]byte("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"))
			discard(c)
		}},
		"the server has no time": {serve: func(c net.Conn) {
			_, _ = c.Read(make([]byte, 64<<10))
			_, _ = c.Write([]byte("HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n"))
			discard(c)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dial := func(context.Context, string, string) (net.Conn, error) {
					if tc.serve == nil {
						return nil, errors.New("refused")
					}
					client, server := net.Pipe()
					t.Cleanup(func() { client.Close() })
					go tc.serve(server)
					return client, nil
				}
				p, err := NewPresences(&rest.Config{Host: "http://server", Dial: dial})
				if err != nil {
					t.Fatal(err)
				}
				_, err = p.Open(t.Context(), fence.Identity{Name: "a"}, fence.PresenceFirst)
				if err == nil || errors.Is(err, member.ErrUnanswered) != tc.want {
					t.Errorf("%v, want one that is unanswered: %t", err, tc.want)
				}
			})
		})
	}
}

// A server must not come to have one connection more with each attempt.
func TestAConnectionThatIsGivenUpIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open, dialed atomic.Int32
		// Only the first opens a presence.
		serve := func(c net.Conn) {
			_, _ = c.Read(make([]byte, 64<<10))
			answer := "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
			if dialed.Add(1) == 1 {
				answer = "HTTP/1.1 200 OK\r\n" + fence.PresenceHeader + ": x\r\nTransfer-Encoding: chunked\r\n\r\n"
			}
			_, _ = c.Write([]byte(answer))
			discard(c)
			open.Add(-1)
		}
		p, err := NewPresences(&rest.Config{Host: "http://server", Dial: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			open.Add(1)
			go serve(server)
			return client, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		first, err := p.Open(ctx, fence.Identity{Name: "a"}, fence.PresenceFirst)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := p.Open(t.Context(), fence.Identity{Name: "b"}, fence.PresenceFirst); !errors.Is(err, member.ErrNoPresence) {
				t.Errorf("%v, want no presence", err)
			}
		}
		synctest.Wait()
		// With HTTP/1 the line of the presence has a second one.
		if n := open.Load(); n > 2 {
			t.Errorf("%d connections are open beside that of the presence", n-1)
		}
		end()
		first.Wait()
		synctest.Wait()
		if n := open.Load(); n != 0 {
			t.Errorf("%d connections are open after the last presence", n)
		}
	})
}

// discard reads until the other end has closed the connection.
func discard(c net.Conn) {
	buffer := make([]byte, 4<<10)
	for {
		if _, err := c.Read(buffer); err != nil {
			return
		}
	}
}
