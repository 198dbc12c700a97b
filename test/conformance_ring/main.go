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

// Command conformance_ring (ring-conformance) runs an operator on a ring of its own in a real local
// cluster, keeps a random load on it, injects faults, and judges what the operator writes: by the
// API server's audit log, which names the writers, and etcd's history, which has all changes in
// order. A file says how the operator is run, in whatever language it is written.
// docs/guides/conformance.md describes the file, the faults and the rules.
//
// It prints a table, and keeps the evidence if a rule was broken:
//
//	audit.log         all requests that change something, and their answers
//	history.jsonl     all changes in etcd, by revision
//	violations.txt    the violations
//	cluster/logs/     the log of each process
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/kubernetes/test/harness"
)

type options struct {
	config, bin, dir, only string
	replicas, faults       int
	seed                   uint64
	keep                   bool
}

func main() {
	var o options
	flag.StringVar(&o.config, "config", "", "file that says how the operator is run; docs/guides/conformance.md describes it")
	flag.StringVar(&o.bin, "bin", "../bin", "directory of the binaries of Kubernetes and etcd")
	flag.StringVar(&o.dir, "dir", "../conformance", "directory for the cluster and the evidence; its content is deleted")
	flag.IntVar(&o.replicas, "replicas", 3, "number of the operator's processes, 2 to 20")
	flag.IntVar(&o.faults, "faults", 100, "number of faults, in all")
	flag.StringVar(&o.only, "only", "", "faults to inject, separated by commas; all if empty")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "seed of all random choices")
	flag.BoolVar(&o.keep, "keep", false, "keep the evidence even without violations")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "ring-conformance: unexpected %q: all is said by flags, see -help\n", flag.Args())
		os.Exit(2)
	}
	total, err := o.run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "ring-conformance:", err)
	}
	if total != nil {
		closing := total.closing()
		if err != nil {
			closing = "INCOMPLETE: " + closing
		}
		fmt.Println(closing)
	}
	if err != nil || len(total.violations) > 0 {
		stop()
		os.Exit(1)
	}
}

// chosen returns the faults to inject.
func (o *options) chosen() ([]fault, error) {
	if o.only == "" {
		return slices.Clone(faults), nil
	}
	var out []fault
	for _, name := range strings.Split(o.only, ",") {
		i := slices.IndexFunc(faults, func(f fault) bool { return f.name == name })
		if i < 0 {
			var names []string
			for _, f := range faults {
				names = append(names, f.name)
			}
			return nil, fmt.Errorf("-only: there is no fault %q, but %s", name, strings.Join(names, ", "))
		}
		out = append(out, faults[i])
	}
	return out, nil
}

// run runs the suite, and returns what it has found: nil if it could not begin.
func (o *options) run(ctx context.Context) (*result, error) {
	if o.config == "" {
		return nil, errors.New("-config is missing: name a file as docs/guides/conformance.md describes it")
	}
	if o.replicas < 2 || o.replicas > 20 || o.faults < 1 {
		return nil, fmt.Errorf("-replicas is %d, want 2 to 20, and -faults is %d, want 1 or more", o.replicas, o.faults)
	}
	chosen, err := o.chosen()
	if err != nil {
		return nil, err
	}
	c, err := read(o.config)
	if err != nil {
		return nil, err
	}
	if err := harness.Absolute(&o.bin, &o.dir); err != nil {
		return nil, err
	}
	fmt.Printf("seed %d, %d replicas of %s, %d workloads\n", o.seed, o.replicas, c.Controller, c.Workload.Count)
	r, err := start(ctx, *o, c)
	if err != nil {
		return nil, fmt.Errorf("the operator could not be started: %w; the logs are in %s", err, filepath.Join(o.dir, "cluster", "logs"))
	}
	results := map[string]*result{"start": {}}
	err = r.firstWork(ctx, results["start"])
	for n := 0; err == nil && n < o.faults; n++ {
		if n%len(chosen) == 0 {
			r.rand.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
		}
		f := chosen[n%len(chosen)]
		if results[f.name] == nil {
			results[f.name] = &result{}
		}
		err = r.round(ctx, f, results[f.name])
	}
	r.end()
	total := o.report(results)
	if unsettled := (*errUnsettled)(nil); errors.As(err, &unsettled) {
		// That is a violation, which ends the run, as nothing after it could be told from it.
		err = nil
	}
	if err == nil && len(total.violations) == 0 && !o.keep {
		return total, os.RemoveAll(o.dir)
	}
	fmt.Printf("the evidence is in %s\n", o.dir)
	return total, err
}

// round injects a fault once under load, and judges what has happened since the last.
func (r *run) round(ctx context.Context, f fault, into *result) error {
	begin := time.Now()
	into.times++
	err := r.restore(ctx)
	if err == nil {
		err = r.underLoad(ctx, f)
	}
	took := time.Since(begin)
	if err == nil {
		err = r.settled(ctx)
	}
	after := time.Since(begin) - took
	into.settled = max(into.settled, after)
	if unsettled := (*errUnsettled)(nil); err != nil && !errors.As(err, &unsettled) {
		err = fmt.Errorf("%s: %w", f.name, err)
	}
	before := len(into.violations)
	if judged := r.judge(ctx, into); err == nil {
		err = judged
	}
	r.printRound(f.name, took, after, into.violations[before:], err)
	return err
}

// settled waits until all is as it should be. That it is not within the limit is a violation.
func (r *run) settled(ctx context.Context) error {
	err := r.settle(ctx)
	if unsettled := (*errUnsettled)(nil); errors.As(err, &unsettled) {
		r.history.See(func(c *checker) { c.violate(unsettled.rule(), "%v", unsettled) })
	}
	return err
}

// underLoad injects a fault while workloads change, and until the ring is complete again.
func (r *run) underLoad(ctx context.Context, f fault) error {
	loading, unload := context.WithCancel(ctx)
	unloaded := make(chan struct{})
	go func() {
		defer close(unloaded)
		r.load(loading)
	}()
	err := f.do(ctx, r)
	if err == nil {
		err = r.awaitRing(ctx)
	}
	unload()
	<-unloaded
	return err
}

// judge adds what was found since the last time.
func (r *run) judge(ctx context.Context, into *result) error {
	if err := r.catchUp(ctx); err != nil {
		return err
	}
	r.history.See(func(c *checker) {
		found, sum := c.conclude()
		into.violations = append(into.violations, found...)
		into.add(sum)
	})
	return nil
}
