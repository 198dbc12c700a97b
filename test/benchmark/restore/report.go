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
	"slices"
	"strings"
	"time"
)

// outcome is what one restore has shown.
type outcome struct {
	// right is when all was as the restored objects want it, after the first answer of the API
	// server, or after the managers went on; limit if it was not by then.
	right time.Duration
	// excess is how many pods there were at most beyond what a Deployment wants.
	excess int
}

// String returns it for people.
func (o outcome) String() string {
	return fmt.Sprintf("right after %s; at most %d pods in excess", seconds(o.right), o.excess)
}

func seconds(d time.Duration) string {
	if d >= limit {
		return fmt.Sprintf("not in %.0f s", limit.Seconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// report is a table of all cells.
func (b *bench) report(cells []*cell) string {
	var s strings.Builder
	fmt.Fprintf(&s, `# Restores of etcd under running controller managers

This is what `+"`make bench-restore`"+` writes. Three Deployments: one that the restore rolls back, one
that it brings back, one that it takes away; a fourth is created after it. Beside them the pods of
ReplicaSets are deleted all the time. Writes after each backup: %d; restores in each way: %d. There
are three controller managers, which are started again when they exit. They live on, are stopped
meanwhile, or are paused until revisions have passed those that they have seen. Where they are
*served*, the API server lives on as they do, which it should not. *Right* is when there are the pods
that all four want, and no others, for good: after the API server's first answer, or after the paused
managers went on.

| restore | managers | side | right, median | longest | pods in excess, most |
| --- | --- | --- | ---: | ---: | ---: |
`, b.writes, b.times)
	for _, c := range cells {
		var rights []time.Duration
		var excess int
		for _, r := range c.rounds {
			rights = append(rights, r.right)
			excess = max(excess, r.excess)
		}
		slices.Sort(rights)
		fmt.Fprintf(&s, "| %s | %s | %s | %s | %s | %d |\n", c.kind.text, c.mode, c.side.name,
			seconds(rights[len(rights)/2]), seconds(rights[len(rights)-1]), excess)
	}
	return s.String()
}
