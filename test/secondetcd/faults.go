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
	"math/rand"
	"net"
	"slices"
	"syscall"
	"time"

	"k8s.io/kubernetes/pkg/localcluster"
	"k8s.io/kubernetes/test/harness"
)

// faults are what happens to the processes.
var faults = []struct {
	name string
	do   func(*bench, context.Context) error
}{
	{"join", (*bench).join},
	{"leave", (*bench).leave},
	{"kill", (*bench).kill},
	{"suspend", (*bench).suspend},
	{"kill the API server", (*bench).killServer},
}

func (b *bench) join(ctx context.Context) error {
	name, err := b.cluster.AddControllerManager(ctx)
	b.managers = append(b.managers, name)
	return err
}

// take takes a random controller manager off the list.
func (b *bench) take() string {
	i := rand.Intn(len(b.managers))
	name := b.managers[i]
	b.managers = slices.Delete(b.managers, i, i+1)
	return name
}

func (b *bench) leave(ctx context.Context) error { return b.cluster.StopProcess(ctx, b.take()) }

func (b *bench) kill(ctx context.Context) error {
	if err := b.cluster.Kill(b.take()); err != nil {
		return err
	}
	return b.join(ctx)
}

// suspend suspends a controller manager for longer than its lease lasts.
func (b *bench) suspend(ctx context.Context) error {
	name := b.managers[rand.Intn(len(b.managers))]
	if err := b.cluster.Signal(name, syscall.SIGSTOP); err != nil {
		return err
	}
	_ = harness.Sleep(ctx, 10*time.Second)
	return b.cluster.Signal(name, syscall.SIGCONT)
}

func (b *bench) killServer(ctx context.Context) error {
	server := string(localcluster.KubeAPIServer)
	if err := b.cluster.Kill(server); err != nil {
		return err
	}
	return b.cluster.StartAgain(ctx, server)
}

// freePort returns a URL on loopback that nothing listens on.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return "http://" + l.Addr().String(), nil
}
