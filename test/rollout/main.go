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

// Command rollout restarts and kills controller managers while Deployments roll out, on nodes of
// kwok. It reads each change of a pod from etcd, so it sees every moment: at none may a Deployment
// have more live pods than its surge allows, or fewer available ones than it may lack. It prints a
// table, with the same for the feature gate ControllerRing off: one leader, as in stock Kubernetes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/localcluster"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/history"
)

const (
	replicas, maxSurge, maxUnavailable = 10, 3, 2
	nodes                              = 10
	soon                               = 5 * time.Minute
)

type bench struct {
	bin                    string
	deployments, instances int
	times                  int

	stock    bool
	cluster  *localcluster.Cluster
	client   kubernetes.Interface
	history  *history.History[*census]
	managers []string
}

// row is a line of the table.
type row struct {
	managers, what string
	took           time.Duration
	extremes
}

func main() {
	b := &bench{}
	flag.StringVar(&b.bin, "bin", "../bin", "directory of the binaries")
	flag.IntVar(&b.deployments, "deployments", 100, "number of Deployments, of 10 pods each")
	flag.IntVar(&b.instances, "instances", 5, "number of controller managers on the ring")
	flag.IntVar(&b.times, "times", 1, "do everything this many times")
	flag.Parse()
	log.SetFlags(log.Ltime)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var rows []row
	var failed error
	for _, b.stock = range []bool{false, true} {
		more, err := b.run(ctx)
		rows = append(rows, more...)
		failed = errors.Join(failed, err)
	}
	broken := report(rows)
	if failed != nil || broken {
		if failed != nil {
			fmt.Fprintln(os.Stderr, "rollout:", failed)
		}
		stop()
		os.Exit(1)
	}
}

// report prints the rows, and says whether the ring has broken a limit.
func report(rows []row) (broken bool) {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "managers\tduring one rollout of all\ttook\tmost live pods (%d may be)\tfewest available (%d must be)\tmoments with more\tmoments with fewer\n", replicas+maxSurge, replicas-maxUnavailable)
	for _, r := range rows {
		fmt.Fprintf(table, "%s\t%s\t%v\t%d\t%d\t%d\t%d\n", r.managers, r.what, r.took.Round(100*time.Millisecond), r.most, r.fewest, r.more, r.fewer)
		broken = broken || r.managers != stockManagers && r.more+r.fewer > 0
	}
	table.Flush()
	return broken
}

const stockManagers = "a leader and one in reserve"

// run does everything with the ring, or as stock does.
func (b *bench) run(ctx context.Context) (rows []row, err error) {
	if err := harness.Absolute(&b.bin); err != nil {
		return nil, err
	}
	config := localcluster.Config{
		BinDir: b.bin, Nodes: nodes,
		Instances: 1, // the first one leads
		Args: map[localcluster.Component][]string{
			localcluster.KubeControllerManager: {"--kube-api-qps=500", "--kube-api-burst=500"},
			localcluster.KubeScheduler:         {"--kube-api-qps=500", "--kube-api-burst=500"},
		},
	}
	name, n := fmt.Sprintf("%d on a ring", b.instances), b.instances
	if b.stock {
		config.FeatureGates = map[string]bool{"ControllerRing": false}
		name, n = stockManagers, 2
	}
	if b.cluster, err = localcluster.Start(ctx, config); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.cluster.Stop(context.WithoutCancel(ctx))) }()
	b.managers = b.cluster.ControllerManagers()
	b.client = b.cluster.Client()
	for len(b.managers) < n {
		if err := b.join(ctx); err != nil {
			return nil, err
		}
	}
	endpoint, err := b.cluster.Endpoint(string(localcluster.Etcd))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if b.history, err = follow(ctx, endpoint); err != nil {
		return nil, err
	}
	if err := b.createDeployments(ctx); err != nil {
		return nil, err
	}
	for range b.times {
		for _, d := range disturbances {
			b.seen()
			began := time.Now()
			took, err := b.rollOut(ctx, d.do, d.again)
			if err != nil {
				return rows, fmt.Errorf("%s: %s: %w", name, d.name, err)
			}
			if err := b.history.Failed(); err != nil {
				return rows, err
			}
			rows = append(rows, row{name, d.name, took, b.seen()})
			log.Printf("%s, %s: rolled out after %v, all done after %v", name, d.name, took.Round(100*time.Millisecond), time.Since(began).Round(100*time.Millisecond))
		}
	}
	return rows, nil
}

// seen returns what was seen since the last call.
func (b *bench) seen() (seen extremes) {
	b.history.See(func(c *census) { seen = c.reset() })
	return seen
}
