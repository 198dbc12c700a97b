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
	"runtime"
	"strings"
)

// bar is what a case has to keep.
type bar struct {
	name, measure string
	of            func(results map[string]result) float64
	most          float64
}

func peakToAfter(name string) func(map[string]result) float64 {
	return func(r map[string]result) float64 { return ratio(float64(r[name].Peak.Live), float64(r[name].After)) }
}

// bars are the bars of live bytes, and of bytes received.
var bars = []bar{
	{"relist, 0 % changed, upstream", "live peak : steady", peakToAfter("relist, 0 % changed, upstream"), 0},
	{"relist, 0 % changed", "live peak : steady", peakToAfter("relist, 0 % changed"), 1.05},
	{"relist, 10 % changed, upstream", "live peak : steady", peakToAfter("relist, 10 % changed, upstream"), 0},
	{"relist, 10 % changed", "live peak : steady", peakToAfter("relist, 10 % changed"), 1.15},
	{"relist without completeness, 100 % changed", "live peak : steady", peakToAfter("relist without completeness, 100 % changed"), 1.1},
	{"growth by 10 %", "live peak : new steady", peakToAfter("growth by 10 %"), 1.05},
	{"growth by 10 %", "bytes received : new part", func(r map[string]result) float64 {
		grown, all := r["growth by 10 %"], r["initial sync"]
		return ratio(float64(grown.Received), float64(grown.PodsAfter-grown.PodsBefore)*ratio(float64(all.Received), float64(all.PodsAfter)))
	}, 1.2},
	{"shrink by 50 %", "steady a pod : steady a pod before, without what the process holds itself", func(r map[string]result) float64 {
		s, itself := r["shrink by 50 %"], float64(r["initial sync"].Before)
		return ratio(ratio(float64(s.After)-itself, float64(s.PodsAfter)), ratio(float64(s.Before)-itself, float64(s.PodsBefore)))
	}, 1.05},
	{"a quarter by controller", "live : upstream's with all", func(r map[string]result) float64 {
		return ratio(float64(r["a quarter by controller"].After), float64(r["initial sync, upstream"].After))
	}, 0.30},
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// render writes the results as Markdown, and says which bars were missed.
func render(results []result, pods int) (report string, missed []string) {
	byName := map[string]result{}
	var b strings.Builder
	fmt.Fprintf(&b, `# What informers hold and fetch

Made by `+"`make bench-memory PODS=%d`"+` (%s, %s/%s, %d CPUs). Do not edit.

An API server and etcd run as processes; each case is a process of its own that has one informer of pods,
upstream's or one that follows a range, with the transform of kube-controller-manager, protobuf and
HTTP/1.1 (with HTTP/2 a client buffers up to 4 MB of what it has not read). A
relist is forced by cutting the watch and answering 410. Live bytes are what is reachable after a
collection. They are measured after each fiftieth of the stream, after each tenth of the objects that are
transformed, every 200 ms, and at the end, with nothing read meanwhile. Heap in use and the resident set are lower for that than they
would be otherwise.

| case | live before | live peak | live after | heap in use, peak | resident, peak | received | allocated | allocations | pods | seconds |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
`, pods, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	mb := func(bytes uint64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }
	for _, r := range results {
		byName[r.Name] = r
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %d | %d | %.1f |\n", r.Name, mb(r.Before), mb(r.Peak.Live), mb(r.After),
			mb(r.Peak.InUse), mb(r.PeakRSS), mb(uint64(r.Received)), mb(r.Allocated), r.Allocations, r.PodsAfter, r.Seconds)
	}
	b.WriteString("\n| case | ratio | measured | bar |\n| --- | --- | ---: | ---: |\n")
	for _, bar := range bars {
		measured := bar.of(byName)
		if measured == 0 {
			continue // its cases did not run
		}
		most := ""
		if bar.most > 0 {
			most = fmt.Sprintf("%.2f", bar.most)
			if measured > bar.most {
				most += ", missed"
				missed = append(missed, fmt.Sprintf("%s, %s: %.3f, want at most %.2f", bar.name, bar.measure, measured, bar.most))
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %.3f | %s |\n", bar.name, bar.measure, measured, most)
	}
	return b.String(), missed
}
