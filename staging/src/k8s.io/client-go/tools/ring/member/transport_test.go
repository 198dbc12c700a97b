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
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/hashkey"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/utils/clock"
)

// server answers the requests that the transport lets through.
type server struct {
	requests []*http.Request
	answer   func(*http.Request) (*http.Response, error)
}

// RoundTrip implements http.RoundTripper.
func (s *server) RoundTrip(req *http.Request) (*http.Response, error) {
	s.requests = append(s.requests, req)
	return s.answer(req)
}

// response is one of an API server that judges.
func response(code int, body io.Reader) *http.Response {
	return &http.Response{StatusCode: code, Header: http.Header{fence.Header: {"judged"}}, Body: io.NopCloser(body)}
}

// fenced returns a gate and the transport that it wraps round a server that answers each
// request with this code and body. Refused writes are noted in the journal.
func fenced(code int, body string) (*Gate, http.RoundTripper, *server, *journal) {
	s := &server{answer: func(*http.Request) (*http.Response, error) { return response(code, strings.NewReader(body)), nil }}
	g := NewGate(clock.RealClock{})
	refused := &journal{}
	g.countRefused(func(by string) { refused.note("refused by %s", by) })
	return g, g.WrapTransport("controller")(s), s, refused
}

func send(t *testing.T, rt http.RoundTripper, method string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "https://server/path", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := rt.RoundTrip(req)
	if req.Header.Get(fence.Header) != "" {
		t.Error("the transport changed the caller's request")
	}
	return resp, err
}

func TestARequestThatChangesSomethingNamesTheInstance(t *testing.T) {
	for method, want := range map[string]string{
		http.MethodGet: "", http.MethodHead: "",
		http.MethodPost: "r/i/1/0/controller", http.MethodPut: "r/i/1/0/controller", http.MethodPatch: "r/i/1/0/controller", http.MethodDelete: "r/i/1/0/controller",
	} {
		t.Run(method, func(t *testing.T) {
			g, rt, s, _ := fenced(http.StatusOK, "body")
			g.begin(fence.Identity{Ring: "r", Name: "i", UID: "1"}, time.Now().Add(time.Hour), 0)
			resp, err := send(t, rt, method)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if got := s.requests[0].Header.Get(fence.Header); got != want {
				t.Errorf("the header is %q, want %q", got, want)
			}
			if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "body" {
				t.Errorf("read %q, %v", body, err)
			}
		})
	}
}

func TestNothingThatChangesSomethingIsSentWithoutADeadlineToBelieveIn(t *testing.T) {
	deadline := 5 * time.Second
	for name, tc := range map[string]struct {
		prepare func(*Gate)
		sent    bool
	}{
		"before a registration": {func(*Gate) {}, false},
		"before the deadline": {func(g *Gate) {
			g.begin(fence.Identity{Name: "i", UID: "1"}, time.Now().Add(deadline), 0)
			time.Sleep(deadline - 1)
		}, true},
		"at the deadline": {func(g *Gate) {
			g.begin(fence.Identity{Name: "i", UID: "1"}, time.Now().Add(deadline), 0)
			time.Sleep(deadline)
		}, false},
		"after the record was lost": {func(g *Gate) {
			g.begin(fence.Identity{Name: "i", UID: "1"}, time.Now().Add(deadline), 0)
			g.expire()
		}, false},
		"under a new registration": {func(g *Gate) {
			g.begin(fence.Identity{Name: "i", UID: "1"}, time.Now().Add(deadline), 0)
			g.expire()
			g.begin(fence.Identity{Name: "i", UID: "2"}, time.Now().Add(deadline), 0)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, rt, s, refused := fenced(http.StatusOK, "")
				tc.prepare(g)
				for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
					resp, err := send(t, rt, method)
					if tc.sent {
						if err != nil {
							t.Fatal(err)
						}
						resp.Body.Close()
						refused.expect(t)
						continue
					}
					if err == nil || !strings.Contains(err.Error(), method+" /path not sent: this instance could not renew its ControllerInstance in time") {
						t.Errorf("got %v, want an error that says why nothing was sent", err)
					}
					refused.expect(t, "refused by self")
				}
				if sent := len(s.requests) > 0; sent != tc.sent {
					t.Errorf("%d requests were sent", len(s.requests))
				}
				// A read decides nothing.
				resp, err := send(t, rt, http.MethodGet)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
			})
		})
	}
}

func TestARequestCarriesTheEpochFromWhenItIsRaised(t *testing.T) {
	g, rt, s, _ := fenced(http.StatusOK, "")
	registry := g.WrapRegistryTransport(s)
	self := fence.Identity{Ring: "r", Name: "i", UID: "1"}
	g.begin(self, time.Now().Add(time.Hour), 0)
	g.raise(self, 3)
	for _, rt := range []http.RoundTripper{rt, registry} {
		resp, err := send(t, rt, http.MethodPost)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	for n, want := range []string{"r/i/1/3/controller", "r/i/1/3/"} {
		if got := s.requests[n].Header.Get(fence.Header); got != want {
			t.Errorf("the header is %q, want %q", got, want)
		}
	}
}

// A renewal is what moves the deadline, and a registration comes before all.
func TestARequestToTheRegistryIsSentWhateverTheDeadline(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(*Gate)
		want    string
	}{
		"before a registration":     {func(*Gate) {}, ""},
		"before the deadline":       {func(g *Gate) { g.begin(fence.Identity{Ring: "r", Name: "i", UID: "1"}, time.Now().Add(time.Hour), 0) }, "r/i/1/0/"},
		"after the deadline":        {func(g *Gate) { g.begin(fence.Identity{Ring: "r", Name: "i", UID: "1"}, time.Now(), 0) }, "r/i/1/0/"},
		"after the record was lost": {func(g *Gate) { g.begin(fence.Identity{Name: "i"}, time.Now().Add(time.Hour), 0); g.expire() }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, _, s, _ := fenced(http.StatusOK, "")
				tc.prepare(g)
				rt := g.WrapRegistryTransport(s)
				for method, want := range map[string]string{http.MethodPatch: tc.want, http.MethodGet: ""} {
					s.requests = nil
					resp, err := send(t, rt, method)
					if err != nil {
						t.Fatal(err)
					}
					resp.Body.Close()
					if got := s.requests[0].Header.Get(fence.Header); got != want {
						t.Errorf("%s has the header %q, want %q", method, got, want)
					}
				}
				if got := rt.(utilnet.RoundTripperWrapper).WrappedRoundTripper(); got != http.RoundTripper(s) {
					t.Errorf("below is %T", got)
				}
			})
		})
	}
}

// hangs makes the server answer only when the request is given up.
func (s *server) hangs() {
	s.answer = func(req *http.Request) (*http.Response, error) {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
}

func TestARequestUnderWayIsGivenUpWhenTheInstanceMayNoLongerOwnTheObject(t *testing.T) {
	self := fence.Identity{Name: "i", UID: "1"}
	for name, tc := range map[string]struct {
		meanwhile func(*Gate)
		want      time.Duration
	}{
		"the grace passes":                     {func(*Gate) {}, 7 * time.Second},
		"the record is lost":                   {func(g *Gate) { g.expire() }, time.Second},
		"the grace passes after a renewal":     {func(g *Gate) { g.extend(self, time.Now().Add(5*time.Second)) }, 8 * time.Second},
		"a renewal of another registration is": {func(g *Gate) { g.extend(fence.Identity{Name: "i", UID: "2"}, time.Now().Add(time.Hour)) }, 7 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, rt, s, _ := fenced(0, "")
				s.hangs()
				began := time.Now()
				g.begin(self, began.Add(5*time.Second), 2*time.Second)
				time.AfterFunc(time.Second, func() { tc.meanwhile(g) })
				_, err := send(t, rt, http.MethodPost)
				if err == nil || !strings.Contains(err.Error(), "POST /path given up: this instance could not renew its ControllerInstance in time") {
					t.Errorf("got %v, want an error that says why the request was given up", err)
				}
				if took := time.Since(began); took != tc.want {
					t.Errorf("the request was given up after %v, want %v", took, tc.want)
				}
			})
		})
	}
}

// A late renewal lets requests out again, but none that was given up.
func TestARequestAfterALateRenewalIsNotGivenUpWithTheOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, rt, s, _ := fenced(0, "")
		s.hangs()
		self := fence.Identity{Name: "i", UID: "1"}
		g.begin(self, time.Now().Add(time.Second), 0)
		if _, err := send(t, rt, http.MethodPost); err == nil {
			t.Error("a request outlived the deadline")
		}
		g.extend(self, time.Now().Add(5*time.Second))
		began := time.Now()
		if _, err := send(t, rt, http.MethodPost); err == nil || time.Since(began) != 5*time.Second {
			t.Errorf("the request ended after %v with %v, want 5s", time.Since(began), err)
		}
	})
}

// The transport below reads the body as long as the request's context goes on.
func TestARequestGoesOnUntilItsBodyIsClosed(t *testing.T) {
	for _, code := range []int{http.StatusOK, http.StatusConflict} {
		synctest.Test(t, func(t *testing.T) {
			g, rt, s, _ := fenced(code, "body")
			g.begin(fence.Identity{Name: "i", UID: "1"}, time.Now().Add(5*time.Second), 0)
			resp, err := send(t, rt, http.MethodPost)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.requests[0].Context().Err(); err != nil {
				t.Errorf("the request ended before its body was read: %v", err)
			}
			if err := resp.Body.Close(); err != nil {
				t.Error(err)
			}
			if s.requests[0].Context().Err() == nil {
				t.Error("the request goes on though its body is closed")
			}
		})
	}
}

// stream is an upgraded connection.
type stream struct {
	io.Reader
	io.Writer
	closed bool
}

func (s *stream) Close() error {
	s.closed = true
	return nil
}

// An API server passes on what a kubelet answers to an exec: nobody judges that, and nothing is
// stored.
func TestAnUpgradeBarsNothing(t *testing.T) {
	for _, method := range []string{http.MethodPost, http.MethodGet} {
		conn := &stream{Reader: strings.NewReader("x"), Writer: io.Discard}
		s := &server{answer: func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusSwitchingProtocols, Header: http.Header{}, Body: conn}, nil
		}}
		g := NewGate(clock.RealClock{})
		g.begin(fence.Identity{Name: "i", UID: "1"}, time.Now().Add(time.Minute), 0)
		resp, err := send(t, g.WrapTransport("controller")(s), method)
		if err != nil {
			t.Fatal(err)
		}
		if reason := g.whyBarred(); reason != "" {
			t.Errorf("%s: barred: %s", method, reason)
		}
		if _, ok := resp.Body.(io.Writer); !ok {
			t.Errorf("%s: nobody can write to the connection", method)
		}
		if err := resp.Body.Close(); err != nil || !conn.closed {
			t.Errorf("%s: closed %v, %v", method, conn.closed, err)
		}
		if s.requests[0].Context().Err() == nil {
			t.Errorf("%s: the request goes on though its connection is closed", method)
		}
	}
}

func TestOnlyARefusalByTheFenceIsCounted(t *testing.T) {
	const refusal = `{"details":{"causes":[{"reason":"` + string(fence.CauseFenced) + `"}]}}`
	for name, tc := range map[string]struct {
		code int
		body string
		want []string
	}{
		"the fence's refusal":    {http.StatusConflict, refusal, []string{"refused by server"}},
		"another conflict":       {http.StatusConflict, `{"reason":"Conflict"}`, nil},
		"an object that says so": {http.StatusOK, refusal, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g, rt, _, refused := fenced(tc.code, tc.body)
			g.begin(fence.Identity{Name: "i", UID: "1"}, time.Now().Add(time.Hour), 0)
			resp, err := send(t, rt, http.MethodPut)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if body, err := io.ReadAll(resp.Body); err != nil || string(body) != tc.body {
				t.Errorf("read %q, %v, want the server's answer", body, err)
			}
			refused.expect(t, tc.want...)
		})
	}
}

func TestAConflictThatCannotBeReadIsAnError(t *testing.T) {
	g, rt, s, refused := fenced(0, "")
	injected := errors.New("injected")
	s.answer = func(*http.Request) (*http.Response, error) {
		return response(http.StatusConflict, io.MultiReader(strings.NewReader(string(fence.CauseFenced)), failingReader{injected})), nil
	}
	g.begin(fence.Identity{Name: "i", UID: "1"}, time.Now().Add(time.Hour), 0)
	if _, err := send(t, rt, http.MethodPut); !errors.Is(err, injected) {
		t.Errorf("got %v, want %v", err, injected)
	}
	refused.expect(t)
	if s.requests[0].Context().Err() == nil {
		t.Error("the request goes on")
	}
}

type failingReader struct{ err error }

// Read implements io.Reader.
func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// client-go closes idle connections, and more, of the transport at the bottom.
func TestTheTransportBelowIsFound(t *testing.T) {
	_, rt, s, _ := fenced(http.StatusOK, "")
	for range 2 { // the fence, and what is discreet
		rt = rt.(utilnet.RoundTripperWrapper).WrappedRoundTripper()
	}
	if rt != http.RoundTripper(s) {
		t.Errorf("got %T", rt)
	}
}

// A server that does not answer keeps no range from changing hands.
func TestAReadEndsWhenItsKeyIsShut(t *testing.T) {
	for what, tc := range map[string]struct {
		method string
		known  bool
		shut   func(*Gate)
		ends   bool
	}{
		"its key is given away":       {http.MethodGet, true, func(g *Gate) { g.set(hashkey.NewRanges(hashkey.Range{Start: 10, End: 20})) }, true},
		"another key is given away":   {http.MethodGet, true, func(g *Gate) { g.set(hashkey.NewRanges(hashkey.Range{Start: 0, End: 10})) }, false},
		"its controller ceases":       {http.MethodGet, true, func(g *Gate) { g.For("controller").set(false) }, true},
		"another controller ceases":   {http.MethodGet, true, func(g *Gate) { g.For("other").set(false) }, false},
		"the record is gone":          {http.MethodGet, true, (*Gate).expire, true},
		"a read of no key":            {http.MethodGet, false, (*Gate).expire, false},
		"a write, which others bound": {http.MethodPut, true, (*Gate).expire, false},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewGate(clock.RealClock{})
				door := g.For("controller")
				door.set(true)
				g.set(hashkey.All())
				s := &server{answer: func(req *http.Request) (*http.Response, error) {
					select {
					case <-req.Context().Done():
						return nil, req.Context().Err()
					case <-time.After(time.Minute):
						return response(http.StatusOK, strings.NewReader("late")), nil
					}
				}}
				rt := door.WrapReads(func(*http.Request) (int64, bool) { return 5, tc.known })(s)
				begun, answered := time.Now(), make(chan error)
				go func() {
					resp, err := send(t, rt, tc.method)
					if err == nil {
						resp.Body.Close()
					}
					answered <- err
				}()
				synctest.Wait()
				tc.shut(g)
				err := <-answered
				if ended := errors.Is(err, errShut); ended != tc.ends || ended != (time.Since(begun) == readGrace) {
					t.Errorf("error %v after %v, want the end after %v: %v", err, time.Since(begun), readGrace, tc.ends)
				}
				if len(g.reads) != 0 {
					t.Errorf("%d reads are left", len(g.reads))
				}
				// So does a read that begins later.
				if _, err := send(t, rt, tc.method); tc.ends && !errors.Is(err, errShut) {
					t.Errorf("when it is shut: error %v", err)
				}
			})
		})
	}
}

// Otherwise a read on a dead connection keeps the instance from registering anew.
func TestAReadOfWorkEndsOnceTheRecordIsLost(t *testing.T) {
	for query, ends := range map[string]bool{
		"": true, "labelSelector=a": true, "resourceVersion=0": false, "watch=true": false, "limit=500": false, "shardSelector=a": false,
	} {
		for _, registered := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				g, rt, s, _ := fenced(http.StatusOK, "")
				s.answer = func(req *http.Request) (*http.Response, error) {
					select {
					case <-req.Context().Done():
						return nil, req.Context().Err()
					case <-time.After(time.Minute):
						return response(http.StatusOK, strings.NewReader("late")), nil
					}
				}
				if registered {
					g.begin(fence.Identity{Name: "i", UID: "1"}, time.Now().Add(time.Second), 0)
				}
				begun, lost := time.Now(), 5*time.Second
				time.AfterFunc(lost, g.expire)
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://server/path?"+query, nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := rt.RoundTrip(req)
				if err == nil {
					resp.Body.Close()
				}
				ended := errors.Is(err, errShut)
				if ended != (ends && registered) || ended != (time.Since(begun) == lost+readGrace) {
					t.Errorf("%q, registered: %v: error %v after %v", query, registered, err, time.Since(begun))
				}
				if len(g.reads) != 0 {
					t.Errorf("%d reads are left", len(g.reads))
				}
			})
		}
	}
}
