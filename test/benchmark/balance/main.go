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

// Command balance measures how the ring of workloads evens out its load: while controller managers
// join it, die and restart, while one object gets half of all pods, after everything was deleted,
// and while objects come and go. The same happens once with the balance of the controller managers
// enabled and once with it disabled, in a cluster of its own, where nothing runs the pods.
//
//	balance -bin=_output/bin -dir=_output/balance -out=docs/benchmarks/balance.md
//	    -plot=docs/benchmarks/balance.svg [-objects=20000] [-churn=30m] [-modes=Enabled,Disabled] [-controllers=...]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/kubernetes/pkg/localcluster"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/report"
)

const (
	enabled = "Enabled"
	// soon bounds the wait for any condition. It is ample even for a slow machine.
	soon = 10 * time.Minute
)

// settings are the same for all runs.
type settings struct {
	bin, dir string
	// objects is how many there are before one object gets half of all pods.
	objects int
	// churn is for how long objects come and go; 0: they do not.
	churn time.Duration
	// calm says that one object gets its pods only once the ring has been calm for so long that the
	// rate of moves counts.
	calm bool
	// controllers are those that the controller managers run, as in their flag --controllers.
	controllers string
}

func main() {
	s := &settings{}
	out := flag.String("out", "", "Markdown file for the results; standard output if empty")
	plotFile := flag.String("plot", "", "SVG file for the plot of the load over time; no plot if empty")
	modes := flag.String("modes", enabled+",Disabled", "modes of the balance to measure, of the file for --controller-ring-config")
	flag.StringVar(&s.bin, "bin", "../bin", "directory of the binaries")
	flag.StringVar(&s.dir, "dir", "../balance", "directory for the logs of all processes and of the records of the ring")
	flag.IntVar(&s.objects, "objects", 20000, "number of objects, half of them pods")
	flag.DurationVar(&s.churn, "churn", 30*time.Minute, "for how long objects come and go; 0: they do not")
	flag.BoolVar(&s.calm, "calm", false, "have one object get half of all pods only two minutes after the kills, when what moves in a minute is limited")
	flag.StringVar(&s.controllers, "controllers", "*", "the controllers that the controller managers run, as in their flag of that name")
	flag.Parse()
	log.SetFlags(log.Ltime)
	harness.Main("balance", func(ctx context.Context) error { return run(ctx, s, strings.Split(*modes, ","), *out, *plotFile) })
}

func run(ctx context.Context, s *settings, modes []string, out, plotFile string) error {
	// Less could not be shared by ten.
	if s.objects < 2000 || s.objects%2 != 0 {
		return fmt.Errorf("-objects is %d, want an even number from 2000 on", s.objects)
	}
	if err := harness.Absolute(&s.bin, &s.dir); err != nil {
		return err
	}
	var results []*result
	for _, mode := range modes {
		r := &result{mode: mode}
		results = append(results, r)
		if err := s.measure(ctx, r); err != nil {
			return err
		}
	}
	if plotFile != "" {
		if err := os.WriteFile(plotFile, []byte(plot(results)), 0o644); err != nil {
			return err
		}
	}
	page, missed := render(s, results, out, plotFile)
	if err := report.Write(out, page); err != nil {
		return err
	}
	if len(missed) > 0 {
		return fmt.Errorf("bars missed: %s", strings.Join(missed, "; "))
	}
	return nil
}

// measure runs the scenario in a cluster of its own.
func (s *settings) measure(ctx context.Context, r *result) (err error) {
	dir := filepath.Join(s.dir, strings.ToLower(r.mode))
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	config := dir + ".yaml"
	if err := os.WriteFile(config, fmt.Appendf(nil, "balance:\n  mode: %s\n", r.mode), 0o644); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	log.Printf("balance %s: starting etcd and kube-apiserver, with all logs in %s", r.mode, dir)
	b := &bench{settings: s, result: r, counters: map[string]map[string]int{}}
	b.cluster, err = localcluster.Start(ctx, localcluster.Config{
		BinDir: s.bin, Dir: dir, WithoutNodes: true,
		Args: map[localcluster.Component][]string{
			localcluster.KubeAPIServer: {"--disable-admission-plugins=ServiceAccount"},
			localcluster.KubeControllerManager: {
				"--controller-ring-config=" + config, "--controllers=" + s.controllers,
				// The clients' rate limits are not what is measured.
				"--kube-api-qps=2000", "--kube-api-burst=2000",
			},
		},
		Died: func(exit *localcluster.Exit) { cancel(exit) },
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.cluster.Stop(context.WithoutCancel(ctx))) }()
	b.client = b.cluster.Client()
	watchCtx, stopWatch := context.WithCancel(ctx)
	defer stopWatch()
	if b.records, err = follow(watchCtx, b.cluster, dir+".jsonl"); err != nil {
		return err
	}
	err = b.scenario(ctx)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err == nil {
		err = b.records.Failed()
	}
	r.events = b.records.all()
	for _, of := range b.counters {
		for result, n := range of {
			r.handovers[result] += n
		}
	}
	return err
}
