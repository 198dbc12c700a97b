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
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const (
	apiServer = "kube-apiserver"
	token     = "dummy_token"
	// startTimeout bounds the wait for a server to be ready. An API server takes seven
	// seconds on an idle machine.
	startTimeout  = 2 * time.Minute
	readyInterval = 100 * time.Millisecond
	logTail       = 2000 // bytes
)

// withServer calls work while bin's kube-apiserver serves every API that it has, with the
// flags of upstream's hack/update-openapi-spec.sh. bin has an etcd for it, too.
func withServer(ctx context.Context, bin string, work func(get) error) (err error) {
	dir, err := os.MkdirTemp("", "codegen-api-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(file("tokens.csv"), []byte(token+",admin,admin\n"), 0o600); err != nil {
		return err
	}
	if err := writeKey(file("service-account.key")); err != nil {
		return err
	}
	addresses, err := freeAddresses(3)
	if err != nil {
		return err
	}
	client, peer := "http://"+addresses[0], "http://"+addresses[1]
	host, port, err := net.SplitHostPort(addresses[2])
	if err != nil {
		return err
	}

	etcd, err := startServer(ctx, dir, filepath.Join(bin, "etcd"), nil,
		"--data-dir="+file("etcd"),
		"--listen-client-urls="+client,
		"--advertise-client-urls="+client,
		"--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls="+peer,
		"--initial-cluster=default="+peer)
	if err != nil {
		return err
	}
	defer etcd.stop()
	if err := etcd.waitReady(ctx, client+"/readyz"); err != nil {
		return err
	}

	server, err := startServer(ctx, dir, filepath.Join(bin, apiServer),
		[]string{"KUBE_APISERVER_STRICT_REMOVED_API_HANDLING_IN_ALPHA=true"},
		"--bind-address="+host,
		"--secure-port="+port,
		// Discovery has the address, with the port that upstream's script listens on.
		"--external-hostname=10.10.10.10:8050",
		"--etcd-servers="+client,
		"--advertise-address=10.10.10.10",
		"--cert-dir="+file("certs"),
		"--feature-gates=AllAlpha=true,AllBeta=true,OpenAPIEnums=false",
		"--runtime-config=api/all=true",
		"--token-auth-file="+file("tokens.csv"),
		"--authorization-mode=RBAC",
		"--service-account-key-file="+file("service-account.key"),
		"--service-account-lookup=true",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file="+file("service-account.key"),
		"--enable-logs-handler=true",
		"--service-cluster-ip-range=10.0.0.0/24")
	if err != nil {
		return err
	}
	defer server.stop()
	url := "https://" + addresses[2]
	if err := server.waitReady(ctx, url+"/readyz"); err != nil {
		return err
	}
	return work(func(path, accept string) ([]byte, error) { return httpGet(ctx, url+path, accept) })
}

// writeKey writes a new private key.
func writeKey(file string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	return os.WriteFile(file, pem.EncodeToMemory(block), 0o600)
}

// freeAddresses returns n addresses of this machine that nobody listens on.
func freeAddresses(n int) ([]string, error) {
	var addresses []string
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close() // not before all are chosen
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses, nil
}

// server is a running process.
type server struct {
	name, log string
	kill      context.CancelFunc
	exited    chan struct{} // closed when it has ended
	err       error         // why, once it has
}

// startServer starts a program that keeps its log in dir. It runs until stop, or until ctx
// ends.
func startServer(ctx context.Context, dir, program string, env []string, args ...string) (*server, error) {
	name := filepath.Base(program)
	s := &server{name: name, log: filepath.Join(dir, name+".log"), exited: make(chan struct{})}
	log, err := os.Create(s.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	ctx, s.kill = context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		s.kill()
		return nil, err
	}
	go func() {
		s.err = cmd.Wait()
		close(s.exited)
	}()
	return s, nil
}

// stop ends the process, and returns when it has ended.
func (s *server) stop() {
	s.kill()
	<-s.exited
}

// waitReady waits until a URL of the server answers.
func (s *server) waitReady(ctx context.Context, url string) error {
	timeout := time.After(startTimeout)
	for {
		_, err := httpGet(ctx, url, "")
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.exited:
			return fmt.Errorf("%s has ended (%v); its log ends with\n%s", s.name, s.err, s.tail())
		case <-timeout:
			return fmt.Errorf("%s is not ready after %s (%w); its log ends with\n%s", s.name, startTimeout, err, s.tail())
		case <-time.After(readyInterval):
		}
	}
}

// tail returns the end of the server's log.
func (s *server) tail() []byte {
	log, err := os.ReadFile(s.log)
	if err != nil {
		return []byte(err.Error())
	}
	return bytes.TrimSpace(log[max(0, len(log)-logTail):])
}

// httpClient talks to servers on this machine, whose certificates nobody has signed.
var httpClient = &http.Client{
	Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	Timeout:   time.Minute,
}

func httpGet(ctx context.Context, url, accept string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, response.Status, bytes.TrimSpace(body))
	}
	return body, err
}
