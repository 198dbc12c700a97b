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
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// suite runs the tests of a package.
type suite struct {
	// dir is the folder of the tree.
	dir     string
	command func(ctx context.Context, dir string, args ...string) *exec.Cmd
}

// slow are the tests that take seconds. They run only if all others have passed.
const slow = "^Test(Exploration|Random)"

// result is what the tests said of one mutant.
type result struct {
	// caughtBy is the first test that failed; "": none.
	caughtBy string
	took     time.Duration
	// err says why the tests could not run, as when a mutant does not compile.
	err    error
	output string
}

func (r result) verdict() string {
	switch {
	case r.err != nil:
		return "ERROR: " + r.err.Error()
	case r.caughtBy == "":
		return "SURVIVED"
	default:
		return r.caughtBy
	}
}

// run runs the tests of a folder of the tree, with an overlay if it has a name.
func (s suite) run(ctx context.Context, folder, overlay string) result {
	var r result
	began := time.Now()
	for _, chosen := range []string{"-skip=" + slow, "-run=" + slow} {
		args := []string{chosen}
		if overlay != "" {
			args = append(args, "-overlay="+overlay)
		}
		cmd := s.command(ctx, s.dir, append(args, "./"+folder)...)
		cmd.Env = shortExploration(os.Environ())
		// The tests are children of go's: they must end with it.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		output, err := cmd.CombinedOutput()
		if err == nil {
			continue
		}
		r.output = string(output)
		if r.caughtBy = firstFailure(r.output); r.caughtBy == "" {
			r.err = fmt.Errorf("no test ran: %w", err)
		}
		break
	}
	r.took = time.Since(began)
	return r
}

// shortExploration drops what would make the exploration go further than usual.
func shortExploration(environ []string) []string {
	var out []string
	for _, e := range environ {
		if !strings.HasPrefix(e, "RING_EXPLORATION") && !strings.HasPrefix(e, "RING_SIMULATION") {
			out = append(out, e)
		}
	}
	return out
}

var (
	failed   = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+) `)
	timedOut = regexp.MustCompile(`(?m)^panic: test timed out after .*\n(?:\s*running tests:\n\s*(\S+) )?`)
)

// firstFailure returns the name of the first test that failed, with its first subtest
// that did; "" if no test failed.
func firstFailure(output string) string {
	first := ""
	for _, m := range failed.FindAllStringSubmatch(output, -1) {
		if first == "" || strings.HasPrefix(m[1], first+"/") {
			first = m[1]
		}
	}
	if m := timedOut.FindStringSubmatch(output); first == "" && m != nil {
		first = "time limit of " + m[1]
	}
	return first
}

func printTable(out io.Writer, tried []mutation, results []result) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "mutation\tcaught by\tseconds")
	for i, m := range tried {
		fmt.Fprintf(w, "%s\t%s\t%.1f\n", m.name, results[i].verdict(), results[i].took.Seconds())
	}
	w.Flush()
}

// judge fails unless every mutant was caught.
func judge(tried []mutation, results []result) error {
	var errs []error
	survivors := 0
	for i, m := range tried {
		switch r := results[i]; {
		case r.err != nil:
			errs = append(errs, fmt.Errorf("%s: %w\n%s", m.name, r.err, r.output))
		case r.caughtBy == "":
			survivors++
		}
	}
	if survivors > 0 {
		errs = append(errs, fmt.Errorf("%d of %d mutants survived: add the test that catches them", survivors, len(tried)))
	}
	return errors.Join(errs...)
}
