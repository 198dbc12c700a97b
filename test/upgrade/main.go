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

// Command upgrade upgrades, downgrades and mixes controller managers in a real cluster
// under load: stock Kubernetes, an older build of ours with fewer controllers on its ring,
// and ours. It judges every write by the API servers' audit logs and etcd's history:
//
//   - No pod was created in excess, or deleted needlessly.
//   - No object was written by two workers of one controller at once, or by a process that
//     was neither the leader that runs the controller nor the owner of the object's key.
//   - In the end everything that was asked for exists.
//
// It also measures the longest time that any key had no worker, beside that of a stock
// cluster whose leader is replaced. It prints a table, and keeps the evidence of a run that
// fails: the audit logs, the log of each process, and violations.txt.
//
// It needs Linux, where each controller manager can reach the API server from a loopback
// address of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/report"
)

type options struct {
	bin, stock, older, dir string
	only                   string
	times                  int
	quiet, defaultElection bool
	seed                   uint64
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "../bin", "directory of our binaries")
	flag.StringVar(&o.stock, "stock", "../stock/bin", "directory of upstream's kube-apiserver and kube-controller-manager")
	flag.StringVar(&o.older, "older", "../older", "directory of our older kube-controller-manager")
	flag.StringVar(&o.dir, "dir", "../upgrade", "directory for the clusters and the evidence; its content is deleted")
	flag.StringVar(&o.only, "only", "", "scenarios, separated by commas; all if empty")
	flag.IntVar(&o.times, "times", 1, "runs of each scenario; where one kills, in every second of them")
	flag.BoolVar(&o.quiet, "quiet", false, "no load but the probes")
	flag.BoolVar(&o.defaultElection, "default-election", false, "elect leaders with upstream's default durations (15 s, 10 s, 2 s)")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "seed of the random choices of the first run; the next has the next")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	passed, failed, err := o.runAll(ctx)
	if err != nil {
		log.Print(err)
	}
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if err != nil || failed > 0 {
		stop()
		os.Exit(1)
	}
}

// chosen returns the scenarios to run.
func (o *options) chosen() ([]scenario, error) {
	if o.only == "" {
		return scenarios, nil
	}
	var out []scenario
	for name := range strings.SplitSeq(o.only, ",") {
		i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no such scenario: %q", name)
		}
		out = append(out, scenarios[i])
	}
	return out, nil
}

// result sums up the runs of one row of the table.
type result struct {
	name                      string
	runs, failed, judged, own int
	// longest has the longest time without a worker of each run, by kind of workload.
	longest map[string][]time.Duration
	// back has how long each run took from the end of its victim until every key was
	// worked on.
	back  []time.Duration
	kinds map[string]int
}

// runAll runs all scenarios and prints the table.
func (o *options) runAll(ctx context.Context) (passed, failed int, err error) {
	chosen, err := o.chosen()
	if err != nil {
		return 0, 0, err
	}
	if err := harness.Absolute(&o.bin, &o.stock, &o.older, &o.dir); err != nil {
		return 0, 0, err
	}
	if err := errors.Join(os.RemoveAll(o.dir), os.MkdirAll(o.dir, 0o755)); err != nil {
		return 0, 0, err
	}
	election := "upstream's default durations"
	if !o.defaultElection {
		election = strings.Join(o.election(), " ")
	}
	fmt.Printf("%d scenarios, %d times each; election of leaders by %s\n", len(chosen), o.times, election)
	var rows []*result
	for _, s := range chosen {
		for n := range o.times {
			if ctx.Err() != nil {
				break
			}
			r := &run{
				options: o, scenario: s, killed: s.kills && n%2 == 1, rand: rand.New(rand.NewPCG(o.seed, 0)),
				dir: filepath.Join(o.dir, fmt.Sprintf("%s-%d", s.name, n+1)), ends: map[string]chan struct{}{},
			}
			fmt.Printf("%s %s %d/%d, seed %d\n", time.Now().Format("15:04:05"), r.row(), n+1, o.times, o.seed)
			o.seed++
			row := rowOf(&rows, r.row())
			if r.carryOut(ctx, row) {
				passed++
			} else {
				failed++
			}
		}
	}
	print(rows)
	return passed, failed, context.Cause(ctx)
}

// row returns the row of the table that the run counts in.
func (r *run) row() string {
	if r.killed {
		return r.scenario.name + ", kill -9"
	}
	return r.scenario.name
}

func rowOf(rows *[]*result, name string) *result {
	for _, row := range *rows {
		if row.name == name {
			return row
		}
	}
	row := &result{name: name, longest: map[string][]time.Duration{}, kinds: map[string]int{}}
	*rows = append(*rows, row)
	return row
}

// carryOut does one run from the start of its cluster to its judgment, and returns whether
// it passed.
func (r *run) carryOut(ctx context.Context, into *result) bool {
	begin := time.Now()
	into.runs++
	if err := r.all(ctx, into); err != nil {
		r.note(other, "%v", err)
	}
	r.end()
	into.own += r.restarts
	for _, v := range r.violations {
		into.kinds[v.kind]++
	}
	r.violations = slices.DeleteFunc(r.violations, func(v violation) bool { return v.kind == unfenced })
	if len(r.violations) == 0 {
		r.say("passed after %.0f s", time.Since(begin).Seconds())
		if err := os.RemoveAll(r.dir); err != nil {
			log.Print(err)
		}
		return true
	}
	into.failed++
	r.say("FAILED after %.0f s; the evidence is in %s", time.Since(begin).Seconds(), r.dir)
	var found []string
	for _, v := range r.violations {
		found = append(found, v.text)
	}
	for _, text := range report.Some(found, 10) {
		r.say("  %s", text)
	}
	if err := os.WriteFile(filepath.Join(r.dir, "violations.txt"), []byte(strings.Join(found, "\n")+"\n"), 0o644); err != nil {
		log.Print(err)
	}
	return false
}

// all starts the cluster, makes the change under load, and judges what has happened, even
// if the change failed.
func (r *run) all(ctx context.Context, into *result) error {
	if err := r.start(ctx); err != nil {
		return err
	}
	err := r.scenario.do(ctx, r)
	if r.load != nil {
		err = errors.Join(err, r.load.end())
	}
	if r.probes != nil {
		err = errors.Join(err, r.probes.end())
		for kind, d := range r.probes.longest() {
			into.longest[kind] = append(into.longest[kind], d)
		}
	}
	if r.back > 0 {
		into.back = append(into.back, r.back)
	}
	if err == nil {
		err = r.settle(ctx)
	}
	j, failed := r.judge(ctx)
	if failed != nil {
		return errors.Join(err, failed)
	}
	into.judged += j.judged
	r.lock.Lock()
	r.violations = append(r.violations, j.violations...)
	r.lock.Unlock()
	return err
}

// print prints the table.
func print(rows []*result) {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\t\t\t\t\tlongest without a worker, s\t\tback after, s\t\t\t\t\t\t\t")
	fmt.Fprintln(table, "scenario\truns\tfailed\twrites judged\tended by itself\tReplicaSets p50, max\tRCs p50, max\tp50, max\tin excess\ttwo workers\tby a non-worker\tneedless\tother\tunfenced\t")
	for _, r := range rows {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t\n", r.name, r.runs, r.failed, r.judged, r.own,
			spread(r.longest[aReplicaSet]), spread(r.longest[aReplicationController]), spread(r.back),
			r.kinds[excess], r.kinds[twoWorkers], r.kinds[nonWorker], r.kinds[needless], r.kinds[untold]+r.kinds[unfinished]+r.kinds[other], r.kinds[unfenced])
	}
	table.Flush()
}

// spread returns the median and the longest.
func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "-"
	}
	slices.Sort(all)
	return fmt.Sprintf("%.1f, %.1f", all[len(all)/2].Seconds(), all[len(all)-1].Seconds())
}
