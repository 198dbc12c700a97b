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
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// example returns figures with the given ratios.
func example(heap, received float64) *figures {
	f := &figures{stock: memory{empty: 10e6, full: 110e6}, moved: 1e6}
	f.join = &recording{joined: time.Second}
	for i := range instances + 1 {
		f.ring = append(f.ring, memory{empty: 10e6, full: 10e6 + uint64(heap*100e6) - uint64(i)})
		f.join.ring = append(f.join.ring, &process{})
		f.join.live = append(f.join.live, []sample{{-time.Second, 20e6}, {time.Second, 10e6}})
		// Bytes received before the join do not count.
		f.join.received = append(f.join.received, []sample{{-time.Second, 0}, {0, 7e6}, {time.Second, 7e6 + received*1e6/(instances+1)}})
	}
	return f
}

func TestBars(t *testing.T) {
	for name, test := range map[string]struct {
		heap, received float64
		missed         string
	}{
		"kept":     {0.29, 1.29, ""},
		"heap":     {0.31, 1.29, "live heap of informers, largest of 4 instances : one stock process: 0.310, want at most 0.30"},
		"received": {0.29, 1.31, "received by all instances during a join : size of the moved range: 1.310, want at most 1.30"},
	} {
		t.Run(name, func(t *testing.T) {
			report, missed := example(test.heap, test.received).render("docs/benchmarks/join.md", "docs/benchmarks/join.svg")
			if got := strings.Join(missed, "; "); got != test.missed {
				t.Errorf("missed %q, want %q", got, test.missed)
			}
			if !strings.Contains(report, "](join.svg)") {
				t.Errorf("the plot is not beside the report:\n%s", report)
			}
		})
	}
}

func TestPlotIsXML(t *testing.T) {
	f := example(0.25, 1)
	lines := 0
	decoder := xml.NewDecoder(strings.NewReader(plot(f.join, f.moved)))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if element, ok := token.(xml.StartElement); ok && element.Name.Local == "polyline" {
			lines++
		}
	}
	if want := 2 * (instances + 1); lines != want {
		t.Errorf("%d lines, want %d", lines, want)
	}
}

// TestReportIsNarrow: lines other than those of tables and images have at most 100 columns.
func TestReportIsNarrow(t *testing.T) {
	report, _ := example(0.25, 1).render("docs/benchmarks/join.md", "docs/benchmarks/join.svg")
	for line := range strings.Lines(report) {
		line = strings.TrimSpace(line)
		if n := utf8.RuneCountInString(line); n > 100 && line[0] != '|' && line[0] != '!' {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}
