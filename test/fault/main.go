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

// Command fault lets faults befall a real cluster, under a load that scales
// ReplicaSets up and down at random, and checks what the controller managers did by
// the API server's audit log against etcd's history: that no instance has written
// what it did not own at that revision, that no pod was created in excess, and that
// in the end every ReplicaSet has what it wants. It prints a table, and keeps the
// evidence when anything is wrong:
//
//	audit.log         what controllers wrote, and what came of it
//	history.jsonl     each ControllerInstance, ReplicaSet and pod, by revision
//	violations.txt    what was found
//	cluster/logs/     the log of each process
//
// It runs on Linux, where each controller manager can reach the API server from a
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
)

type options struct {
	bin, dir, only         string
	duration               time.Duration
	times                  int
	instances, replicaSets int
	maxReplicas, batch     int
	stock, quiet, keep     bool
	seed                   uint64
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "../bin", "directory of the binaries")
	flag.StringVar(&o.dir, "dir", "../faults", "directory for the cluster and the evidence; what is in it goes")
	flag.StringVar(&o.only, "only", "", "faults to let happen, separated by commas; all if empty")
	flag.DurationVar(&o.duration, "duration", 0, "go on so long, each time with all faults")
	flag.IntVar(&o.times, "times", 1, "let each fault happen so many times at least")
	flag.IntVar(&o.instances, "instances", 3, "controller managers")
	flag.IntVar(&o.replicaSets, "replicasets", 40, "ReplicaSets")
	flag.IntVar(&o.maxReplicas, "max-replicas", 20, "most pods that a ReplicaSet wants under load; they begin with half of that")
	flag.IntVar(&o.batch, "batch", 30, "pods that each ReplicaSet wants in faults that come in the middle of a batch of creations")
	flag.BoolVar(&o.stock, "stock", false, "the feature gate ControllerRing off: one leader, as in stock Kubernetes")
	flag.BoolVar(&o.quiet, "quiet", false, "scale nothing but what a fault needs")
	flag.BoolVar(&o.keep, "keep", false, "keep the evidence though nothing is wrong")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "seed of what is random")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := o.run(ctx)
	if err != nil {
		log.Print(err)
	}
	if !ok || err != nil {
		stop()
		os.Exit(1)
	}
}

// chosen returns the faults to let happen.
func (o *options) chosen() ([]fault, error) {
	var out []fault
	names := strings.Split(o.only, ",")
	for _, f := range faults {
		if i := slices.Index(names, f.name); i >= 0 {
			names = slices.Delete(names, i, i+1)
		} else if o.only != "" {
			continue
		}
		if f.stock || !o.stock {
			out = append(out, f)
		}
	}
	if o.only != "" && len(names) > 0 {
		return nil, fmt.Errorf("there is no fault %q", names)
	}
	return out, nil
}

func (o *options) run(ctx context.Context) (ok bool, err error) {
	chosen, err := o.chosen()
	if err != nil {
		return false, err
	}
	if o.bin, err = filepath.Abs(o.bin); err != nil {
		return false, err
	}
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return false, err
	}
	fmt.Printf("seed %d, %d controller managers, %d ReplicaSets\n", o.seed, o.instances, o.replicaSets)
	begin := time.Now()
	r, err := start(ctx, *o)
	if err != nil {
		return false, err
	}
	results := map[string]*result{}
	for n := 0; n < o.times || time.Since(begin) < o.duration; n++ {
		r.rand.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
		for _, f := range chosen {
			if results[f.name] == nil {
				results[f.name] = &result{}
			}
			if err = r.round(ctx, f, results[f.name]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	r.end()
	ok = o.report(results) && err == nil
	if ok && !o.keep {
		return true, errors.Join(err, os.RemoveAll(o.dir))
	}
	fmt.Printf("the evidence is in %s\n", o.dir)
	return ok, err
}

// result sums up all rounds of one fault.
type result struct {
	times, refused, judged, untold, lost int
	took                                 []time.Duration
	violations                           []violation
}

// round lets a fault happen once under load, and judges.
func (r *run) round(ctx context.Context, f fault, into *result) error {
	begin := time.Now()
	refused := r.refusedNow()
	into.times++
	loading, unload := context.WithCancel(ctx)
	defer unload()
	unloaded := make(chan struct{})
	go func() {
		defer close(unloaded)
		if !r.quiet {
			r.load(loading)
		}
	}()
	// A stock leader that has lost its lease ends.
	var took []time.Duration
	var err error
	for r.stock && err == nil && len(r.running()) < r.instances {
		_, err = r.add(ctx, onRing)
	}
	if err == nil {
		took, err = f.do(ctx, r)
	}
	unload()
	<-unloaded
	if err != nil {
		err = fmt.Errorf("%s: %w", f.name, err)
	}
	if settled := r.settle(ctx); settled != nil {
		err = errors.Join(err, fmt.Errorf("after %s: %w", f.name, settled))
	}
	// The audit log comes a moment later than etcd.
	bounded, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_ = r.history.await(bounded, "the audit log", func(c *checker) bool { return len(c.due) == 0 })
	into.took = append(into.took, took...)
	into.refused += r.refusedNow() - refused
	var violations []violation
	r.history.see(func(c *checker) {
		for _, claim := range c.conclude() {
			into.untold++
			if !f.outage {
				c.violate(untold, "%s %s for ReplicaSet %s at revision %d", claim.verb, claim.object, claim.set, claim.revision)
			}
		}
		violations = c.violations
		into.judged += c.work
		for _, i := range c.lost {
			if p := r.named(r.processOf(i.holder)); !c.left[i.name] && (p == nil || !p.faulty) {
				into.lost++
				if !f.outage {
					violations = append(violations, violation{lostRecord, fmt.Sprintf("%s of %s, which had not failed", i.name, i.holder)})
				}
			}
		}
		c.violations, c.lost, c.work = nil, nil, 0
		clear(c.recent)
	})
	for _, p := range r.running() {
		p.faulty = false
	}
	into.violations = append(into.violations, violations...)
	fmt.Printf("%-18s %5.1fs %s\n", f.name, time.Since(begin).Seconds(), summary(took, violations))
	for i, v := range violations {
		if i == 5 {
			fmt.Printf("    and %d more\n", len(violations)-i)
			break
		}
		fmt.Println("    " + v.text)
	}
	return err
}

func (r *run) refusedNow() int {
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.refused
}

// named returns the process of that name, or nil.
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

// report prints the table and says whether nothing was wrong.
func (o *options) report(results map[string]*result) bool {
	var found []string
	total := &result{}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "fault\ttimes\ttakeover p50\tmax\trefused by the fence\twrites judged\tnot in the audit log\trecords lost\tin excess\tby a non-owner\tother violations\t")
	row := func(name string, r *result) {
		p50, longest := "-", "-"
		if n := len(r.took); n > 0 {
			slices.Sort(r.took)
			p50, longest = r.took[n/2].Round(time.Millisecond).String(), r.took[n-1].Round(time.Millisecond).String()
		}
		kinds := map[string]int{}
		for _, v := range r.violations {
			kinds[v.kind]++
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", name, r.times, p50, longest, r.refused, r.judged, r.untold, r.lost,
			kinds[excess], kinds[nonOwner], len(r.violations)-kinds[excess]-kinds[nonOwner])
	}
	for _, f := range faults {
		r := results[f.name]
		if r == nil {
			continue
		}
		row(f.name, r)
		total.times += r.times
		total.refused += r.refused
		total.judged += r.judged
		total.untold += r.untold
		total.lost += r.lost
		total.violations = append(total.violations, r.violations...)
		for _, v := range r.violations {
			found = append(found, f.name+": "+v.text)
		}
	}
	row("all", total)
	table.Flush()
	if len(found) > 0 {
		if err := os.WriteFile(filepath.Join(o.dir, "violations.txt"), []byte(strings.Join(found, "\n")+"\n"), 0o644); err != nil {
			log.Print(err)
		}
	}
	return len(found) == 0
}
