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
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/test/harness/audit"
)

// stopGrace is how long a server has between SIGTERM and SIGKILL.
const stopGrace = 10 * time.Second

// apiServer is a second API server, on the etcd of the first and with its flags.
type apiServer struct {
	address string
	cmd     *exec.Cmd
	// ended is closed when the process has ended.
	ended chan struct{}
}

// addStockServer starts a stock API server beside the cluster's own, and returns once it
// is ready. It has to be called from the main thread: the kernel ends the process with the
// thread that started it.
func (r *run) addStockServer(ctx context.Context) (err error) {
	pid, err := r.cluster.PID(apiServerName)
	if err != nil {
		return err
	}
	commandLine, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(address)
	args := strings.Split(strings.TrimSuffix(string(commandLine), "\x00"), "\x00")[1:]
	args = append(args, "--secure-port="+port, audit.LogTo(r.auditLog("2")))

	out, err := os.Create(filepath.Join(r.dir, "stock-apiserver.log"))
	if err != nil {
		return err
	}
	// The process has its own copy of the descriptor.
	defer out.Close()
	s := &apiServer{address: address, cmd: exec.Command(filepath.Join(r.stock, "kube-apiserver"), args...), ended: make(chan struct{})}
	s.cmd.Stdout, s.cmd.Stderr = out, out
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	go func() {
		// How it ended is in its log.
		_ = s.cmd.Wait()
		close(s.ended)
	}()
	r.stop = append(r.stop, s.end)
	r.stockServer = s
	client, err := rest.HTTPClientFor(r.cluster.RESTConfig())
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	return r.await(ctx, func(ctx context.Context) (bool, error) {
		if s.hasEnded() {
			return false, fmt.Errorf("the stock API server has ended; its log is %s", out.Name())
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/readyz", nil)
		if err != nil {
			return false, err
		}
		response, err := client.Do(request)
		if err != nil {
			// Not yet.
			return false, nil
		}
		_, err = io.Copy(io.Discard, response.Body)
		return response.StatusCode == http.StatusOK, errors.Join(err, response.Body.Close())
	})
}

// end ends the server in good order, so that its audit log has every write, and returns when
// it has ended.
func (s *apiServer) end() {
	// An error means that it has ended already.
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(stopGrace):
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
}

func (s *apiServer) hasEnded() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}
