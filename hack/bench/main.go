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
// docs/benchmarks.md. `make bench` runs it.
package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

func main() {
	rounds := flag.Int("rounds", 7, "number of batches of each variant that are measured each time")
	out := flag.String("out", "docs/benchmarks.md", "file to write")
	flag.Parse()
	if err := run(context.Background(), *rounds, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

const tree = "_output/kubernetes"

func run(ctx context.Context, rounds int, out string) error {
	fmt.Println("measuring the watch cache")
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

// goBenchmarks runs the Go benchmarks of the watch cache and of its store.
func goBenchmarks(ctx context.Context, rounds int) (figures, error) {
	var all bytes.Buffer
	for _, in := range []struct {
		folder string
		rounds int
	}{{"cacher/store", 1}, {"cacher", rounds}} {
		output, err := command(ctx, tree, "go", "test", "-run=^$", "-bench=HashKey", fmt.Sprintf("-benchtime=%dx", in.rounds),
			fmt.Sprintf("-count=%d", times), "-timeout=90m", "./staging/src/k8s.io/apiserver/pkg/storage/"+in.folder)
		if err != nil {
			return nil, err
		}
		all.Write(output)
	}
	return parse(&all)
}

// parse reads the output of `go test -bench`: a name, a count, and pairs of a figure and
// its unit. The unit names the figure here.
func parse(r io.Reader) (figures, error) {
	found := figures{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "BenchmarkHashKey") {
			continue
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(fields[0], "BenchmarkHashKey"), "-")
		if found[name] == nil {
			found[name] = map[string][]float64{}
		}
		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %q is not a number", fields[0], fields[i])
			}
			found[name][fields[i+1]] = append(found[name][fields[i+1]], value)
		}
	}
	return found, lines.Err()
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
	output, err := command(ctx, tree, "go", "run", "./test/benchmark/watchers", "-bin="+bin)
	if err != nil {
		return nil, err
	}
	var all []process
	for line := range strings.Lines(string(output)) {
		var p process
		if _, err := fmt.Sscan(line, &p.kind, &p.seconds, &p.events); err != nil {
			return nil, fmt.Errorf("watchers printed %q: %w", line, err)
		}
		all = append(all, p)
	}
	return all, nil
}

// command runs a program and returns its output. Its standard error goes to the user.
func command(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, output)
	}
	return output, nil
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
