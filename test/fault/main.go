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

// Command fault injects faults into a real cluster while ReplicaSets are scaled, Deployments scaled
// and rolled out, Jobs run and deleted, and DaemonSets rolled out on Nodes that come and go, at
// random. It checks what the controller managers did by comparing the API servers' audit logs with
// etcd's history:
//
//   - No instance has written an object that it did not own at that revision.
//   - No pod, ReplicaSet or Job was created in excess, no daemon pod was deleted needlessly, and no
//     Deployment had more pods than a rollout may have.
//   - No pod that a budget protects was deleted, no endpoint that is ready was removed, and no
//     claim that a pod uses nor volume that is bound was deleted.
//   - No pod of a Job lost its finalizer before the Job's status listed it, and each Job that has
//     finished counts its pods right.
//   - In the end every ReplicaSet and DaemonSet has the pods that it wants, every rollout is
//     complete, and every Job has finished.
//   - At rest, a fresh stock controller manager finds nothing to do, though objects were deleted
//     and made anew under their names, and EndpointSlices deleted.
//
// It prints a table, and keeps the evidence if it finds a violation:
//
//	*-audit.log       the writes of controllers, and their results, by API server
//	history.jsonl     each write of what is checked, by revision
//	violations.txt    the violations
//	cluster/logs/     the log of each process
//
// It needs Linux, where each controller manager can reach the API server from a
// loopback address of its own.
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
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/report"
)

type options struct {
	bin, dir, only         string
	duration, apart        time.Duration
	times                  int
	apiServers             int
	instances, replicaSets int
	deployments            int
	maxReplicas, batch     int
	stock, quiet, keep     bool
	presence               string
	seed                   uint64
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "../bin", "directory of the binaries")
	flag.StringVar(&o.dir, "dir", "../faults", "directory for the cluster and the evidence; its content is deleted")
	flag.StringVar(&o.only, "only", "", "faults to inject, separated by commas; all that need not be named if empty")
	flag.DurationVar(&o.duration, "duration", 0, "go on for at least this long, with all faults in each round")
	flag.DurationVar(&o.apart, "apart", 0, "let this much time pass before each fault")
	flag.IntVar(&o.times, "times", 1, "inject each fault at least this many times")
	flag.IntVar(&o.apiServers, "apiservers", 2, "number of API servers, at least 1; the controller managers take turns at them")
	flag.IntVar(&o.instances, "instances", 3, "number of controller managers")
	flag.IntVar(&o.replicaSets, "replicasets", 40, "number of ReplicaSets")
	flag.IntVar(&o.deployments, "deployments", 20, "number of Deployments; every second is rolled out, the others are scaled")
	flag.IntVar(&o.maxReplicas, "max-replicas", 20, "most pods that a ReplicaSet or Deployment wants under load; it begins with half of that")
	flag.IntVar(&o.batch, "batch", 30, "pods that each ReplicaSet wants when a fault happens during a batch of creations")
	flag.BoolVar(&o.stock, "stock", false, "turn the feature gate ControllerRing off: one leader, as in stock Kubernetes")
	flag.StringVar(&o.presence, "presence", "", "whether processes have presences, Enabled or Disabled; as by default if empty")
	flag.BoolVar(&o.quiet, "quiet", false, "scale only the ReplicaSets that a fault needs")
	flag.BoolVar(&o.keep, "keep", false, "keep the evidence even without violations")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "seed of all random choices")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	total, err := o.run(ctx)
	if err != nil {
		log.Print(err)
	}
	if total != nil {
		fmt.Println(total.closing())
	}
	if err != nil || len(total.violations) > 0 {
		stop()
		os.Exit(1)
	}
}

// chosen returns the faults to inject.
func (o *options) chosen() ([]fault, error) {
	var out []fault
	names := strings.Split(o.only, ",")
	for _, f := range faults {
		if i := slices.Index(names, f.name); i >= 0 {
			names = slices.Delete(names, i, i+1)
		} else if o.only != "" || f.named {
			continue
		}
		if f.stock || !o.stock {
			out = append(out, f)
		}
	}
	if o.only != "" && len(names) > 0 {
		return nil, fmt.Errorf("no such fault: %q", names)
	}
	return out, nil
}

// run returns the sum of all rounds, or nil if there was none.
func (o *options) run(ctx context.Context) (*result, error) {
	chosen, err := o.chosen()
	if err != nil {
		return nil, err
	}
	if o.apiServers < 1 {
		return nil, fmt.Errorf("%d API servers cannot serve a cluster: -apiservers must be at least 1", o.apiServers)
	}
	if err := harness.Absolute(&o.bin, &o.dir); err != nil {
		return nil, err
	}
	fmt.Printf("seed %d, %d controller managers, %d ReplicaSets, %d Deployments\n", o.seed, o.instances, o.replicaSets, o.deployments)
	begin := time.Now()
	r, err := start(ctx, *o)
	if err != nil {
		return nil, err
	}
	results := map[string]*result{}
	for n := 0; err == nil && (n < o.times || time.Since(begin) < o.duration); n++ {
		err = r.allFaults(ctx, chosen, results)
	}
	if err == nil {
		results[atRest] = &result{}
		err = r.compare(ctx, results[atRest])
	}
	r.end()
	total := o.report(results)
	if err == nil && len(total.violations) == 0 && !o.keep {
		return total, os.RemoveAll(o.dir)
	}
	fmt.Printf("the evidence is in %s\n", o.dir)
	return total, err
}

// allFaults injects each fault once, in random order.
func (r *run) allFaults(ctx context.Context, chosen []fault, results map[string]*result) error {
	r.rand.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	for _, f := range chosen {
		if err := harness.Sleep(ctx, r.apart); err != nil {
			return err
		}
		if results[f.name] == nil {
			results[f.name] = &result{}
		}
		if err := r.round(ctx, f, results[f.name]); err != nil {
			return err
		}
	}
	return nil
}

// result sums up all rounds of one fault.
type result struct {
	times, refused, judged, untold, lost, moved int
	// late is the longest that an address of a Service was ready and not published.
	late       time.Duration
	took       []time.Duration
	violations []violation
}

// closing returns the last line of a run.
func (r *result) closing() string {
	return fmt.Sprintf("%s faults, %s boundaries moved, %s writes judged, %s violations", report.Grouped(r.times), report.Grouped(r.moved), report.Grouped(r.judged), report.Grouped(len(r.violations)))
}

// round injects a fault once under load, and judges the writes of that time.
func (r *run) round(ctx context.Context, f fault, into *result) error {
	begin := time.Now()
	refused := r.refusedNow()
	into.times++
	took, err := r.underLoad(ctx, f)
	if err != nil {
		err = fmt.Errorf("%s: %w", f.name, err)
	}
	if settled := r.settle(ctx); settled != nil {
		err = errors.Join(err, fmt.Errorf("after %s: %w", f.name, settled))
	}
	if err == nil {
		err = r.disturb(ctx)
	}
	// The audit log lags slightly behind etcd.
	bounded, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_ = r.history.Await(bounded, "the audit log", func(c *checker) bool { return len(c.due) == 0 })
	into.took = append(into.took, took...)
	into.refused += r.refusedNow() - refused
	violations := r.judge(f, into)
	into.violations = append(into.violations, violations...)
	printRound(f.name, time.Since(begin), took, violations)
	return err
}

// underLoad injects a fault while ReplicaSets are scaled, and returns how long ranges
// had no worker.
func (r *run) underLoad(ctx context.Context, f fault) ([]time.Duration, error) {
	loading, unload := context.WithCancel(ctx)
	unloaded := make(chan struct{})
	defer func() {
		unload()
		<-unloaded
	}()
	go func() {
		defer close(unloaded)
		if !r.quiet {
			r.load(loading)
		}
	}()
	if err := r.replace(ctx); err != nil {
		return nil, err
	}
	return f.do(ctx, r)
}

// replace adds controller managers for those that have ended by themselves. A leader exits when it
// loses its Lease, or if the API server refuses what it needs to begin.
func (r *run) replace(ctx context.Context) error {
	for len(r.running()) < r.instances {
		if _, err := r.add(ctx, onRing); err != nil {
			return err
		}
	}
	return nil
}

// judge adds up what the checker has seen since the last call, and returns the
// violations.
func (r *run) judge(f fault, into *result) (violations []violation) {
	r.history.See(func(c *checker) {
		claims := c.conclude()
		into.untold += len(claims)
		if f.unanswered {
			c.violations = slices.DeleteFunc(c.violations, func(v violation) bool { return v.kind == needless })
		}
		if f.outage {
			c.violations = excuse(c.violations, claims)
		} else {
			for _, claim := range claims {
				c.violate(untold, "%s %s for %s at revision %d", claim.verb, claim.object, claim.home, claim.revision)
			}
		}
		violations = c.violations
		into.judged += c.work
		into.moved += c.moved
		for _, i := range c.lost {
			if p := r.named(r.processOf(i.Spec.HolderIdentity)); !c.left[i.Name] && (p == nil || !p.faulty) {
				into.lost++
				switch {
				case i.Status.PresenceEnded != nil && (p == nil || couldRenew(p.hindrances, i.Status.PresenceEnded.Time, i.at)):
					violations = append(violations, violation{kind: lostRecord, text: fmt.Sprintf("%s of %s was removed as that of a dead process, which lives", i.Name, i.Spec.HolderIdentity)})
				case !f.outage:
					violations = append(violations, violation{kind: lostRecord, text: fmt.Sprintf("%s of %s, which had not failed", i.Name, i.Spec.HolderIdentity)})
				}
			}
		}
		for _, late := range c.late {
			into.late = max(into.late, late)
		}
		c.violations, c.lost, c.late, c.work, c.moved = nil, nil, nil, 0, 0
		clear(c.recent)
	})
	for _, p := range r.running() {
		p.faulty, p.hindrances = false, nil
	}
	return violations
}

// printRound prints a line for the round, and the first of its violations.
func printRound(name string, after time.Duration, took []time.Duration, violations []violation) {
	fmt.Printf("%-18s %5.1fs %s\n", name, after.Seconds(), summary(took, violations))
	var texts []string
	for _, v := range violations {
		texts = append(texts, v.text)
	}
	for _, text := range report.Some(texts, 5) {
		fmt.Println("    " + text)
	}
}

func (r *run) refusedNow() int {
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.refused
}

// named returns the process of that name, or nil if there is none.
func (r *run) named(name string) *process {
	r.lock.Lock()
	defer r.lock.Unlock()
	for _, p := range r.processes {
		if p.name == name {
			return p
		}
	}
	return nil
}

func summary(took []time.Duration, violations []violation) string {
	text := "no violation"
	if len(violations) > 0 {
		text = fmt.Sprintf("%d VIOLATIONS", len(violations))
	}
	if len(took) > 0 {
		text += fmt.Sprintf(", worked on again after %v", slices.Max(took).Round(time.Millisecond))
	}
	return text
}

// report prints a row for each fault, writes the violations to a file, and returns the
// total.
func (o *options) report(results map[string]*result) *result {
	var found []string
	total := &result{}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "fault\ttimes\ttakeover p50\tp99\tmax\tendpoint missing, max\trefused by the fence\twrites judged\tnot in the audit log\trecords lost\tin excess\tby a non-owner\tother violations\t")
	rounded := func(d time.Duration) string { return d.Round(time.Millisecond).String() }
	row := func(name string, r *result) {
		p50, p99, longest := "-", "-", "-"
		if len(r.took) > 0 {
			median, late := report.Percentiles(r.took)
			p50, p99, longest = rounded(median), rounded(late), rounded(slices.Max(r.took))
		}
		kinds := map[string]int{}
		for _, v := range r.violations {
			kinds[v.kind]++
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%v\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", name, r.times, p50, p99, longest, r.late.Round(time.Millisecond), r.refused, r.judged, r.untold, r.lost,
			kinds[excess], kinds[nonOwner], len(r.violations)-kinds[excess]-kinds[nonOwner])
	}
	names := []string{}
	for _, f := range faults {
		names = append(names, f.name)
	}
	for _, name := range append(names, atRest) {
		r := results[name]
		if r == nil {
			continue
		}
		row(name, r)
		if name != atRest {
			total.times += r.times
		}
		total.late = max(total.late, r.late)
		total.refused += r.refused
		total.judged += r.judged
		total.moved += r.moved
		total.untold += r.untold
		total.lost += r.lost
		total.violations = append(total.violations, r.violations...)
		for _, v := range r.violations {
			found = append(found, name+": "+v.text)
		}
	}
	row("all", total)
	table.Flush()
	if len(found) > 0 {
		if err := os.WriteFile(filepath.Join(o.dir, "violations.txt"), []byte(strings.Join(found, "\n")+"\n"), 0o644); err != nil {
			log.Print(err)
		}
	}
	return total
}
