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

// Command process measures whole controller managers, with all their controllers, while Deployments
// get their pods, and while Jobs run beside DaemonSets: 1, 2, 4 and 8 on rings, and one as in stock
// Kubernetes beside them. With -only=namespaces it measures how soon EndpointSlices follow the pods
// of Services, and what each process holds where one namespace has half of everything. Each number
// of controller managers has a cluster of its own, where nothing runs the pods. With -only=leader
// it measures what the process that leads holds of pods, and with -only=objects of much else.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/localcluster"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/proxy"
	"k8s.io/kubernetes/test/harness/report"
)

const (
	podsPerDeployment = 20
	// rounds is how often each number of controller managers creates all pods, by turns: the
	// median counts. A shared machine may be a fifth slower a minute later.
	rounds = 3
	// soon bounds the wait for any condition. It is ample even for a slow machine.
	soon = 10 * time.Minute
)

type benchmark struct {
	bin  string
	pods int
	// rated is for how long creations are counted that wait for the clients' default rate limit.
	rated time.Duration

	cluster  *localcluster.Cluster
	client   kubernetes.Interface
	managers []*manager
}

// manager is a controller manager, behind a proxy of its own.
type manager struct {
	name  string
	pid   int
	proxy *proxy.Proxy
}

func main() {
	b := &benchmark{}
	measures := map[string]func(context.Context) (string, int, error){"": b.measureAll, "namespaces": b.measureNamespaces, "leader": b.measureLeader, "objects": b.measureObjects}
	only := flag.String("only", "", "measure what depends on namespaces, what the leader holds of pods, or of other objects, instead of all else: namespaces, leader or objects")
	out := flag.String("out", "", "Markdown file for the results; standard output if empty")
	flag.StringVar(&b.bin, "bin", "../bin", "directory of the binaries")
	flag.IntVar(&b.pods, "pods", 20000, "number of pods")
	flag.DurationVar(&b.rated, "rated", 30*time.Second, "for how long creations are counted at the clients' default rate")
	flag.Parse()
	log.SetFlags(log.Ltime)
	measure, ok := measures[*only]
	if !ok {
		fmt.Fprintf(os.Stderr, "process: -only is %q, want namespaces, leader or objects, or nothing\n", *only)
		os.Exit(1)
	}
	harness.Main("process", func(ctx context.Context) error { return b.run(ctx, measure, *out) })
}

// sizes are the numbers of controller managers; 0 is stock's one.
var sizes = []int{0, 1, 2, 4, 8}

// run writes what measure reports to a file.
func (b *benchmark) run(ctx context.Context, measure func(context.Context) (page string, missed int, err error), out string) (err error) {
	if err := harness.Absolute(&b.bin); err != nil {
		return err
	}
	if b.pods < 10*podsPerDeployment || b.pods%podsPerDeployment != 0 {
		return fmt.Errorf("%d pods are not 10 or more Deployments of %d", b.pods, podsPerDeployment)
	}
	page, missed, err := measure(ctx)
	if err != nil {
		return err
	}
	if err := report.Write(out, page); err != nil {
		return err
	}
	if missed > 0 {
		return fmt.Errorf("%d bars missed", missed)
	}
	return nil
}

func (b *benchmark) measureAll(ctx context.Context) (page string, missed int, err error) {
	var results []*result
	for _, n := range sizes {
		r := &result{managers: n}
		results = append(results, r)
		if err := b.with(ctx, r, false, func(ctx context.Context) error { return b.measureRate(ctx, r) }); err != nil {
			return "", 0, err
		}
		log.Printf("%s: %.1f pods a second at the default rate", r.name(), r.rated)
	}
	for round := range rounds {
		for _, r := range results {
			measure := func(ctx context.Context) (err error) { r.filled, err = b.fill(ctx, evenly); return err }
			if round == rounds-1 {
				measure = func(ctx context.Context) (err error) {
					r.filled, err = b.fillAndHold(ctx, r.managers, evenly)
					return err
				}
			}
			if err := b.with(ctx, r, true, measure); err != nil {
				return "", 0, err
			}
			log.Printf("round %d of %d, %s: %.0f pods a second without a limit", round+1, rounds, r.name(), r.rate)
			r.rounds = append(r.rounds, r.filled)
		}
	}
	for _, r := range results {
		r.filled = median(r.rounds)
		// What they hold is measured once.
		r.processes = r.rounds[rounds-1].processes
		if r.managers > 4 {
			continue
		}
		if err := b.with(ctx, r, true, func(ctx context.Context) (err error) { r.ran, err = b.runJobs(ctx); return err }); err != nil {
			return "", 0, err
		}
		log.Printf("%s: %.1f Jobs a second", r.name(), r.ran.rate)
	}
	apart := &result{managers: 1, apart: true}
	if err := b.with(ctx, apart, true, func(ctx context.Context) (err error) { apart.filled, err = b.fillAndHold(ctx, 1, evenly); return err }); err != nil {
		return "", 0, err
	}
	page, missed = render(b.pods, results, apart)
	return page, missed, nil
}

// with calls measure with a cluster of the controller managers that r is about.
func (b *benchmark) with(ctx context.Context, r *result, unlimited bool, measure func(context.Context) error) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	config := localcluster.Config{
		BinDir: b.bin, WithoutNodes: true,
		Died: func(exit *localcluster.Exit) { cancel(exit) },
		// The default of the flags, which a local cluster raises.
		Args: map[localcluster.Component][]string{localcluster.KubeControllerManager: {"--kube-api-qps=20", "--kube-api-burst=30"}},
	}
	if r.managers == 0 {
		config.FeatureGates = map[string]bool{"ControllerRing": false}
	}
	if unlimited {
		config.Args[localcluster.KubeControllerManager] = []string{"--kube-api-qps=100000", "--kube-api-burst=100000"}
	}
	// No kubelet says that the Nodes are alive.
	config.Args[localcluster.KubeControllerManager] = append(config.Args[localcluster.KubeControllerManager], "--node-monitor-grace-period=24h")
	if b.cluster, err = localcluster.Start(ctx, config); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.cluster.Stop(context.WithoutCancel(ctx))) }()
	b.client = b.cluster.Client()
	if err := b.start(ctx, r.managers, r.apart); err != nil {
		return err
	}
	if err := measure(ctx); err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return nil
}
