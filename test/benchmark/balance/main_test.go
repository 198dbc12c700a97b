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
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/utils/ptr"
)

// tenth is a tenth of all keys.
const tenth = math.MaxInt64 / 10

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }

// has returns that an instance has the keys up to so many tenths, and a weight.
func has(seconds int, uid string, tenths int64, weight int64) event {
	return event{At: at(seconds), Name: uid, UID: uid, Key: ptr.To(tenths * tenth), Phase: shardingv1alpha1.InstanceActive, Weight: weight}
}

// ring is one of two with as much each, of which b joined at 1 s.
func ring(more ...event) []event {
	return append([]event{has(0, "a", 5, 200), has(1, "b", 10, 100), has(2, "a", 5, 100)}, more...)
}

func whole() phase {
	return phase{name: "all", begin: at(0), done: at(1), end: at(1000), rolling: true, within: true}
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

func TestKeysMoveByWhatMovesThem(t *testing.T) {
	f := replay(ring(has(10, "b", 9, 100), event{At: at(20), Deleted: true, Name: "a", UID: "a"})).of(whole())
	if !near(f.moved[byJoin], 0.5) || !near(f.moved[byBalance], 0.1) || !near(f.moved[byDeath], 0.6) || f.moved[byLeave] != 0 || f.moves != 1 {
		t.Errorf("moved %v by %d moves", f.moved, f.moves)
	}
	leaving := has(15, "a", 5, 100)
	leaving.Phase = shardingv1alpha1.InstanceLeaving
	if f := replay(ring(leaving, event{At: at(20), Deleted: true, Name: "a", UID: "a"})).of(whole()); !near(f.moved[byLeave], 0.5) || f.moved[byDeath] != 0 {
		t.Errorf("a leave has moved %v", f.moved)
	}
}

func TestEvenForGood(t *testing.T) {
	if f := replay(ring()).of(whole()); f.never || !f.even.Equal(at(2)) {
		t.Errorf("even at %v, never %t, want at 2 s", f.even, f.never)
	}
	if f := replay(ring(has(5, "a", 5, 200), has(9, "a", 5, 110))).of(whole()); f.never || !f.even.Equal(at(9)) || f.most < 1.3 {
		t.Errorf("even at %v, never %t, most %.2f", f.even, f.never, f.most)
	}
	if f := replay(ring(has(5, "a", 5, 200))).of(whole()); !f.never {
		t.Errorf("even at %v, want never", f.even)
	}
}

func TestAHeavyKeyCountsAsTheMean(t *testing.T) {
	heavy := has(5, "a", 5, 1000)
	heavy.Heaviest = 950 // of a mean of 550
	if f := replay(ring(heavy)).of(whole()); f.never || !near(f.last.counted, 600.0/550) || !near(f.last.ratio, 1000.0/550) {
		t.Errorf("ratio %.3f, beside heavy keys %.3f, never %t", f.last.ratio, f.last.counted, f.never)
	}
}

func TestMovesThatGoBack(t *testing.T) {
	there, half, most := has(10, "b", 8, 100), has(20, "b", 9, 100), has(20, "b", 9, 100)
	*most.Key += tenth / 2
	asked := has(8, "b", 10, 100)
	asked.Next = there.Key
	for name, tc := range map[string]struct {
		events []event
		back   int
	}{
		"none":                   {ring(there), 0},
		"half":                   {ring(there, half), 0},
		"more than half":         {ring(there, most), 1},
		"further":                {ring(there, has(20, "b", 7, 100)), 0},
		"another boundary":       {ring(there, has(20, "a", 6, 100)), 0},
		"after a join":           {ring(there, has(15, "c", 2, 0), most), 0},
		"asked before a join":    {ring(asked, has(9, "c", 2, 0), there, most), 0},
		"the seam, up and down":  {ring(has(10, "b", 1, 100), has(20, "b", 10, 100)), 1},
		"a second one, far away": {ring(there, has(12, "b", 6, 100), has(20, "b", 7, 100)), 0},
	} {
		if f := replay(tc.events).of(whole()); f.back != tc.back {
			t.Errorf("%s: %d moves go back, want %d", name, f.back, tc.back)
		}
	}
}

func TestWhatMovedBeforeTheLoadHadChangedMayGoBack(t *testing.T) {
	asked, back := has(8, "b", 10, 100), has(20, "b", 9, 100)
	asked.Next = ptr.To(int64(8 * tenth))
	*back.Key += tenth / 2
	h := replay(ring(asked, has(10, "b", 8, 100), back))
	// The phase begins, or the load has changed, at that second.
	for second, want := range map[int]int{7: 1, 9: 0, 11: 0} {
		p := whole()
		p.done = at(second)
		if f := h.of(p); f.back != want {
			t.Errorf("done after %d s: %d moves go back, want %d", second, f.back, want)
		}
		p.within, p.begin = false, at(second)
		if f := h.of(p); f.back != want {
			t.Errorf("begun after %d s: %d moves go back, want %d", second, f.back, want)
		}
	}
}

func TestMostInAMinute(t *testing.T) {
	asked := has(100, "b", 10, 100)
	asked.Next = ptr.To(int64(9 * tenth))
	for name, tc := range map[string]struct {
		events []event
		most   float64
	}{
		"soon after a join":              {ring(has(100, "b", 9, 100)), 0},
		"asked for soon after a join":    {ring(asked, has(125, "b", 9, 100)), 0},
		"in one minute":                  {ring(has(200, "b", 9, 100), has(259, "b", 7, 100)), 0.3},
		"in two minutes":                 {ring(has(200, "b", 9, 100), has(260, "b", 7, 100)), 0.2},
		"soon after one that has joined": {ring(has(150, "c", 2, 0), has(200, "b", 9, 100)), 0},
	} {
		if f := replay(tc.events).of(whole()); !near(f.minute, tc.most) {
			t.Errorf("%s: %.2f, want %.2f", name, f.minute, tc.most)
		}
	}
}

func TestHops(t *testing.T) {
	h := replay(ring(has(10, "a", 6, 100), has(20, "a", 5, 100)))
	p := whole()
	p.begin = at(5)
	got := hopsOf(h.hops(p, 1000))
	if !near(math.Round(1000*got.mean)/1000, 0.2) || got.most != 2 || got.above != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestHandoversOfTheWorkloadsAreCounted(t *testing.T) {
	got := handoversIn(`# TYPE controller_ring_handovers_total counter
controller_ring_handovers_total{kind="join",result="warm",ring="workloads"} 1
controller_ring_handovers_total{kind="move",result="cold",ring="claims"} 2
controller_ring_handovers_total{kind="move",result="warm",ring="workloads"} 3
`)
	if len(got) != 1 || got["warm"] != 3 {
		t.Errorf("got %v", got)
	}
}

// example returns results with and without balance.
func example(events []event, handovers tally) (*settings, []*result) {
	return &settings{objects: 20000, controllers: "*"}, []*result{
		{mode: enabled, phases: []phase{whole()}, events: events, handovers: handovers},
		{mode: "Disabled", phases: []phase{whole()}, events: ring(has(5, "a", 5, 400)), handovers: tally{}},
	}
}

func TestBars(t *testing.T) {
	for name, tc := range map[string]struct {
		events    []event
		handovers tally
		missed    []string
	}{
		"kept":       {ring(), tally{"warm": 7}, nil},
		"cold":       {ring(), tally{"cold": 1, "called_off": 2}, []string{"cold: 1.00", "called off: 2.00"}},
		"never even": {ring(has(5, "a", 5, 400)), tally{}, []string{"all: never", "ratio after"}},
		"late":       {ring(has(5, "a", 5, 400), has(70, "a", 5, 100)), tally{}, []string{"all: 69.00, want at most 60"}},
		"much":       {ring(has(200, "b", 9, 100)), tally{}, []string{"in a minute, on a calm ring: 10.00"}},
	} {
		s, results := example(tc.events, tc.handovers)
		report, missed := render(s, results, "docs/benchmarks/balance.md", "docs/benchmarks/balance.svg")
		if len(missed) != len(tc.missed) || strings.Count(report, ", missed") != len(missed) || !strings.Contains(report, "](balance.svg)") {
			t.Errorf("%s: missed %q, want %q:\n%s", name, missed, tc.missed, report)
			continue
		}
		for i, want := range tc.missed {
			if !strings.Contains(missed[i], want) {
				t.Errorf("%s: missed %q, want %q", name, missed[i], want)
			}
		}
	}
}

// Lines other than those of tables have at most 110 columns.
func TestReportIsNarrow(t *testing.T) {
	s, results := example(ring(), tally{})
	report, _ := render(s, results, "docs/benchmarks/balance.md", "docs/benchmarks/balance.svg")
	for line := range strings.Lines(report) {
		if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > 110 && line[0] != '|' {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestPlotIsXML(t *testing.T) {
	_, results := example(ring(has(5, "a", 5, 400)), tally{})
	image := plot(results)
	if strings.Contains(image, "NaN") || strings.Contains(image, "Inf") || strings.Count(image, "<polyline") != 2 {
		t.Errorf("the plot lacks lines, or has points that are none:\n%s", image)
	}
	decoder := xml.NewDecoder(strings.NewReader(image))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
