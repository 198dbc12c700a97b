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

// The names of our indexes and of upstream's implementation in the figures.
const (
	own        = "hashKey"
	controller = "controllerRef.hashKey"
	home       = "home.hashKey"
	namespace  = "namespace.hashKey"
	upstream   = "upstream"
)

// row is one line of the table: the ratio of a figure of ours to another.
type row struct {
	measure   string
	benchmark string
	// ours and other are names of the benchmark's figures, without their units.
	ours, other string
	// unit is what the figures are shown in.
	unit unit
	// bar is the highest ratio that meets the requirement.
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

// rows returns the comparisons, each for several indexes.
func rows() []row {
	var all []row
	add := func(r row, ours, other string, indexes ...string) {
		for _, index := range indexes {
			each := r
			each.measure += ", " + index
			each.ours, each.other = strings.ReplaceAll(ours, "INDEX", index), strings.ReplaceAll(other, "INDEX", index)
			all = append(all, each)
		}
	}
	// Objects carry no keys: they are hashed from a UID, of 36 bytes, or from a namespace's name.
	add(row{measure: "match one object, ours : upstream", benchmark: "Match", unit: nanoseconds, bar: 1. / 5},
		"INDEX", upstream, own, controller, home, namespace)
	add(row{measure: "list 1/16 of 100,000 pods, ours : upstream", benchmark: "List", unit: milliseconds, bar: 1. / 12},
		"INDEX", upstream, own, controller, home, namespace)
	add(row{measure: "the same, with garbage collection", benchmark: "ListWithGC", unit: milliseconds, bar: 1. / 12},
		"INDEX", upstream, own, controller, home, namespace)
	add(row{measure: "list 1/16, with garbage collection : list a collection of just these, with it", benchmark: "ListWithGC", unit: milliseconds, bar: 1.3},
		"INDEX", "INDEX-devoted", own, controller)
	add(row{measure: "list 1/16 of 100,000 pods : list a collection of just these", benchmark: "List", unit: milliseconds, bar: 2},
		"INDEX", "INDEX-devoted", own, controller)
	add(row{measure: "list as many of 200,000 pods : of 100,000", benchmark: "List", unit: milliseconds, bar: 1.1},
		"INDEX-doubled", "INDEX", own, controller)
	inNamespace := row{benchmark: "Namespace", unit: microseconds, bar: 1.2}
	for _, width := range []struct{ name, suffix string }{{"1/16", ""}, {"half", "-half"}, {"all", "-whole"}} {
		inNamespace.measure = width.name + " of the keys in a namespace of 2,000 pods of 200,000 : that namespace"
		add(inNamespace, "INDEX"+width.suffix, "all", own, controller, home)
	}
	inNamespace.measure = "dependents of one owner in it, half of all pods without owner : none"
	add(inNamespace, "owner-beside-unowned", "owner", home)
	pages := row{benchmark: "Pages", unit: milliseconds, bar: 1.2}
	pages.measure = "pages of 500 of 100,000 pods, with a range of all keys : without"
	add(pages, "INDEX-whole", "all", own, controller, home, namespace)
	pages.measure = "pages of 500 of 1/16 of 100,000 pods, ours : upstream"
	add(pages, "INDEX", upstream, own, controller, home, namespace)
	add(row{measure: "initial events of 1/16, ours : upstream", benchmark: "InitialEvents", unit: milliseconds, bar: 1. / 4},
		"INDEX", upstream, own, controller)
	add(row{measure: "one update with 256 watchers, ours : upstream", benchmark: "Dispatch", unit: microseconds, bar: 1. / 12},
		"INDEX-256", upstream+"-256", own, controller)
	add(row{measure: "one update with 256 watchers : with 1", benchmark: "Dispatch", unit: microseconds, bar: 1.5},
		"INDEX-256", "INDEX-1", own, controller)
	write := row{benchmark: "Write", other: "without", unit: microseconds, bar: 1.1}
	for _, kept := range []struct{ orders, name string }{{"the order by " + controller, controller}, {"both orders", "both"}, {"four orders", "all"}} {
		write.measure, write.ours = "one add, update and delete, with "+kept.orders+" : with none", "with-"+kept.name
		all = append(all, write)
	}
	return all
}

// locked are the operations whose hold on the store's lock is measured, in BenchmarkHashKeyLocks.
var locked = []struct{ name, measure string }{
	{"first-list", "first list of a range"},
	{"second-path", "first list by another path"},
	{"behind-an-eighth", "list after 125,000 additions"},
	{"longest-merge", "as many additions, with the longest merge"},
	{"deletions", "250,000 deletions"},
	{"replace", "replace all objects"},
	{"nothing", "nothing, for comparison"},
}

func document(machine string, rounds int, measured figures, processes []process) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Benchmarks

Ranges of hash keys compared with upstream's selector on the hash of the UID, in the same run.
Generated by `+"`make bench`"+`. Do not edit.
Measured on %s.

## The watch cache

Everything is set up anew %d times, and each time %d batches of every variant run in turns. Times are
the CPU time of the whole process, without garbage collection where a row does not say otherwise.
Figures and ratios are medians.

| measure | ours | compared with | ratio | bar | |
| --- | --- | --- | --- | --- | --- |
`, machine, times, rounds)
	for _, r := range rows() {
		line(&b, r, measured[r.benchmark])
	}
	fmt.Fprintf(&b, `
| measure | | bar |
| --- | --- | --- |
| allocations to match one object | %.0f, upstream %.0f | 0 |
| memory per object, with the order by controllerRef.hashKey | %.0f bytes | 96 |
| memory per object, with both orders | %.0f bytes | 96 |
| memory per object, with four orders | %.0f bytes | 128 |
| allocated by a list of 1/16 | %.1f MB, upstream %.1f MB, a collection of just these %.1f MB | |
| list the 10 dependents of one owner among 100,000 pods | %.1f µs, among 200,000 %.1f µs | |

The cache keeps an order of a resource from the first list of a range on.
`,
		median(measured["Match"][own+"-allocs"])+median(measured["Match"][controller+"-allocs"]), median(measured["Match"][upstream+"-allocs"]),
		median(measured["Memory"]["with-"+controller+"-B/object"]), median(measured["Memory"]["with-both-B/object"]), median(measured["Memory"]["with-all-B/object"]),
		median(measured["List"][own+"-B"])/1e6, median(measured["List"][upstream+"-B"])/1e6, median(measured["List"][own+"-devoted-B"])/1e6,
		median(measured["List"]["owner-cpu-ns"])/1e3, median(measured["List"]["owner-doubled-cpu-ns"])/1e3)
	fmt.Fprint(&b, `
## The store's lock

With a million objects: the longest time for which an operation on ranges holds the lock of the
watch cache's store (bar: 2 ms), and how long a goroutine waits that reads one object after the
other meanwhile. The machine's scheduler and the garbage collector are in these; the last row says
how much.

| operation | lock held | 99.9 % of reads within | longest read | |
| --- | --- | --- | --- | --- |
`)
	for _, l := range locked {
		figure := func(name string) float64 { return median(measured["Locks"][l.name+name]) / 1e3 }
		verdict := "met"
		if !(figure("-held-us") <= 2) {
			verdict = "**missed**"
		}
		fmt.Fprintf(&b, "| %s | %.3f ms | %.3f ms | %.1f ms | %s |\n", l.measure, figure("-held-us"), figure("-read-p999-us"), figure("-read-max-us"), verdict)
	}
	fmt.Fprint(&b, `
## A real kube-apiserver

With 20,000 pods, 64 watchers follow disjoint parts over HTTP in protobuf while pods are updated
5,000 times. CPU seconds are those of the API server until the last watcher has its last event.

| watchers select by | CPU seconds | more than without watchers | events received |
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

// line writes a line of the table. Ratios below a third are written as 1 : n.
func line(b *strings.Builder, r row, measured map[string][]float64) {
	ours, others := measured[r.ours+"-cpu-ns"], measured[r.other+"-cpu-ns"]
	figure := func(values []float64) string { return fmt.Sprintf("%.1f %s", median(values)/r.unit.per, r.unit.name) }
	// Compare figures of the same setup.
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
