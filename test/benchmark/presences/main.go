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

// Command presences measures what the presences of many instances cost one API server. It starts a
// real etcd and API server, and drives as many instances as it is told: each has a record that it
// renews, a watch of its ring, and a connection of its own for its presence, as a process has. It
// measures while they are at rest, without presences and with them, and while all connections of
// presences are cut at once and all reopen, again and again.
//
//	presences -bin=_output/bin [-instances=1000] [-rest=1m] [-cuts=5] [-out=docs/benchmarks/presences.md]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	shardingclient "k8s.io/client-go/kubernetes/typed/sharding/v1alpha1"
	"k8s.io/kubernetes/pkg/localcluster"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/report"
)

type bench struct {
	bin       string
	instances int
	rest      time.Duration
	cuts      int

	cluster   *localcluster.Cluster
	processes []*process
}

func main() {
	b := &bench{}
	flag.StringVar(&b.bin, "bin", "../bin", "directory of the binaries")
	flag.IntVar(&b.instances, "instances", 1000, "how many instances")
	flag.DurationVar(&b.rest, "rest", time.Minute, "for how long they are measured at rest, each time")
	flag.IntVar(&b.cuts, "cuts", 5, "how often all connections of presences are cut")
	out := flag.String("out", "", "Markdown file for the results; standard output if empty")
	flag.Parse()
	log.SetFlags(log.Ltime)
	harness.Main("presences", func(ctx context.Context) error { return b.run(ctx, *out) })
}

func (b *bench) run(ctx context.Context, out string) (err error) {
	b.cluster, err = localcluster.Start(ctx, localcluster.Config{BinDir: b.bin, WithoutNodes: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.cluster.Stop(context.WithoutCancel(ctx))) }()
	ctx, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	text, err := b.measure(ctx, lose)
	if err != nil {
		return err
	}
	return report.Write(out, text)
}

func (b *bench) measure(ctx context.Context, lose func(error)) (string, error) {
	var phases []phase
	take := func(name string, of func(context.Context) (string, error)) error {
		log.Printf("%s ...", name)
		p, err := b.phase(ctx, name, of)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		log.Printf("%s: %v", name, p)
		phases = append(phases, p)
		return nil
	}
	atRest := func(ctx context.Context) (string, error) { return "", harness.Sleep(ctx, b.rest) }
	if err := take("nothing", atRest); err != nil {
		return "", err
	}
	if err := b.register(ctx, lose); err != nil {
		return "", err
	}
	if err := take("records and watches", atRest); err != nil {
		return "", err
	}
	began := time.Now()
	for _, p := range b.processes {
		go p.bePresent(ctx)
	}
	if err := b.untilOpened(ctx, 1); err != nil {
		return "", err
	}
	log.Printf("all presences were open after %v", time.Since(began).Round(time.Millisecond))
	if err := take("and presences", atRest); err != nil {
		return "", err
	}
	for n := range b.cuts {
		if err := take(fmt.Sprintf("all cut, time %d", n+1), func(ctx context.Context) (string, error) { return b.cut(ctx, n+2) }); err != nil {
			return "", err
		}
	}
	if err := take("at rest again", atRest); err != nil {
		return "", err
	}
	return b.report(phases), nil
}

// register registers all instances, and then has each watch the ring.
func (b *bench) register(ctx context.Context, lose func(error)) error {
	log.Printf("registering %d instances ...", b.instances)
	for n := range b.instances {
		p, err := newProcess(b.cluster.RESTConfig(), n)
		if err != nil {
			return err
		}
		b.processes = append(b.processes, p)
	}
	if err := b.each(ctx, func(groupCtx context.Context, p *process) error {
		if err := p.register(groupCtx); err != nil {
			return err
		}
		go p.live(ctx, lose)
		return nil
	}); err != nil {
		return err
	}
	client, err := shardingclient.NewForConfig(b.cluster.RESTConfig())
	if err != nil {
		return err
	}
	// Who watches from an earlier time would be told of each that registered after it.
	list, err := client.ControllerInstances().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	return b.each(ctx, func(_ context.Context, p *process) error { return p.watch(ctx, list.ResourceVersion) })
}

// each calls f for each process, for several at a time.
func (b *bench) each(ctx context.Context, f func(context.Context, *process) error) error {
	return harness.Parallel(ctx, 10, len(b.processes), func(ctx context.Context, i int) error { return f(ctx, b.processes[i]) })
}

// cut cuts all connections of presences at once, and waits until each instance has opened another.
func (b *bench) cut(ctx context.Context, times int) (string, error) {
	began := time.Now()
	for _, p := range b.processes {
		p.dialer.CloseAll()
	}
	err := b.untilOpened(ctx, times)
	open := time.Since(began)
	if err != nil {
		return "", err
	}
	// What the ends bring about takes some seconds more.
	return "all open after " + report.Seconds(open), harness.Sleep(ctx, max(0, settleTime-open))
}

// settleTime is in which the API server is done with the ends of presences.
const settleTime = 20 * time.Second

// untilOpened waits until each instance has opened that many presences.
func (b *bench) untilOpened(ctx context.Context, times int) error {
	what := fmt.Sprintf("presence %d of each instance", times)
	for _, p := range b.processes {
		if err := p.opened.Await(ctx, what, func(opened *int) bool { return *opened >= times }); err != nil {
			return err
		}
	}
	return nil
}
