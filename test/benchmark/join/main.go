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

// Command join measures what instances of a ring hold and fetch: the live heap of the
// ReplicaSet controller's informers in four instances, next to stock's in one, and the
// bytes that all receive while a fifth joins.
//
//	join --bin-dir=_output/bin --out=docs/benchmarks-join.md --plot=docs/join.svg [--pods=40000] [--pods-per-replicaset=100]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/test/utils/localcluster"
)

const (
	// instances is how many there are before one more joins.
	instances = 4
	// soon is how long a condition may take on a slow machine; none is expected to.
	soon = 5 * time.Minute
)

func main() {
	b := &benchmark{}
	binDir := flag.String("bin-dir", "_output/bin", "where the binaries of the cluster are")
	out := flag.String("out", "", "the Markdown file to write the results to; standard output without it")
	plotFile := flag.String("plot", "", "the SVG file to draw the join into; none without it")
	flag.IntVar(&b.pods, "pods", 40000, "how many pods there are")
	flag.IntVar(&b.podsPerSet, "pods-per-replicaset", 100, "how many of them belong to the same ReplicaSet")
	flag.Parse()
	log.SetFlags(log.Ltime)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := b.run(ctx, *binDir, *out, *plotFile); err != nil {
		log.Fatal("join: ", err)
	}
}

// benchmark is a cluster, with the workload in it.
type benchmark struct {
	pods, podsPerSet int
	cluster          *localcluster.Cluster
	client           kubernetes.Interface
	// sets are the ReplicaSets, none at first, podSize the bytes of one of their pods
	// in protobuf.
	sets    []*appsv1.ReplicaSet
	podSize int
}

func (b *benchmark) run(ctx context.Context, binDir, out, plotFile string) (err error) {
	// With fewer ReplicaSets there are no quarters.
	if b.podsPerSet < 1 || b.pods%b.podsPerSet != 0 || b.pods < 10*b.podsPerSet {
		return fmt.Errorf("%d pods are not 10 or more ReplicaSets of %d", b.pods, b.podsPerSet)
	}
	dir, err := os.MkdirTemp("", "benchmark-join-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	log.Print("starting etcd and kube-apiserver")
	b.cluster, err = localcluster.Start(ctx, localcluster.Config{
		BinDir: binDir, Dir: filepath.Join(dir, "cluster"),
		Args: map[localcluster.Component][]string{
			localcluster.KubeAPIServer: {"--disable-admission-plugins=ServiceAccount"},
			// No other controller's informers, and no wait for the rate limit.
			localcluster.KubeControllerManager: {"--controllers=" + names.ReplicaSetController, "--kube-api-qps=2000", "--kube-api-burst=2000"},
		},
		Died: func(exit *localcluster.Exit) { cancel(exit) },
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.cluster.Stop(context.WithoutCancel(ctx))) }()
	// Pods need no nodes to be held in caches.
	for _, idle := range []localcluster.Component{localcluster.KubeScheduler, localcluster.Kwok} {
		if err := b.cluster.StopProcess(ctx, string(idle)); err != nil {
			return err
		}
	}
	if b.client, err = clientFor(b.cluster.RESTConfig()); err != nil {
		return err
	}

	f, err := b.measure(ctx)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err != nil {
		return err
	}
	if plotFile != "" {
		if err := os.WriteFile(plotFile, []byte(plot(f.join, f.moved)), 0o644); err != nil {
			return err
		}
	}
	report, missed := f.render(out, plotFile)
	if out == "" {
		fmt.Print(report)
	} else if err := os.WriteFile(out, []byte(report), 0o644); err != nil {
		return err
	}
	if len(missed) > 0 {
		return fmt.Errorf("bars missed: %s", strings.Join(missed, "; "))
	}
	return nil
}

// measure measures fresh processes each time, without pods and with them: so a process
// holds nothing that is left of the pods' creation.
func (b *benchmark) measure(ctx context.Context) (*figures, error) {
	f := &figures{pods: b.pods, podsPerSet: b.podsPerSet, ring: make([]memory, instances+1)}
	var err error
	if f.stock.empty, err = b.measureStock(ctx); err != nil {
		return nil, err
	}
	ring, err := b.startRing(ctx, instances+1)
	if err != nil {
		return nil, err
	}
	for i, p := range ring {
		if f.ring[i].empty, err = b.live(ctx, p); err != nil {
			return nil, err
		}
	}
	if err := b.endRing(ctx, ring); err != nil {
		return nil, err
	}

	if err := b.fill(ctx); err != nil {
		return nil, err
	}
	f.podSize, f.stock.pods = b.podSize, b.pods
	if f.stock.full, err = b.measureStock(ctx); err != nil {
		return nil, err
	}
	if ring, err = b.startRing(ctx, instances); err != nil {
		return nil, err
	}
	for i, p := range ring {
		if f.ring[i].full, err = b.live(ctx, p); err != nil {
			return nil, err
		}
		f.ring[i].pods = b.podsIn(p.owned)
	}

	if f.join, err = b.join(ctx, ring); err != nil {
		return nil, err
	}
	for i, p := range f.join.ring {
		if f.ring[i].joined, err = b.live(ctx, p); err != nil {
			return nil, err
		}
		f.ring[i].podsJoined = b.podsIn(p.owned)
	}
	newcomer := f.join.ring[instances]
	f.moved, err = b.sizeOf(ctx, newcomer.owned)
	return f, err
}

// measureStock returns the live bytes of a controller manager without the ring, once it
// has worked on everything.
func (b *benchmark) measureStock(ctx context.Context) (uint64, error) {
	log.Printf("stock, with %d ReplicaSets: starting one controller manager", len(b.sets))
	p, err := b.newProcess()
	if err != nil {
		return 0, err
	}
	if err := b.start(ctx, p, "--feature-gates=ControllerRing=false"); err != nil {
		return 0, err
	}
	if err := b.observed(ctx); err != nil {
		return 0, err
	}
	live, err := b.live(ctx, p)
	if err != nil {
		return 0, err
	}
	return live, b.cluster.StopProcess(ctx, p.name)
}

// startRing starts controller managers one after another, each when the ring of those
// before it has come to rest.
func (b *benchmark) startRing(ctx context.Context, n int) ([]*process, error) {
	var ring []*process
	for i := range n {
		log.Printf("ring, with %d ReplicaSets: starting controller manager %d of %d", len(b.sets), i+1, n)
		p, err := b.newProcess()
		if err != nil {
			return nil, err
		}
		if err := b.start(ctx, p); err != nil {
			return nil, err
		}
		ring = append(ring, p)
		if err := b.settle(ctx, ring); err != nil {
			return nil, err
		}
	}
	return ring, nil
}

func (b *benchmark) endRing(ctx context.Context, ring []*process) error {
	for _, p := range ring {
		if err := b.cluster.StopProcess(ctx, p.name); err != nil {
			return err
		}
	}
	return b.settle(ctx, nil)
}
