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

// Command join measures the memory of a ring's instances and the cost of a join: the
// live heap of the ReplicaSet controller's informers in four instances, compared with
// that of one stock controller manager, and the bytes that all instances receive while a
// fifth joins.
//
//	join --bin-dir=_output/bin --out=docs/benchmarks/join.md --plot=docs/benchmarks/join.svg
//	    [--pods=40000] [--pods-per-replicaset=100]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/pkg/localcluster"
	"k8s.io/kubernetes/test/harness/report"
)

const (
	// instances is the number of instances before one more joins.
	instances = 4
	// soon bounds the wait for any condition. It is ample even for a slow machine.
	soon = 5 * time.Minute
)

func main() {
	b := &benchmark{}
	binDir := flag.String("bin-dir", "_output/bin", "directory of the cluster's binaries")
	out := flag.String("out", "", "Markdown file for the results; standard output if empty")
	plotFile := flag.String("plot", "", "SVG file for the plot of the join; no plot if empty")
	flag.IntVar(&b.pods, "pods", 40000, "number of pods")
	flag.IntVar(&b.podsPerSet, "pods-per-replicaset", 100, "number of pods that each ReplicaSet has")
	flag.Parse()
	log.SetFlags(log.Ltime)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := b.run(ctx, *binDir, *out, *plotFile); err != nil {
		log.Fatal("join: ", err)
	}
}

// benchmark is a cluster with its workload.
type benchmark struct {
	pods, podsPerSet int
	cluster          *localcluster.Cluster
	client           kubernetes.Interface
	// sets has the ReplicaSets, none at first. podSize is the size of one of their pods
	// in bytes of protobuf.
	sets    []*appsv1.ReplicaSet
	podSize int
}

func (b *benchmark) run(ctx context.Context, binDir, out, plotFile string) (err error) {
	// Fewer ReplicaSets could not be shared in quarters.
	if b.podsPerSet < 1 || b.pods%b.podsPerSet != 0 || b.pods < 10*b.podsPerSet {
		return fmt.Errorf("%d pods are not 10 or more ReplicaSets of %d", b.pods, b.podsPerSet)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	log.Print("starting etcd and kube-apiserver")
	b.cluster, err = localcluster.Start(ctx, localcluster.Config{
		BinDir: binDir, WithoutNodes: true,
		Args: map[localcluster.Component][]string{
			localcluster.KubeAPIServer: {"--disable-admission-plugins=ServiceAccount"},
			// Run no other informers, and do not wait for the rate limit.
			localcluster.KubeControllerManager: {"--controllers=" + catalogue.ReplicaSetController, "--kube-api-qps=2000", "--kube-api-burst=2000"},
		},
		Died: func(exit *localcluster.Exit) { cancel(exit) },
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.cluster.Stop(context.WithoutCancel(ctx))) }()
	b.client = b.cluster.Client()
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
	page, missed := f.render(out, plotFile)
	if err := report.Write(out, page); err != nil {
		return err
	}
	if len(missed) > 0 {
		return fmt.Errorf("bars missed: %s", strings.Join(missed, "; "))
	}
	return nil
}

// measure uses fresh processes for each measurement, first without pods and then with
// them, so no process holds garbage of the pods' creation.
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
	receiver := f.join.ring[instances]
	f.moved, err = b.sizeOf(ctx, receiver.owned)
	return f, err
}

// measureStock returns the live bytes of a controller manager without the ring, once it
// has worked on all ReplicaSets.
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

// startRing starts n controller managers, each once the ring of those before it has
// settled.
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
