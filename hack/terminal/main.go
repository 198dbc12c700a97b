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

// Command terminal makes the README's picture of a terminal: it starts a cluster on this machine as
// `make up` does, runs commands on it, and draws what they print. Run it from the repository's
// root, once everything is built:
//
//	go run ./hack/terminal -out docs/terminal.svg
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	bin = "_output/bin"
	// dir is the cluster's, under the path by which the commands name it.
	dir = "_output/local"
	// soon bounds the start of the cluster, and each command.
	soon = 5 * time.Minute
)

// session are the commands in the picture. Each runs when the ring has come to rest after the one
// before it.
var session = []string{
	"kubectl ring workloads",
	"kill -9 $(cat " + dir + "/kube-controller-manager-2.pid); sleep 7 # its lease is one of 6 s",
	"kubectl ring workloads",
	"hack/local-up-cluster.sh add; sleep 7",
	"kubectl ring workloads",
}

func main() {
	log.SetFlags(log.Ltime)
	out := flag.String("out", "docs/terminal.svg", "SVG file for the picture")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *out); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out string) (err error) {
	if _, err := os.Stat(filepath.Join(bin, "local-up-cluster")); err != nil {
		return fmt.Errorf("run `make build` first: %w", err)
	}
	path, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	env := append(os.Environ(), "KUBECONFIG="+filepath.Join(dir, "kubeconfig"), "PATH="+path+":"+os.Getenv("PATH"))
	log.Print("starting a cluster")
	cluster := exec.Command(filepath.Join(bin, "local-up-cluster"), "--bin-dir="+bin, "--dir="+dir)
	cluster.Stderr = os.Stderr
	if err := cluster.Start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Process.Signal(os.Interrupt), cluster.Wait()) }()
	if err := settle(ctx, env); err != nil {
		return err
	}
	var steps []step
	for _, command := range session {
		log.Print("$ ", command)
		printed, err := execute(ctx, env, command)
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", command, err, printed)
		}
		steps = append(steps, step{command, printed})
		if err := settle(ctx, env); err != nil {
			return err
		}
	}
	return os.WriteFile(out, []byte(draw(steps)), 0o644)
}

// settle waits until every key is worked on, and the ring has been even for some seconds.
func settle(ctx context.Context, env []string) error {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	for calm := 0; calm < 5; calm++ {
		said, err := execute(ctx, env, "kubectl ring status && kubectl ring balance")
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("the ring does not come to rest: %w\n%s", context.Cause(ctx), said)
		case err != nil || strings.Contains(said, " gives "):
			calm = -1
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	return nil
}

// execute runs a command, and returns what it prints.
func execute(ctx context.Context, env []string, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", command)
	cmd.Env = env
	printed, err := cmd.CombinedOutput()
	return strings.TrimRight(string(printed), "\n"), err
}
