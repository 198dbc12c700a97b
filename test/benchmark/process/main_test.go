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
	"strings"
	"testing"
	"unicode/utf8"
)

// example returns results in which instances do so much of what stock does.
func example(rate float64, pods int) []*result {
	var all []*result
	for _, n := range sizes {
		r := &result{managers: n, rated: 20, filled: filled{rate: 100, podSize: 6000}}
		if n > 0 {
			r.rated, r.rate = 20*rate*float64(n), 100*rate
		}
		for range max(1, n) {
			u := usage{live: 100, peak: 100, pods: 100, replicaSets: 100, types: []held{{"Pod", 5 << 30}}}
			if n > 0 {
				u.live, u.pods, u.replicaSets = 20, pods/n, 2*pods/n
			}
			r.processes = append(r.processes, u)
		}
		all = append(all, r)
	}
	return all
}

// alone returns the result of a leader that is on no ring.
func alone(live, pods int) *result {
	leader := usage{live: uint64(live), types: []held{{"Pod", int64(pods) << 30}}, leads: true}
	return &result{managers: 1, apart: true, filled: filled{processes: []usage{leader, {}}}}
}

func TestBars(t *testing.T) {
	for name, tc := range map[string]struct {
		rate   float64
		pods   int
		leader *result
		missed int
	}{
		"kept":              {0.96, 100, alone(50, 1), 0},
		"slow":              {0.94, 100, alone(50, 1), 8},
		"not shared":        {1, 400, alone(50, 1), 2},
		"a leader with all": {1, 100, alone(100, 5), 2},
	} {
		if report, missed := render(20000, example(tc.rate, tc.pods), tc.leader); missed != tc.missed || strings.Count(report, ", missed") != missed {
			t.Errorf("%s: %d bars missed, want %d:\n%s", name, missed, tc.missed, report)
		}
	}
}

func TestTheLeaderHasBarsOfItsOwn(t *testing.T) {
	if report, missed := renderLeader(60000, example(1, 400), alone(60, 1)); missed != 1 || strings.Count(report, ", missed") != 1 {
		t.Errorf("%d bars missed, want that of the leader on no ring:\n%s", missed, report)
	}
}

func TestTheLeaderIsComparedByTypesOfObjects(t *testing.T) {
	stock := usage{live: 400, types: []held{{"Pod", 8e6}, {"Job", 2e6}, {"Node", 1e3}}}
	leader := usage{live: 100, types: []held{{"Lease", 4e6}, {"Pod", 2e6}, {"Node", 1e3}}}
	report := renderObjects(stock, leader)
	for _, want := range []string{"(0.25)", "| Lease | 4.0 MB | 0.0 MB | - |\n| Pod | 2.0 MB | 8.0 MB | 0.25 |\n| Job | 0.0 MB | 2.0 MB | 0.00 |\n"} {
		if !strings.Contains(report, want) {
			t.Errorf("the report lacks %q:\n%s", want, report)
		}
	}
}

func TestTheMedianRoundCounts(t *testing.T) {
	if m := median([]filled{{rate: 3}, {rate: 1}, {rate: 2, podSize: 7}}); m.rate != 2 || m.podSize != 7 {
		t.Errorf("the median round is %+v", m)
	}
}

// Lines other than those of tables have at most 110 columns.
func TestReportIsNarrow(t *testing.T) {
	report, _ := render(20000, example(1, 100), alone(50, 1))
	f := &filled{processes: example(1, 100)[0].processes}
	namespaces := renderNamespaces(20000, []*inNamespaces{{even: f, uneven: f}, {managers: 4, even: f, uneven: f}})
	results := example(1, 100)
	leader, _ := renderLeader(60000, results, alone(50, 1))
	objects := renderObjects(results[0].processes[0], results[1].processes[0])
	for line := range strings.Lines(report + namespaces + leader + objects) {
		if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > 110 && line[0] != '|' {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}
