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

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/kubernetes/test/harness/report"
)

// result sums up all rounds of one fault.
type result struct {
	tally
	times int
	// settled is the longest that the operator took to settle after the fault.
	settled    time.Duration
	violations []violation
}

func (r *result) add(t tally) {
	r.writes += t.writes
	r.lost += t.lost
	r.refused += t.refused
	r.outdated += t.outdated
	r.moved += t.moved
}

// closing returns the last line of a run.
func (r *result) closing() string {
	return fmt.Sprintf("%s faults, %s writes judged, %s violations", report.Grouped(r.times), report.Grouped(r.writes), report.Grouped(len(r.violations)))
}

// printRound prints a line for a round, and the first of its violations.
func (r *run) printRound(name string, took, settled time.Duration, violations []violation, err error) {
	text := "no violation"
	if unsettled := (*errUnsettled)(nil); err != nil && !errors.As(err, &unsettled) {
		text = "NOT JUDGED TO ITS END"
	}
	if len(violations) > 0 {
		text = fmt.Sprintf("%d VIOLATIONS", len(violations))
	}
	fmt.Printf("%-18s %6.1fs, settled after %.1fs: %s\n", name, took.Seconds(), settled.Seconds(), text)
	var texts []string
	for _, v := range violations {
		texts = append(texts, fmt.Sprintf("%s: %s", v.rule, v.text))
	}
	for _, text := range report.Some(texts, 5) {
		fmt.Println("    " + text)
	}
}

// report prints a row for each fault and one for each rule, writes the violations to a file, and
// returns the total.
func (o *options) report(results map[string]*result) *result {
	total := &result{}
	counts := map[rule]int{}
	var found strings.Builder
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\nfault\ttimes\tsettled, max\tboundaries moved\twrites judged\tnot in the audit log\trefused by the fence\tof these for an epoch\tviolations\t")
	row := func(name string, r *result) {
		fmt.Fprintf(table, "%s\t%d\t%.1fs\t%d\t%d\t%d\t%d\t%d\t%d\t\n", name, r.times, r.settled.Seconds(), r.moved, r.writes, r.lost, r.refused, r.outdated, len(r.violations))
	}
	names := []string{"start"}
	for _, f := range faults {
		names = append(names, f.name)
	}
	for _, name := range names {
		r := results[name]
		if r == nil {
			continue
		}
		row(name, r)
		total.times += r.times
		total.settled = max(total.settled, r.settled)
		total.add(r.tally)
		total.violations = append(total.violations, r.violations...)
		for _, v := range r.violations {
			counts[v.rule]++
			likely := causeOf(v.rule)
			if v.rule == settled && r.writes == 0 {
				likely = "the operator has written nothing at all: it is not on its ring, or sees nothing to do; its log says why"
			}
			fmt.Fprintf(&found, "%s, during %s: %s\n    likely: %s\n", v.rule, name, v.text, likely)
		}
	}
	row("all", total)
	table.Flush()
	table = tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nrule\tviolations\tmeaning")
	for _, r := range rules {
		fmt.Fprintf(table, "%s\t%d\t%s\n", r.rule, counts[r.rule], r.meaning)
	}
	table.Flush()
	fmt.Println()
	if found.Len() > 0 {
		if err := os.WriteFile(filepath.Join(o.dir, "violations.txt"), []byte(found.String()), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	return total
}
