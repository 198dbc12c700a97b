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

func TestTable(t *testing.T) {
	measured := figures{}
	for line := range strings.Lines(`goos: linux
BenchmarkHashKeyMatch-2   9   50.0 hashKey-cpu-ns   500.0 controllerRef.hashKey-cpu-ns   1500 upstream-cpu-ns
BenchmarkHashKeyMatch-2   9   4.0 hashKey-cpu-ns   2.0 controllerRef.hashKey-cpu-ns   80 upstream-cpu-ns
BenchmarkHashKeyMatch-2   9   5.0 hashKey-cpu-ns   50.0 controllerRef.hashKey-cpu-ns   150 upstream-cpu-ns
some log line
BenchmarkHashKeyList-2    9   2000000 hashKey-cpu-ns   1500000 hashKey-doubled-cpu-ns   30000000 upstream-cpu-ns   1000000 hashKey-devoted-cpu-ns
PASS
`) {
		if _, err := measured.add(line); err != nil {
			t.Fatal(err)
		}
	}
	page := document("a machine", 9, measured, []process{{"no-watchers", 1, 0}, {"object.metadata.uid", 3.5, 5000}})
	for _, want := range []string{
		"| match one object, ours : upstream, hashKey | 5.0 ns | 150.0 ns | 1 : 30.0 | 1 : 5.0 | met |",
		"| match one object, ours : upstream, controllerRef.hashKey | 50.0 ns | 150.0 ns | 0.33 | 1 : 5.0 | **missed** |",
		"| list 1/16 of 100,000 pods, ours : upstream, hashKey | 2.0 ms | 30.0 ms | 1 : 15.0 | 1 : 12.0 | met |",
		"| list 1/16 of 100,000 pods : list a collection of just these, hashKey | 2.0 ms | 1.0 ms | 2.00 | 2.00 | met |",
		// A row without measurements has missed its bar.
		"| initial events of 1/16, ours : upstream, hashKey | NaN ms | NaN ms | NaN | 1 : 4.0 | **missed** |",
		"| object.metadata.uid | 3.50 | 2.50 | 5000 |",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no line %q:\n%s", want, page)
		}
	}
}

func TestFiguresAreNumbers(t *testing.T) {
	if _, err := (figures{}).add("BenchmarkHashKeyMatch-2 9 fast hashKey-cpu-ns"); err == nil {
		t.Error("no error")
	}
}

// TestReportIsNarrow: lines other than those of tables and images have at most 100 columns.
func TestReportIsNarrow(t *testing.T) {
	report := document("2 cores, Intel(R) Xeon(R) Processor, linux, go1.26.8", 7, nil, nil)
	for line := range strings.Lines(report) {
		line = strings.TrimSpace(line)
		if n := utf8.RuneCountInString(line); n > 100 && line[0] != '|' && line[0] != '!' {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}
