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

// Command leader compares the controllers behind the leader's lease, which have trimmed pods, with
// those of stock, which have whole ones: after the same story, the same objects are to be there,
// and the same writes to have been made. The story has owners that are deleted, volumes that are
// attached and detached, and nodes that fail. Then it kills the leader's process, and measures how
// long which controllers do nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/localcluster"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/audit"
	"k8s.io/kubernetes/test/harness/report"
)

// soon bounds the wait for any condition. It is ample even for a slow machine.
const soon = 15 * time.Minute

type options struct {
	bin, dir               string
	owners, cycles, failed int
}

// run is a cluster that goes through the story.
type run struct {
	options
	stock   bool
	cluster *localcluster.Cluster
	client  kubernetes.Interface
}

func main() {
	var o options
	out := flag.String("out", "", "Markdown file for the results; standard output if empty")
	flag.StringVar(&o.bin, "bin", "../bin", "directory of the binaries")
	flag.StringVar(&o.dir, "dir", "", "directory for the clusters, which is made")
	flag.IntVar(&o.owners, "owners", 20000, "number of owners that are deleted")
	flag.IntVar(&o.cycles, "cycles", 10000, "number of times that a volume is attached and detached")
	flag.IntVar(&o.failed, "failed", 50, "number of nodes that fail; as many others stay")
	flag.Parse()
	log.SetFlags(log.Ltime)
	harness.Main("leader", func(ctx context.Context) error { return compare(ctx, o, *out) })
}

func compare(ctx context.Context, o options, out string) (err error) {
	if err := harness.Absolute(&o.bin); err != nil {
		return err
	}
	if o.dir == "" {
		return errors.New("-dir says where the clusters go; it is missing")
	}
	var told [2]story
	for i, stock := range []bool{true, false} {
		r := &run{options: o, stock: stock}
		if told[i], err = r.tell(ctx); err != nil {
			return fmt.Errorf("%s: %w", r.name(), err)
		}
	}
	page, differences := render(o, told[0], told[1])
	if err := report.Write(out, page); err != nil {
		return err
	}
	if differences > 0 {
		return fmt.Errorf("%d differences from stock", differences)
	}
	return nil
}

func (r *run) name() string {
	if r.stock {
		return "stock"
	}
	return "ours"
}

// managers is how many controller managers there are. The first leads.
const managers = 3

// tell goes through the story in a cluster of its own.
func (r *run) tell(ctx context.Context) (s story, err error) {
	dir := filepath.Join(r.dir, r.name())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return s, err
	}
	auditLog := filepath.Join(dir, "audit.log")
	auditing, err := audit.Flags(dir, auditPolicy, auditLog)
	if err != nil {
		return s, err
	}
	if err := os.Remove(auditLog); err != nil && !errors.Is(err, os.ErrNotExist) {
		return s, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.cluster, err = localcluster.Start(ctx, localcluster.Config{
		BinDir: r.bin, Dir: filepath.Join(dir, "cluster"), WithoutNodes: true,
		FeatureGates: map[string]bool{"ControllerRing": !r.stock},
		Died:         func(exit *localcluster.Exit) { cancel(exit) },
		Args: map[localcluster.Component][]string{
			localcluster.KubeAPIServer: auditing,
			localcluster.KubeControllerManager: {
				"--kube-api-qps=2000", "--kube-api-burst=2000",
				// Half of the nodes fail at once, and are to be dealt with at once.
				"--node-monitor-period=1s", "--node-monitor-grace-period=10s", "--node-eviction-rate=100",
			},
		},
	})
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, r.cluster.Stop(context.WithoutCancel(ctx))) }()
	r.client = r.cluster.Client()
	for range managers {
		if _, err := r.cluster.AddControllerManager(ctx); err != nil {
			return s, err
		}
		// Once somebody leads, each namespace has a service account.
		if err := r.cluster.AwaitServiceAccount(ctx, metav1.NamespaceDefault); err != nil {
			return s, err
		}
	}
	for _, chapter := range []struct {
		name string
		tell func(context.Context) error
	}{{"owners", r.deleteOwners}, {"volumes", r.attachVolumes}, {"nodes", r.failNodes}} {
		begin := time.Now()
		if err := chapter.tell(ctx); err != nil {
			return s, fmt.Errorf("%s: %w", chapter.name, errors.Join(err, context.Cause(ctx)))
		}
		s.took = append(s.took, took{chapter.name, time.Since(begin)})
		log.Printf("%s: %s: told in %v", r.name(), chapter.name, time.Since(begin).Round(time.Second))
	}
	if s.objects, err = r.objects(ctx); err != nil {
		return s, err
	}
	if s.writes, err = writes(auditLog); err != nil {
		return s, err
	}
	s.stopped, err = r.killLeader(ctx)
	return s, err
}

// await waits until a condition holds.
func (r *run) await(ctx context.Context, what string, holds wait.ConditionWithContextFunc) error {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	if err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, holds); err != nil {
		return fmt.Errorf("waiting for %s: %w", what, err)
	}
	return nil
}
