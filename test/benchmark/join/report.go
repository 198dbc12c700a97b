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
	"path/filepath"
	"runtime"
	"strings"
)

// figures are what was measured, in bytes.
type figures struct {
	pods, podsPerSet, podSize int
	stock                     memory
	// ring has the instances in order of their start, the one that joins last.
	ring []memory
	join *recording
	// moved is the size of the range that the newcomer received.
	moved float64
}

// memory is what processes in the same place hold: without pods, with them, and with one
// more instance on the ring.
type memory struct {
	empty, full, joined uint64
	pods, podsJoined    int
}

// informers returns what the informers hold.
func (m memory) informers() float64 { return float64(m.full) - float64(m.empty) }

func size(bytes float64) string {
	if bytes < 1e6 {
		return fmt.Sprintf("%.1f kB", bytes/1e3)
	}
	return fmt.Sprintf("%.1f MB", bytes/1e6)
}

// render writes the results as Markdown, and says which bars were missed. Plot is the
// file that shows the join, if any, and out the one that the Markdown is for.
func (f *figures) render(out, plot string) (report string, missed []string) {
	var b strings.Builder
	fmt.Fprintf(&b, `# What the instances of a ring hold and fetch

Made by `+"`make bench-join PODS=%d`"+` (pods of %.1f KiB in protobuf, %d a ReplicaSet; %s, %s/%s, %d CPUs). Do not edit.

etcd, an API server and controller managers run as processes; the controller managers run
`+"`--controllers=replicaset-controller`"+` alone. Stock is one of them with the feature gate `+"`ControllerRing`"+` off. Live is what is
reachable after a collection. What informers hold is what a fresh process has live with the pods in the cluster, less what
one started in the same place had before there were any. Instances of the ring start one after another, so the first has held
all pods. Received is counted in a TCP proxy before the API server, as it is on the wire, with all that a process receives: TLS,
discovery, leader election and the registry too.

| process | pods | live, no pods | live | of informers | pods, one more | live, one more | received as it joins |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| stock | %d | %s | %s | %s | | | |
`, f.pods, float64(f.podSize)/1024, f.podsPerSet, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(),
		f.stock.pods, size(float64(f.stock.empty)), size(float64(f.stock.full)), size(f.stock.informers()))
	var largest, received, atRest float64
	for i, m := range f.ring {
		var full, informers string
		if i < instances {
			full, informers = size(float64(m.full)), size(m.informers())
			largest = max(largest, m.informers())
		}
		fmt.Fprintf(&b, "| instance %d | %d | %s | %s | %s | %d | %s | %s |\n", i+1, m.pods, size(float64(m.empty)), full, informers,
			m.podsJoined, size(float64(m.joined)), size(f.join.during(i)))
		received += f.join.during(i)
		atRest += f.join.before(i)
	}
	fmt.Fprintf(&b, `
The join took %.1f s, from the start of the process until the ring was at rest. Received is counted until %.0f s later; at rest the
%d instances together receive %s a second, which is not taken off. The size of the moved range, %s, is what
upstream's informers receive through the same kind of proxy to fill themselves with its ReplicaSets and pods.

| ratio | measured | bar |
| --- | ---: | ---: |
`, f.join.joined.Seconds(), pause.Seconds(), instances, size(atRest/pause.Seconds()), size(f.moved))
	for _, bar := range []struct {
		name           string
		measured, most float64
	}{
		{fmt.Sprintf("live heap of the informers, largest of %d instances : stock with one", instances), largest / f.stock.informers(), 0.30},
		{"received while one more joins, all instances : size of the moved range", received / f.moved, 1.3},
	} {
		verdict := ""
		if bar.measured > bar.most {
			verdict = ", missed"
			missed = append(missed, fmt.Sprintf("%s: %.3f, want at most %.2f", bar.name, bar.measured, bar.most))
		}
		fmt.Fprintf(&b, "| %s | %.3f | %.2f%s |\n", bar.name, bar.measured, bar.most, verdict)
	}
	if plot != "" {
		if relative, err := filepath.Rel(filepath.Dir(out), plot); err == nil {
			plot = filepath.ToSlash(relative)
		}
		fmt.Fprintf(&b, "\n![Live heap of each instance, and bytes that it received, over the seconds around the join](%s)\n", plot)
	}
	return b.String(), missed
}
