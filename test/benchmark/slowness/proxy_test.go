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
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"
)

// newTestProxy starts a proxy for a server, and returns it with a client of the proxy.
func newTestProxy(t *testing.T, handler http.HandlerFunc) (*proxy, *http.Client) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	plain := &tls.Config{RootCAs: pool}
	p, err := newProxy(server.URL, &authority{server: &tls.Config{Certificates: server.TLS.Certificates}, trusted: plain, plain: plain})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	client := &http.Client{Transport: transport(plain.Clone())}
	t.Cleanup(client.CloseIdleConnections)
	return p, client
}

func get(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	answer, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", answer.StatusCode, body)
}

func TestARequestTakesTheLatencyLonger(t *testing.T) {
	p, client := newTestProxy(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.RequestURI()) })
	for _, how := range []*slowness{{}, slowServer(50 * time.Millisecond), slowNetwork(50 * time.Millisecond)} {
		p.slow(how)
		begin := time.Now()
		if got, want := get(t, client, p.url()+"/api/v1/pods?limit=1"), "200 /api/v1/pods?limit=1"; got != want {
			t.Errorf("%+v: got %q, want %q", how, got, want)
		}
		if took, want := time.Since(begin), how.before+how.after; took < want {
			t.Errorf("%+v: took %v", how, took)
		}
	}
}

func TestASlowServerForgetsWhatIsGivenUp(t *testing.T) {
	arrived := make(chan string, 10)
	p, client := newTestProxy(t, func(w http.ResponseWriter, r *http.Request) { arrived <- r.URL.Path })
	p.slow(slowServer(24 * time.Hour))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url()+"/late", nil)
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := client.Do(request); err == nil {
		answer.Body.Close()
		t.Error("answered")
	}
	p.slow(&slowness{})
	get(t, client, p.url()+"/soon")
	if got := <-arrived; got != "/soon" {
		t.Errorf("%s arrived", got)
	}
}

func TestAWatchComesLaterByTheLatency(t *testing.T) {
	sent := make(chan string)
	p, client := newTestProxy(t, func(w http.ResponseWriter, r *http.Request) {
		flush := http.NewResponseController(w)
		for {
			if flush.Flush() != nil {
				return
			}
			select {
			case line := <-sent:
				fmt.Fprintln(w, line)
			case <-r.Context().Done():
				return
			}
		}
	})
	answer, err := client.Get(p.url() + "/api/v1/pods?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	p.slow(slowNetwork(50 * time.Millisecond))
	begin := time.Now()
	sent <- "late"
	if !lines.Scan() || lines.Text() != "late" {
		t.Errorf("got %q, %v", lines.Text(), lines.Err())
	}
	if took := time.Since(begin); took < 50*time.Millisecond {
		t.Errorf("took %v", took)
	}
}

func TestASilentProxyKeepsConnectionsOpen(t *testing.T) {
	ended := make(chan struct{})
	p, client := newTestProxy(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/pods" {
			return
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(ended)
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url()+"/api/v1/pods?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	p.silence()
	cancel()
	client.CloseIdleConnections()
	select {
	case <-ended:
		t.Fatal("the server was told that the client has gone")
	case <-time.After(50 * time.Millisecond):
	}
	p.speak()
	<-ended
}

func TestAProxyThatRefusesAcceptsAgain(t *testing.T) {
	p, client := newTestProxy(t, func(w http.ResponseWriter, r *http.Request) {})
	get(t, client, p.url())
	if err := p.refuse(); err != nil {
		t.Fatal(err)
	}
	if answer, err := client.Get(p.url()); err == nil {
		answer.Body.Close()
		t.Error("answered while it refuses")
	}
	if err := p.accept(); err != nil {
		t.Fatal(err)
	}
	get(t, client, p.url())
}

func TestAProxyVouchesByTheCertificateAlone(t *testing.T) {
	subject := &pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}
	forged := http.Header{"X-Remote-User": {"mallory"}, "Accept": {"*/*"}}
	for name, c := range map[string]struct {
		sent    http.Header
		subject *pkix.Name
		want    http.Header
		vouched bool
	}{
		"a certificate": {forged, subject, http.Header{"Accept": {"*/*"}, "X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"}}, true},
		"none":          {forged, nil, http.Header{"Accept": {"*/*"}}, false},
		"a token too":   {http.Header{"Authorization": {"Bearer x"}}, subject, http.Header{"Authorization": {"Bearer x"}}, false},
	} {
		if got, vouched := vouchFor(c.sent, c.subject); !reflect.DeepEqual(got, c.want) || vouched != c.vouched {
			t.Errorf("%s: got %v, %t; want %v, %t", name, got, vouched, c.want, c.vouched)
		}
	}
}
