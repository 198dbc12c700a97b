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
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestEachMutationHasItsOwnName(t *testing.T) {
	names := map[string]bool{}
	for _, m := range mutations() {
		if names[m.name] {
			t.Errorf("two mutations are named %q", m.name)
		}
		names[m.name] = true
		if m.old == m.new {
			t.Errorf("%s changes nothing", m.name)
		}
	}
}

// The repository's copy of the package tells, without a tree, when the Machine has changed
// where a mutation breaks it.
func TestEachMutationFitsItsFile(t *testing.T) {
	for _, m := range mutations() {
		text, err := os.ReadFile(filepath.Join("..", "..", m.folder, m.file))
		if err == nil {
			_, err = m.mutate(string(text))
		}
		if err != nil {
			t.Error(err)
		}
	}
}

func TestAMutationReplacesTextThatOccursOnce(t *testing.T) {
	m := change{"no drain", "own.go", "case idle:", "case true:"}
	for text, want := range map[string]string{"switch {\ncase idle:\n}": "switch {\ncase true:\n}", "case busy:": "0 times", "case idle: case idle:": "2 times"} {
		got, err := m.mutate(text)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func TestAnOverlayLeavesTheFileAlone(t *testing.T) {
	pkg, temp := t.TempDir(), filepath.Join(t.TempDir(), "0")
	original := filepath.Join(pkg, "own.go")
	if err := os.WriteFile(original, []byte("if a {"), 0o644); err != nil {
		t.Fatal(err)
	}
	name, err := change{"m", "own.go", "if a", "if true"}.overlay(pkg, temp)
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		original: "if a {", filepath.Join(temp, "own.go"): "if true {", name: `{"Replace":{"` + original + `":"` + filepath.Join(temp, "own.go") + `"}}`,
	} {
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v; want %q", file, got, err, want)
		}
	}
}

func TestTheFirstFailureIsNamedWithItsSubtest(t *testing.T) {
	for output, want := range map[string]string{
		"ok  	k8s.io/client-go/tools/ring	0.1s\n":                                                       "",
		"x.go:1: undefined: y\nFAIL	ring [build failed]\n":                                              "",
		"--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/b_c (0.00s)\n        x_test.go:1: no\n":           "TestA/b_c",
		"--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/b (0.00s)\n    --- FAIL: TestA/c (0.00s)\n":       "TestA/b",
		"--- FAIL: TestA (0.00s)\n--- FAIL: TestAB (0.00s)\n":                                           "TestA",
		"--- FAIL: TestA (0.00s)\npanic: nil map [recovered]\n":                                         "TestA",
		"panic: test timed out after 5m0s\n	running tests:\n		TestA (5m0s)\n\ngoroutine 1 [running]:\n": "time limit of TestA",
	} {
		if got := firstFailure(output); got != want {
			t.Errorf("%q: %q, want %q", output, got, want)
		}
	}
}

func TestASuiteRunsItsSlowTestsLastAndShort(t *testing.T) {
	t.Setenv("RING_EXPLORATION", "long")
	t.Setenv("RING_EXPLORATION_TIME", "1h")
	for script, want := range map[string]struct {
		runs    int
		verdict string
	}{
		"test -z \"$RING_EXPLORATION$RING_EXPLORATION_TIME\"": {2, "SURVIVED"},
		"echo '--- FAIL: TestA (0.00s)'; exit 1":              {1, "TestA"},
		"echo 'does not compile'; exit 1":                     {1, "ERROR: no test ran: exit status 1"},
	} {
		var runs [][]string
		s := suite{dir: t.TempDir(), command: func(ctx context.Context, dir string, args ...string) *exec.Cmd {
			runs = append(runs, args)
			return exec.CommandContext(ctx, "sh", "-c", script)
		}}
		r := s.run(t.Context(), "folder", "overlay.json")
		if len(runs) != want.runs || !slices.Contains(runs[0], "-skip="+slow) || !slices.Contains(runs[0], "-overlay=overlay.json") || r.verdict() != want.verdict {
			t.Errorf("%s: runs %q, %s; want %d runs, %s", script, runs, r.verdict(), want.runs, want.verdict)
		}
	}
}

func TestSurvivorsAndErrorsFail(t *testing.T) {
	tried := in(ring, []change{{name: "a"}, {name: "b"}})
	for want, results := range map[string][]result{
		"":                        {{caughtBy: "TestA"}, {caughtBy: "TestB"}},
		"1 of 2 mutants survived": {{caughtBy: "TestA"}, {}},
		"b: does not compile":     {{caughtBy: "TestA"}, {err: errors.New("does not compile")}},
	} {
		err := judge(tried, results)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestMutationsAreChosenByName(t *testing.T) {
	if all, err := choose(""); err != nil || len(all) != len(mutations()) {
		t.Errorf("without a pattern %d mutations, %v; want all %d", len(all), err, len(mutations()))
	}
	if some, err := choose("^a leaver waits without end$"); err != nil || len(some) != 1 {
		t.Errorf("by a name: %d mutations, %v; want 1", len(some), err)
	}
	if _, err := choose("no such"); err == nil {
		t.Error("a pattern that matches nothing is no error")
	}
}
