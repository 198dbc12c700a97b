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

// Command failures judges the results of tests that others wrote and that run unchanged. It
// compares those that failed with a list of those that are expected to.
//
//	go run ./hack/failures LIST RESULTS [STOCK]
//
// RESULTS is a folder with JUnit files. STOCK is one with the results of the same tests
// against stock binaries: what fails there, too, needs no line in the list. A line of the
// list is the JUnit class of a test, its name, and after a # the reason why it fails. The name
// TestX/* stands for any subtest of TestX.
//
// It fails if a test failed that is not listed, and names those that are listed and passed.
package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 3 && len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: go run ./hack/failures LIST RESULTS [STOCK]")
		os.Exit(2)
	}
	if err := run(os.Stdout, os.Args[1], os.Args[2], os.Args[3:]...); err != nil {
		fmt.Fprintln(os.Stderr, "failures:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, list, results string, stock ...string) error {
	reasons, err := readList(list)
	if err != nil {
		return err
	}
	ours, err := readResults(results)
	if err != nil {
		return err
	}
	theirs := map[string]outcome{}
	for _, dir := range stock {
		if theirs, err = readResults(dir); err != nil {
			return err
		}
	}
	return judge(out, reasons, ours, theirs)
}

// outcome is the outcome of a test that ran.
type outcome bool

const (
	failed outcome = false
	passed outcome = true
)

// judge prints what is to be known about the tests. It returns an error if one failed
// unexpectedly.
func judge(out io.Writer, reasons map[string]string, ours, theirs map[string]outcome) error {
	unexpected, failures := 0, 0
	for _, test := range slices.Sorted(maps.Keys(ours)) {
		reason, listed := reasonOf(reasons, test)
		stock, known := theirs[test]
		switch {
		case ours[test] == passed && reasons[test] != "":
			fmt.Fprintf(out, "passed, though listed: %s\n", test)
		case ours[test] == passed:
		case listed:
			failures++
			fmt.Fprintf(out, "failed as listed: %s # %s\n", test, reason)
		case known && stock == failed:
			failures++
			fmt.Fprintf(out, "failed with stock, too: %s\n", test)
		default:
			failures++
			unexpected++
			fmt.Fprintf(out, "FAILED, NOT LISTED: %s\n", test)
		}
	}
	for _, test := range slices.Sorted(maps.Keys(theirs)) {
		if _, ran := ours[test]; !ran {
			unexpected++
			fmt.Fprintf(out, "RAN WITH STOCK ONLY: %s\n", test)
		} else if theirs[test] == failed && ours[test] == passed {
			fmt.Fprintf(out, "failed with stock only: %s\n", test)
		}
	}
	fmt.Fprintf(out, "%d tests, %d failed, %d unexpected\n", len(ours), failures, unexpected)
	if unexpected > 0 {
		return errors.New("see above; what cannot pass needs a line with the reason in the list")
	}
	return nil
}

// reasonOf returns the reason why a test is listed, itself or as one of all subtests of another.
func reasonOf(reasons map[string]string, test string) (reason string, listed bool) {
	if reason, listed = reasons[test]; listed {
		return reason, true
	}
	for i := range test {
		if test[i] == '/' {
			if reason, listed = reasons[test[:i]+"/*"]; listed {
				return reason, true
			}
		}
	}
	return "", false
}

// readList returns the reasons of the listed tests.
func readList(file string) (map[string]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	reasons := map[string]string{}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		test, reason, found := strings.Cut(line, " # ")
		if !found {
			return nil, fmt.Errorf("%s: no reason after a # in %q", file, line)
		}
		reasons[test] = reason
	}
	return reasons, nil
}

// junit is what counts in a JUnit file.
type junit struct {
	Cases  []testCase `xml:"testcase"`
	Suites []junit    `xml:"testsuite"`
}

type testCase struct {
	Class   string    `xml:"classname,attr"`
	Name    string    `xml:"name,attr"`
	Failure *struct{} `xml:"failure"`
	Error   *struct{} `xml:"error"`
	Skipped *struct{} `xml:"skipped"`
}

// readResults returns the outcome of each test in the JUnit files of a folder. A Go test is
// left out if one of its subtests failed, because it fails with that. A test that passed on
// one of several attempts has passed.
func readResults(dir string) (map[string]outcome, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.xml"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no results: %w", dir, fs.ErrNotExist)
	}
	outcomes := map[string]outcome{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var root junit
		if err := xml.Unmarshal(bytes.Map(printable, data), &root); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		root.collect(outcomes)
	}
	for _, test := range slices.Sorted(maps.Keys(outcomes)) {
		if outcomes[test] == failed {
			for i := range test {
				if test[i] == '/' {
					delete(outcomes, test[:i])
				}
			}
		}
	}
	return outcomes, nil
}

func (j *junit) collect(outcomes map[string]outcome) {
	for _, c := range j.Cases {
		if c.Skipped == nil {
			test := c.Class + " " + c.Name
			outcomes[test] = outcomes[test] || outcome(c.Failure == nil && c.Error == nil)
		}
	}
	for i := range j.Suites {
		j.Suites[i].collect(outcomes)
	}
}

// printable drops the colours that test-cmd.sh leaves in its report, and XML does not allow.
func printable(r rune) rune {
	if r < ' ' && r != '\t' && r != '\n' && r != '\r' {
		return -1
	}
	return r
}
