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

// Mutate shows that the tests of some packages notice when a rule is missing: those of the ring,
// of the follower of ranges and of etcd's history. It breaks a package in one place at a time and
// runs the package's own tests on each mutant, through the -overlay of go test: the tree is never
// touched.
//
// It fails if a mutant survives, or if the text that a mutation replaces is not in its
// file exactly once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"sync"
	"time"
)

const usage = `usage: go run ./hack/mutate [-tree FOLDER] [-run REGEXP]

Breaks some packages in one place at a time, and says which test notices.

`

func main() {
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	tree := flag.String("tree", "_output/kubernetes", "folder of the tree, made by make tree")
	pattern := flag.String("run", "", "try only the mutations whose name matches")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *tree, *pattern); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, tree, pattern string) error {
	chosen, err := choose(pattern)
	if err != nil {
		return err
	}
	tree, err = filepath.Abs(tree)
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	overlays := make([]string, len(chosen))
	var errs []error
	for i, m := range chosen {
		overlays[i], err = m.overlay(filepath.Join(tree, m.folder), filepath.Join(temp, fmt.Sprint(i)))
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s := suite{dir: tree, command: goTest}
	for _, folder := range foldersOf(chosen) {
		fmt.Fprintf(os.Stderr, "running the tests of %s without a mutation\n", folder)
		if r := s.run(ctx, folder, ""); ctx.Err() == nil && (r.err != nil || r.caughtBy != "") {
			return fmt.Errorf("the tests fail without any mutation: %s\n%s", r.verdict(), r.output)
		}
	}
	results := tryAll(ctx, s, chosen, overlays)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	printTable(os.Stdout, chosen, results)
	return judge(chosen, results)
}

// choose returns the mutations whose name matches.
func choose(pattern string) ([]mutation, error) {
	match, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	var chosen []mutation
	for _, m := range mutations() {
		if match.MatchString(m.name) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("-run: no mutation's name matches %q", pattern)
	}
	return chosen, nil
}

// atOnce is how many mutants are tested at a time. The exploration is busy on one core.
const atOnce = 2

func tryAll(ctx context.Context, s suite, chosen []mutation, overlays []string) []result {
	results := make([]result, len(chosen))
	began := time.Now()
	var lock sync.Mutex
	done := 0
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(atOnce, len(chosen)) {
		workers.Go(func() {
			for i := range next {
				results[i] = s.run(ctx, chosen[i].folder, overlays[i])
				lock.Lock()
				done++
				fmt.Fprintf(os.Stderr, "%3d of %d after %3.0f s: %s: %s\n",
					done, len(chosen), time.Since(began).Seconds(), chosen[i].name, results[i].verdict())
				lock.Unlock()
			}
		})
	}
	for i := range chosen {
		if ctx.Err() == nil {
			next <- i
		}
	}
	close(next)
	workers.Wait()
	return results
}

// goTest returns a command that runs tests.
func goTest(ctx context.Context, dir string, args ...string) *exec.Cmd {
	args = append([]string{"test", "-count=1", "-vet=off", "-failfast", "-timeout=5m"}, args...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	return cmd
}
