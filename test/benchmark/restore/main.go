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

// Command restore restores etcd under running controller managers, again and again, and measures
// how long it takes until there are the pods that the restored objects want, and how many there are
// in excess meanwhile: with the rings, and beside that with the same binaries and the feature gate
// ControllerRing off. It needs about three gigabytes.
//
//	restore -bin=_output/bin -dir=_output/restore [-out=docs/benchmarks/restore.md]
//	    [-times=10] [-writes=3000] [-only=ours,bump,paused]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"slices"
	"strings"
	"time"

	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/report"
)

// kind is a way to restore.
type kind struct {
	name, text string
	// flags are further ones of etcdutl snapshot restore.
	flags []string
}

var kinds = []kind{
	{"bump", "with `--bump-revision --mark-compacted`", []string{"--bump-revision=1000000000", "--mark-compacted"}},
	{"older", "to the revision of the backup", nil},
	{"copy", "as another cluster's data", []string{"--initial-cluster-token=another"}},
}

// modes are what happens to the controller managers. Where it is served, the API server lives on as
// they do, which it should not.
var modes = []string{"alive", "restarted", "paused", "served"}

// side is one of the two that are compared.
type side struct {
	name string
	// off says that the feature gate is.
	off bool
}

var sides = []side{{"ours", false}, {"gate off", true}}

type bench struct {
	bin, dir      string
	times, writes int
}

// cell is a side, a kind and a mode, with what its rounds have shown.
type cell struct {
	side   side
	kind   kind
	mode   string
	rounds []outcome
}

func main() {
	b := &bench{}
	flag.StringVar(&b.bin, "bin", "../bin", "directory of the binaries")
	flag.StringVar(&b.dir, "dir", "../restore", "directory for the clusters and their logs")
	flag.IntVar(&b.times, "times", 10, "restore this many times in each way")
	flag.IntVar(&b.writes, "writes", 3000, "how much is written after each backup")
	out := flag.String("out", "", "Markdown file for the results; standard output if empty")
	only := flag.String("only", "", "only these sides, ways and modes, such as ours,older,paused; an unknown one lists all")
	flag.Parse()
	log.SetFlags(log.Ltime)
	harness.Main("restore", func(ctx context.Context) error { return b.run(ctx, *only, *out) })
}

func (b *bench) run(ctx context.Context, only, out string) (err error) {
	if err := harness.Absolute(&b.bin, &b.dir); err != nil {
		return err
	}
	cells, err := choose(only)
	if err != nil {
		return err
	}
	began, done := time.Now(), 0
	for _, s := range sides {
		ofSide := slices.DeleteFunc(slices.Clone(cells), func(c *cell) bool { return c.side != s })
		if len(ofSide) == 0 {
			continue
		}
		err := b.onCluster(ctx, s, func(c *cluster) error {
			for n := range b.times {
				for _, cell := range ofSide {
					got, err := c.round(ctx, cell.kind, cell.mode)
					if err != nil {
						return fmt.Errorf("%s, %s, %s, time %d: %w", s.name, cell.kind.name, cell.mode, n+1, err)
					}
					cell.rounds = append(cell.rounds, got)
					done++
					log.Printf("%d of %d after %v: %s, %s, %s: %v", done, len(cells)*b.times, time.Since(began).Round(time.Second), s.name, cell.kind.name, cell.mode, got)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return report.Write(out, b.report(cells))
}

// choose returns the cells that are meant: all, without names.
func choose(only string) ([]*cell, error) {
	var names []string
	if only != "" {
		names = strings.Split(only, ",")
	}
	var sideNames, kindNames []string
	for _, s := range sides {
		sideNames = append(sideNames, s.name)
	}
	for _, k := range kinds {
		kindNames = append(kindNames, k.name)
	}
	known := slices.Concat(sideNames, kindNames, modes)
	var errs []error
	for _, name := range names {
		if !slices.Contains(known, name) {
			errs = append(errs, fmt.Errorf("-only: there is no %q; there are %s", name, strings.Join(known, ", ")))
		}
	}
	// meant says whether one of a dimension is named, or none of it.
	meant := func(name string, dimension []string) bool {
		return slices.Contains(names, name) || !slices.ContainsFunc(dimension, func(d string) bool { return slices.Contains(names, d) })
	}
	var cells []*cell
	for _, k := range kinds {
		for _, m := range modes {
			for _, s := range sides {
				if meant(s.name, sideNames) && meant(k.name, kindNames) && meant(m, modes) {
					cells = append(cells, &cell{side: s, kind: k, mode: m})
				}
			}
		}
	}
	return cells, errors.Join(errs...)
}
