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
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// maxStreams is how many requests share a connection, as an API server has it.
const maxStreams = 100

// frontProxy is the user whose certificate lets a proxy say who sent a request.
const frontProxy = "front-proxy"

// authority has the files by which a proxy passes for the API server, and is trusted by it.
type authority struct {
	server *tls.Config
	// trusted is for requests that the proxy vouches for, and plain for those with a token.
	trusted, plain *tls.Config
}

// frontProxyArgs are the flags with which an API server of the cluster in dir trusts the proxies.
func frontProxyArgs(dir string) []string {
	return []string{
		"--requestheader-client-ca-file=" + caFile(dir),
		"--requestheader-allowed-names=" + frontProxy,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
	}
}

func caFile(dir string) string { return filepath.Join(dir, "pki", "ca.crt") }

// newAuthority reads the files of the cluster in dir. kubeconfig holds the certificate of
// frontProxy.
func newAuthority(dir, kubeconfig string) (*authority, error) {
	ca, err := os.ReadFile(caFile(dir))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	serving, err := tls.LoadX509KeyPair(filepath.Join(dir, "pki", "serving.crt"), filepath.Join(dir, "pki", "serving.key"))
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	proves, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		return nil, err
	}
	return &authority{
		server:  &tls.Config{Certificates: []tls.Certificate{serving}, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven},
		trusted: &tls.Config{Certificates: []tls.Certificate{proves}, RootCAs: pool},
		plain:   &tls.Config{RootCAs: pool},
	}, nil
}

// slowness is how a proxy is slow. What a watch sends comes later by both times.
type slowness struct {
	// before is how long a request is held, and after how long its answer is.
	before, after time.Duration
	// forgets says that a request that its client gives up meanwhile does not arrive. Otherwise it
	// does, as does that it was given up.
	forgets bool
}

// slowServer returns the slowness of a server that begins each request late, and forgets those that
// nobody waits for any more.
func slowServer(latency time.Duration) *slowness { return &slowness{before: latency, forgets: true} }

// slowNetwork returns the slowness of a network that takes long in either direction.
func slowNetwork(latency time.Duration) *slowness {
	return &slowness{before: latency / 2, after: latency - latency/2}
}

// proxy stands between one controller manager and the API server. It ends TLS, so it can hold each
// request and each answer by itself. Beside slow it can be
//
//   - silent: no byte comes through in either direction, nor the end of a connection;
//   - refusing: all connections end, and no new one is accepted.
type proxy struct {
	target string
	// trusted and plain carry requests to the API server; see authority.
	trusted, plain *http.Transport
	serverTLS      *tls.Config
	traffic        traffic

	slowness atomic.Pointer[slowness]

	lock    sync.Mutex
	address string
	server  *http.Server
	// audible is closed while bytes come through.
	audible chan struct{}
}

// newProxy starts a proxy for the API server at that URL on a free port of 127.0.0.1.
func newProxy(target string, a *authority) (*proxy, error) {
	p := &proxy{target: target, trusted: transport(a.trusted), plain: transport(a.plain), serverTLS: a.server, address: "127.0.0.1:0", audible: make(chan struct{})}
	close(p.audible)
	p.slow(&slowness{})
	return p, p.accept()
}

func transport(config *tls.Config) *http.Transport {
	return &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableCompression: true, MaxIdleConnsPerHost: maxStreams}
}

func (p *proxy) url() string { return "https://" + p.address }

// slow sets how slow it is from now on.
func (p *proxy) slow(how *slowness) { p.slowness.Store(how) }

// silence stops all bytes, until speak.
func (p *proxy) silence() {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.audible = make(chan struct{})
}

// speak lets all bytes through that silence has stopped.
func (p *proxy) speak() {
	p.lock.Lock()
	defer p.lock.Unlock()
	select {
	case <-p.audible:
	default:
		close(p.audible)
	}
}

// heard waits until bytes come through.
func (p *proxy) heard() {
	p.lock.Lock()
	audible := p.audible
	p.lock.Unlock()
	<-audible
}

// accept accepts connections, until refuse.
func (p *proxy) accept() error {
	p.lock.Lock()
	defer p.lock.Unlock()
	listener, err := net.Listen("tcp", p.address)
	if err != nil {
		return err
	}
	p.address = listener.Addr().String()
	p.server = &http.Server{
		Handler: p, TLSConfig: p.serverTLS.Clone(), ErrorLog: log.New(io.Discard, "", 0),
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
	}
	server := p.server
	go func() {
		if err := server.ServeTLS(&quietListener{listener, p}, "", ""); !errors.Is(err, http.ErrServerClosed) {
			log.Printf("a proxy has ended: %v", err)
		}
	}()
	return nil
}

// refuse ends all connections, and accepts none until accept.
func (p *proxy) refuse() error {
	p.lock.Lock()
	server := p.server
	p.lock.Unlock()
	return server.Close()
}

// close ends the proxy and all connections through it.
func (p *proxy) close() {
	p.speak()
	_ = p.refuse()
	p.trusted.CloseIdleConnections()
	p.plain.CloseIdleConnections()
}

// quietListener makes connections that a proxy can silence.
type quietListener struct {
	net.Listener
	proxy *proxy
}

func (l *quietListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &quietConn{c, l.proxy}, nil
}

type quietConn struct {
	net.Conn
	proxy *proxy
}

// Read hands over what has come, and the end of the connection, once the proxy is not silent.
func (c *quietConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.proxy.heard()
	return n, err
}

func (c *quietConn) Write(b []byte) (int, error) {
	c.proxy.heard()
	return c.Conn.Write(b)
}

// ServeHTTP forwards a request and its answer.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	how := p.slowness.Load()
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	defer context.AfterFunc(r.Context(), func() { time.AfterFunc(how.before, cancel) })()
	select {
	case <-time.After(how.before):
	case <-how.forgotten(r.Context()):
		panic(http.ErrAbortHandler)
	}
	answer, err := p.forward(ctx, r, body)
	if err != nil {
		// As far as the client can tell, the connection has ended.
		panic(http.ErrAbortHandler)
	}
	defer answer.Body.Close()
	counted := p.traffic.begin(r, answer.StatusCode)
	from := io.TeeReader(answer.Body, counted)
	var chunks <-chan chunk
	if counted.watch {
		chunks = p.receive(ctx, from)
	}
	time.Sleep(how.after)
	for name, values := range answer.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.StatusCode)
	if counted.watch {
		pass(ctx, w, chunks)
	} else if _, err := io.Copy(w, from); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// forgotten returns a channel that is closed when a request does not have to arrive any more.
func (how *slowness) forgotten(request context.Context) <-chan struct{} {
	if how.forgets {
		return request.Done()
	}
	return nil
}

// forward sends the request to the API server, in the name of whoever sent it.
func (p *proxy) forward(ctx context.Context, r *http.Request, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, r.Method, p.target+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	var subject *pkix.Name
	if len(r.TLS.VerifiedChains) > 0 {
		subject = &r.TLS.VerifiedChains[0][0].Subject
	}
	var vouched bool
	if request.Header, vouched = vouchFor(r.Header, subject); vouched {
		return p.trusted.RoundTrip(request)
	}
	return p.plain.RoundTrip(request)
}

// vouchFor returns the header with which the request of a client is forwarded, and whether it says
// who the client is: by its certificate, if it sends no token.
func vouchFor(sent http.Header, subject *pkix.Name) (header http.Header, vouched bool) {
	header = sent.Clone()
	for name := range header {
		if strings.HasPrefix(name, "X-Remote-") || name == "Connection" {
			header.Del(name)
		}
	}
	if subject == nil || header.Get("Authorization") != "" {
		return header, false
	}
	header.Set("X-Remote-User", subject.CommonName)
	header["X-Remote-Group"] = subject.Organization
	return header, true
}

// chunk is a part of a stream, and when it is due.
type chunk struct {
	data []byte
	due  time.Time
}

// receive returns what comes from a stream until it ends, each chunk due when its time has come.
func (p *proxy) receive(ctx context.Context, from io.Reader) <-chan chunk {
	// Far more than comes within a latency.
	chunks := make(chan chunk, 10000)
	go func() {
		defer close(chunks)
		for {
			buffer := make([]byte, 32*1024)
			n, err := from.Read(buffer)
			if n > 0 {
				how := p.slowness.Load()
				select {
				case chunks <- chunk{buffer[:n], time.Now().Add(how.before + how.after)}:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return chunks
}

// pass passes chunks on when they are due, until either side ends.
func pass(ctx context.Context, w http.ResponseWriter, chunks <-chan chunk) {
	flush := http.NewResponseController(w)
	if flush.Flush() != nil {
		return
	}
	for {
		select {
		case c, ok := <-chunks:
			if !ok {
				return
			}
			time.Sleep(time.Until(c.due))
			if _, err := w.Write(c.data); err != nil || flush.Flush() != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}
