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

// Command slowness measures what slowness does to controller managers: ours, which share the work
// by rings, and beside them stock's, of which one leads. Each side has an etcd, an API server and
// three controller managers, and suffers the same at the same time. It needs about four gigabytes.
//
//	slowness -bin=_output/bin -dir=_output/slowness -out=docs/benchmarks/slowness.md
//	    [-only=brownout,...] [-lease=15s] [-latencies=1s,2s] [-durations=10s] [-kills=30]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/kubernetes/test/harness"
)

// managers is how many controller managers each side has.
const managers = 3

// benchmark has what the flags say.
type benchmark struct {
	bin, dir string
	lease    time.Duration
	workload workload
	after    time.Duration
	apart    bool

	where                []string
	latencies, durations durations
	refused, silent      durations
	stalls               durations
	busy                 workload
	kills, stockKills    int
	restarts             int

	memory         workload
	memorySettings string
}

// section is something that can be measured alone.
type section struct {
	name    string
	measure func(context.Context, *benchmark) (report string, err error)
}

var sections = []section{
	{"brownout", measureBrownouts},
	{"outage", measureOutages},
	{"busy", measureBusy},
	{"kill", measureKills},
	{"kill-load", measureKillsUnderLoad},
	{"vanish", measureVanished},
	{"restart", measureRestarts},
	{"memory", measureMemory},
	{"quota", measureQuotas},
}

func main() {
	b := &benchmark{
		latencies: durations{time.Second, 2100 * time.Millisecond, 4 * time.Second, 6 * time.Second},
		durations: durations{10 * time.Second},
		refused:   durations{3 * time.Second, 6 * time.Second, 9 * time.Second, 15 * time.Second},
		silent:    durations{6 * time.Second, 9 * time.Second},
		stalls:    durations{4 * time.Second, 8 * time.Second, 15 * time.Second},
	}
	var names []string
	for _, s := range sections {
		names = append(names, s.name)
	}
	out := flag.String("out", "", "Markdown file for the results; standard output if empty")
	only := flag.String("only", strings.Join(names, ","), "what to measure")
	flag.StringVar(&b.bin, "bin", "../bin", "directory of the binaries")
	flag.StringVar(&b.dir, "dir", "../slowness", "directory for the clusters and their logs")
	flag.DurationVar(&b.lease, "lease", 0, "lease of our instances; 0: the default of the binaries")
	flag.IntVar(&b.workload.sets, "sets", 60, "number of ReplicaSets, but where a flag says otherwise")
	flag.IntVar(&b.workload.pods, "pods", 50, "pods of each of them")
	flag.DurationVar(&b.after, "after", time.Minute, "for how long after slowness it counts what is listed")
	flag.BoolVar(&b.apart, "apart", false, "brownouts, outages: one more process of ours, which hosts no ring, leads at first")
	where := flag.String("where", "server,network", "brownouts: where a request takes longer")
	flag.Var(&b.latencies, "latencies", "brownouts: how much longer each request takes")
	flag.Var(&b.durations, "durations", "brownouts: for how long, each with each latency")
	flag.Var(&b.refused, "refused", "outages: for how long the API server accepts no connection; empty: none of these")
	flag.Var(&b.silent, "silent", "outages: for how long no byte comes through; empty: none of these")
	flag.Var(&b.stalls, "stalls", "quota: for how long a process is stopped, once and three times")
	flag.IntVar(&b.busy.sets, "busy-sets", 40, "busy: number of ReplicaSets")
	flag.IntVar(&b.busy.pods, "busy-pods", 350, "busy: pods of each of them")
	flag.IntVar(&b.kills, "kills", 30, "kill, kill-load, vanish: how often")
	flag.IntVar(&b.stockKills, "stock-kills", 10, "the same of stock's leader, which takes longer")
	flag.IntVar(&b.restarts, "restarts", 20, "restart: how often in each way")
	flag.IntVar(&b.memory.sets, "memory-sets", 400, "memory: number of ReplicaSets")
	flag.IntVar(&b.memory.pods, "memory-pods", 50, "memory: pods of each of them")
	flag.StringVar(&b.memorySettings, "memory-settings", "", "memory: more lines of the settings file, such as a capacity")
	flag.Parse()
	b.where = strings.Split(*where, ",")
	log.SetFlags(log.Ltime)
	harness.Main("slowness", func(ctx context.Context) error { return b.run(ctx, strings.Split(*only, ","), *out) })
}

// chosen returns the sections of these names.
func chosen(names []string) (out []section, err error) {
	for _, name := range names {
		i := slices.IndexFunc(sections, func(s section) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is nothing to measure with the name %q", name)
		}
		out = append(out, sections[i])
	}
	return out, nil
}

func (b *benchmark) run(ctx context.Context, names []string, out string) error {
	chosen, err := chosen(names)
	if err != nil {
		return err
	}
	for _, where := range b.where {
		if places[where] == nil {
			return fmt.Errorf("-where is %q, want server or network", where)
		}
	}
	if err := harness.Absolute(&b.bin, &b.dir); err != nil {
		return err
	}
	page, err := b.measure(ctx, chosen)
	fmt.Print(page)
	if out != "" {
		err = errors.Join(err, os.WriteFile(out, []byte(page), 0o644))
	}
	return err
}

// measure returns a page with what was measured, also before an error.
func (b *benchmark) measure(ctx context.Context, sections []section) (page string, err error) {
	page = head(b, flags())
	for _, s := range sections {
		begin := time.Now()
		report, err := s.measure(ctx, b)
		page += report
		if err != nil {
			return page, fmt.Errorf("%s: %w", s.name, err)
		}
		log.Printf("%s: done in %v", s.name, time.Since(begin).Round(time.Second))
	}
	return page, nil
}

// flags returns the flags that were given, but for those that name files.
func flags() string {
	var given []string
	flag.Visit(func(f *flag.Flag) {
		if !slices.Contains([]string{"bin", "dir", "out"}, f.Name) {
			given = append(given, fmt.Sprintf("-%s=%s", f.Name, f.Value))
		}
	})
	return strings.Join(given, " ")
}

// settings returns the content of a settings file. Balance would list by itself.
func (b *benchmark) settings() string {
	text := "balance: {mode: Disabled}\n"
	if b.lease > 0 {
		text += fmt.Sprintf("leaseDuration: %v\n", b.lease)
	}
	return text
}
