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
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestMain lets this binary also be the process of a case.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "--kubeconfig=") {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestBars checks the bars on live bytes and received bytes with fewer pods. Neither
// depends on how busy the machine is.
func TestBars(t *testing.T) {
	binDir := os.Getenv("RINGMASTER_BIN")
	if binDir == "" {
		binDir = filepath.Join("..", "..", "..", "..", "bin")
	}
	binDir, err := filepath.Abs(binDir)
	if err != nil {
		t.Fatal(err)
	}
	report := filepath.Join(t.TempDir(), "report.md")
	err = runAll(t.Context(), binDir, report, 4000, "^(initial sync|relist, 0 % changed|relist, 10 % changed|relist without.*|growth by 10 %|shrink by 50 %)$", true)
	if content, readErr := os.ReadFile(report); readErr == nil {
		t.Log(string(content))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestReportIsNarrow: lines other than those of tables and images have at most 100 columns.
func TestReportIsNarrow(t *testing.T) {
	report, _ := render(nil, 10000)
	for line := range strings.Lines(report) {
		line = strings.TrimSpace(line)
		if n := utf8.RuneCountInString(line); n > 100 && line[0] != '|' && line[0] != '!' {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}
