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
	"fmt"
	"math"
	"slices"
	"strings"
)

// The indexes, as figures are named, and the name of upstream's way.
const (
	own        = "hashKey"
	controller = "controllerRef.hashKey"
	upstream   = "upstream"
)

// row is one line of the table: a figure of ours over one that it is compared with.
type row struct {
	measure   string
	benchmark string
	// ours and other are what follows in the benchmark's figures.
	ours, other string
	// unit divides the figures and names what is left.
	unit unit
	// bar is the highest ratio that is good.
	bar float64
}

type unit struct {
	name string
	per  float64
}

var (
	nanoseconds  = unit{"ns", 1}
	microseconds = unit{"µs", 1e3}
	milliseconds = unit{"ms", 1e6}
)

// rows are the comparisons, for the index by an object's own key and for the one by
// its controller's.
func rows() []row {
	var all []row
	add := func(r row, ours, other string) {
		for _, index := range []string{own, controller} {
			each := r
			each.measure += ", " + index
			each.ours, each.other = strings.ReplaceAll(ours, "INDEX", index), strings.ReplaceAll(other, "INDEX", index)
			all = append(all, each)
		}
	}
	add(row{measure: "match one object, ours : upstream", benchmark: "Match", unit: nanoseconds, bar: 1. / 20},
		"INDEX", upstream)
	add(row{measure: "list 1/16 of 100,000 pods, ours : upstream", benchmark: "List", unit: milliseconds, bar: 1. / 12},
		"INDEX", upstream)
	add(row{measure: "the same : a collection of only those", benchmark: "List", unit: milliseconds, bar: 2},
		"INDEX", "INDEX-devoted")
	add(row{measure: "list as many of 200,000 pods : of 100,000", benchmark: "List", unit: milliseconds, bar: 1.1},
		"INDEX-doubled", "INDEX")
	add(row{measure: "initial events of 1/16, ours : upstream", benchmark: "InitialEvents", unit: milliseconds, bar: 1. / 4},
		"INDEX", upstream)
	add(row{measure: "one update with 256 watchers, ours : upstream", benchmark: "Dispatch", unit: microseconds, bar: 1. / 12},
		"INDEX-256", upstream+"-256")
	add(row{measure: "one update with 256 watchers : with 1", benchmark: "Dispatch", unit: microseconds, bar: 1.5},
		"INDEX-256", "INDEX-1")
	write := row{benchmark: "Write", other: "without", unit: microseconds, bar: 1.1}
	write.measure, write.ours = "one add, update and delete, order by "+controller+" kept : none", "with-"+controller
	all = append(all, write)
	write.measure, write.ours = "the same, both orders kept : none", "with-both"
	return append(all, write)
}

func document(machine string, rounds int, measured figures, processes []process) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Benchmarks

Ranges of hash keys against upstream's selector on the hash of the UID, in the same run. Written by `+"`make bench`"+`
(all built anew %d times, and each time %d batches of each variant in turns; medians, of the ratios too; CPU time of the whole process
without garbage collection) on %s.

## The watch cache

| measure | ours | compared with | ratio | bar | |
| --- | --- | --- | --- | --- | --- |
`, times, rounds, machine)
	for _, r := range rows() {
		line(&b, r, measured[r.benchmark])
	}
	fmt.Fprintf(&b, `
| measure | | bar |
| --- | --- | --- |
| allocations to match one object | %.0f, upstream %.0f | 0 |
| memory for each object, order by controllerRef.hashKey kept | %.0f bytes | 96 |
| memory for each object, both orders kept | %.0f bytes | 96 |
| allocated for a list of 1/16 | %.1f MB, upstream %.1f MB, a collection of only those %.1f MB | |
| list the 10 dependents of one owner among 100,000 pods | %.1f µs, among 200,000 %.1f µs | |

An order is kept for a resource from the first list of a range of it on.
`,
		median(measured["Match"][own+"-allocs"])+median(measured["Match"][controller+"-allocs"]), median(measured["Match"][upstream+"-allocs"]),
		median(measured["Memory"]["with-"+controller+"-B/object"]), median(measured["Memory"]["with-both-B/object"]),
		median(measured["List"][own+"-B"])/1e6, median(measured["List"][upstream+"-B"])/1e6, median(measured["List"][own+"-devoted-B"])/1e6,
		median(measured["List"]["owner-cpu-ns"])/1e3, median(measured["List"]["owner-doubled-cpu-ns"])/1e3)
	fmt.Fprint(&b, `
## A real kube-apiserver

20,000 pods, 64 watchers on disjoint parts over HTTP in protobuf, 5,000 updates of pods. CPU seconds of the API server until the
last watcher has its last event.

| watchers select by | CPU seconds | beyond no watchers | events received |
| --- | --- | --- | --- |
`)
	alone := 0.
	for _, p := range processes {
		if p.kind == "no-watchers" {
			alone = p.seconds
		}
	}
	for _, p := range processes {
		fmt.Fprintf(&b, "| %s | %.2f | %.2f | %d |\n", strings.ReplaceAll(p.kind, "-", " "), p.seconds, p.seconds-alone, p.events)
	}
	return b.String()
}

// line writes a line of the table. Ratios below one are said as 1 : n.
func line(b *strings.Builder, r row, measured map[string][]float64) {
	ours, others := measured[r.ours+"-cpu-ns"], measured[r.other+"-cpu-ns"]
	figure := func(values []float64) string { return fmt.Sprintf("%.1f %s", median(values)/r.unit.per, r.unit.name) }
	// Those of the same time are compared.
	var ratios []float64
	for i := range min(len(ours), len(others)) {
		ratios = append(ratios, ours[i]/others[i])
	}
	verdict := "met"
	if !(median(ratios) <= r.bar) {
		verdict = "**missed**"
	}
	fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", r.measure, figure(ours), figure(others), ratioOf(median(ratios)), ratioOf(r.bar), verdict)
}

// median returns NaN if there are no values.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2]
}

func ratioOf(ratio float64) string {
	if ratio < 1./3 {
		return fmt.Sprintf("1 : %.1f", 1/ratio)
	}
	return fmt.Sprintf("%.2f", ratio)
}
