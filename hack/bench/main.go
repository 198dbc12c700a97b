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

// Command bench runs the benchmarks of hash key ranges in the tree and on real processes,
// together with upstream's implementation in the same run. It writes the ratios into
// docs/benchmarks/ranges.md. `make bench` runs it.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

func main() {
	rounds := flag.Int("rounds", 5, "number of batches of each variant that are measured each time")
	out := flag.String("out", "docs/benchmarks/ranges.md", "file to write")
	flag.Parse()
	if err := run(context.Background(), *rounds, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

const tree = "_output/kubernetes"

func run(ctx context.Context, rounds int, out string) error {
	fmt.Println("measuring the watch cache, which takes half an hour")
	figures, err := goBenchmarks(ctx, rounds)
	if err != nil {
		return err
	}
	fmt.Println("measuring a kube-apiserver with 20,000 pods and 64 watchers")
	processes, err := watchers(ctx)
	if err != nil {
		return err
	}
	page := document(machine(), rounds, figures, processes)
	fmt.Print("\n", page)
	return os.WriteFile(out, []byte(page), 0o644)
}

// figures holds the measurements by benchmark and then by name, with a value for each of
// the times.
type figures map[string]map[string][]float64

// times is how often everything is set up anew and measured. The memory layout varies
// the results more than anything does between batches.
const times = 3

// goBenchmarks runs the Go benchmarks of the watch cache and of its store, and says after each
// how long all have taken.
func goBenchmarks(ctx context.Context, rounds int) (figures, error) {
	found, measured, start := figures{}, map[string]int{}, time.Now()
	for _, in := range []struct {
		folder string
		rounds int
	}{{"cacher/store", 1}, {"cacher", rounds}} {
		err := command(ctx, func(line string) error {
			name, err := found.add(line)
			if name == "" {
				return err
			}
			measured[name]++
			fmt.Printf("%s measured, %d of %d times, after %v\n", name, measured[name], times, time.Since(start).Round(time.Second))
			return nil
		}, "go", "test", "-run=^$", "-bench=HashKey", fmt.Sprintf("-benchtime=%dx", in.rounds),
			fmt.Sprintf("-count=%d", times), "-timeout=90m", "./staging/src/k8s.io/apiserver/pkg/storage/"+in.folder)
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// add adds what a line of the output of `go test -bench` says: a name, a count, and pairs of a
// figure and its unit. The unit names the figure here. It returns the name of the benchmark, or
// "" if it is another line.
func (f figures) add(line string) (string, error) {
	fields := strings.Fields(line)
	if len(fields) < 4 || !strings.HasPrefix(fields[0], "BenchmarkHashKey") {
		return "", nil
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(fields[0], "BenchmarkHashKey"), "-")
	if f[name] == nil {
		f[name] = map[string][]float64{}
	}
	for i := 2; i+1 < len(fields); i += 2 {
		value, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return "", fmt.Errorf("%s: %q is not a number", fields[0], fields[i])
		}
		f[name][fields[i+1]] = append(f[name][fields[i+1]], value)
	}
	return name, nil
}

// process is the cost of one kind of watchers to the API server.
type process struct {
	kind    string
	seconds float64
	events  int
}

// watchers measures a real API server.
func watchers(ctx context.Context) ([]process, error) {
	bin, err := filepath.Abs("_output/bin")
	if err != nil {
		return nil, err
	}
	var all []process
	err = command(ctx, func(line string) error {
		var p process
		if _, err := fmt.Sscan(line, &p.kind, &p.seconds, &p.events); err != nil {
			return fmt.Errorf("watchers printed %q: %w", line, err)
		}
		all = append(all, p)
		return nil
	}, "go", "run", "./test/benchmark/watchers", "-bin="+bin)
	return all, err
}

// command runs a program in the tree and calls each with every line of its output. Its standard
// error goes to the user.
func command(ctx context.Context, each func(line string) error, name string, args ...string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stderr = tree, os.Stderr
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var printed strings.Builder
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() && err == nil {
		fmt.Fprintln(&printed, lines.Text())
		err = each(lines.Text())
	}
	if err = errors.Join(err, lines.Err()); err != nil {
		cancel()
		return errors.Join(err, cmd.Wait())
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, printed.String())
	}
	return nil
}

// machine describes this machine.
func machine() string {
	model := runtime.GOARCH
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%d cores, %s, %s, %s", runtime.NumCPU(), model, runtime.GOOS, runtime.Version())
}
