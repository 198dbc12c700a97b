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

// Command codegen makes the generated code of a patched tree. It covers only what differs
// from upstream, the first commit of the tree.
//
//	go run ./hack/codegen -tree DIR            code, for builds
//	go run ./hack/codegen -tree DIR -fixtures  then test data, for upstream's tests
//	go run ./hack/codegen -tree DIR -api BIN   OpenAPI and discovery, from the built server
//	go run ./hack/codegen -tree DIR -verify    checks the generators against upstream
//
// The generators work in copies of the tree, and the files that they change are written
// back at the end. So the tree is complete at any moment, and unchanged files keep their
// times. Files are generated again only if their inputs, the files themselves or this
// program have changed.
//
// It must run in the root of this repository.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"ringmaster/hack/codegen/protoc"
	"ringmaster/hack/generated"
)

func main() {
	// go-to-protobuf runs the protoc on PATH, which is this program.
	if filepath.Base(os.Args[0]) == "protoc" {
		exit("protoc", protoc.Run(os.Args[1:]))
	}
	dir := flag.String("tree", "", "the `folder` of the tree")
	verify := flag.Bool("verify", false, "run the generators over upstream's sources, and compare with upstream's files")
	fixtures := flag.Bool("fixtures", false, "make the test data that upstream's tests compare the code with")
	api := flag.String("api", "", "make the OpenAPI and discovery files from the kube-apiserver and etcd in this `folder`; with -verify, compare them")
	flag.Parse()
	if *dir == "" || flag.NArg() > 0 || *fixtures && (*verify || *api != "") {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := setEnvironment(ctx); err != nil {
		exit("codegen", err)
	}
	log := &progress{out: os.Stdout}
	switch {
	case *api != "" && *verify:
		exit("codegen", verifyAPI(ctx, log, *dir, *api))
	case *api != "":
		exit("codegen", runAPI(ctx, log, *dir, *api))
	case *verify:
		exit("codegen", runVerify(ctx, log, *dir))
	case *fixtures:
		exit("codegen", runFixtures(ctx, log, *dir))
	default:
		exit("codegen", runGenerate(ctx, log, *dir))
	}
}

// toolsDir is the folder for the built generators, below the root of this repository.
const toolsDir = "_output/tools"

// setEnvironment sets the environment of all commands.
func setEnvironment(ctx context.Context) error {
	goroot, err := output(ctx, "", nil, "go", "env", "GOROOT")
	if err != nil {
		return err
	}
	tools, err := filepath.Abs(toolsDir)
	if err != nil {
		return err
	}
	path := []string{tools, filepath.Join(strings.TrimSpace(string(goroot)), "bin"), os.Getenv("PATH")}
	for name, value := range map[string]string{
		"PATH": strings.Join(path, string(filepath.ListSeparator)),
		// All builds share one cache, whatever the path of the copy.
		"GOFLAGS": "-trimpath -buildvcs=false",
		// Other programs may use the tree at the same time.
		"GIT_OPTIONAL_LOCKS": "0",
	} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}

func exit(name string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// progress prints each step when it begins, and again with the time that it took. Steps may
// overlap, so each line is whole.
type progress struct {
	out io.Writer
}

func (p *progress) step(name string, run func() error) error {
	fmt.Fprintf(p.out, "codegen: %s ...\n", name)
	start := time.Now()
	err := run()
	if err != nil {
		fmt.Fprintf(p.out, "codegen: %-64s failed\n", name)
		return err
	}
	fmt.Fprintf(p.out, "codegen: %-64s%6.1fs\n", name, time.Since(start).Seconds())
	return nil
}

// runGenerate makes the generated code of the tree.
func runGenerate(ctx context.Context, log *progress, dir string) error {
	t, err := openTree(ctx, dir)
	if err != nil {
		return err
	}
	changed, err := t.changed(ctx)
	if err != nil {
		return err
	}
	made, sources := split(changed, generated.Is)
	made, _ = split(made, isCode)
	tagged, err := scanDirs(t.dir, sourceDirs(sources))
	if err != nil {
		return err
	}
	in := inputs(sources, tagged)
	if done, err := t.isDone("code", in, made); err != nil {
		return err
	} else if done {
		fmt.Fprintln(log.out, "codegen: nothing changed")
		return nil
	}
	return t.inWorkspace(ctx, log, func(w *workspace) error {
		g, err := newGeneration(ctx, w, log)
		if err != nil {
			return err
		}
		if err := w.lay(t, sources); err != nil {
			return err
		}
		if err := g.run(ctx, sourceDirs(in), slices.Contains(in, groupsScript)); err != nil {
			return err
		}
		return t.finish(ctx, log, "code", w, in, made, isCode)
	})
}

// isCode reports whether a file is generated code, excluding test data and files of the API.
func isCode(name string) bool {
	return generated.Is(name) && !generated.IsFixture(name) && !generated.IsAPI(name)
}

// split divides names into those that match and the others.
func split(names []string, match func(string) bool) (yes, no []string) {
	for _, name := range names {
		if match(name) {
			yes = append(yes, name)
		} else {
			no = append(no, name)
		}
	}
	return yes, no
}

// take updates the tree's files that mine selects to their state in the workspace. stale
// has those that differ from upstream in the tree.
func (t *tree) take(ctx context.Context, log *progress, w *workspace, stale []string, mine func(string) bool) error {
	made, err := w.made(ctx)
	if err != nil {
		return err
	}
	made, foreign := split(made, mine)
	if len(foreign) > 0 {
		return fmt.Errorf("the generators changed files that are not theirs (go-to-protobuf adds protobuf tags that are missing in types); change them by hand:\n  %s",
			strings.Join(foreign, "\n  "))
	}
	written := 0
	names := append(made, stale...)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		want, err := w.read(name)
		if err != nil {
			return err
		}
		have, err := t.read(name)
		if err != nil {
			return err
		}
		if (want == nil) == (have == nil) && bytes.Equal(want, have) {
			continue
		}
		if err := t.write(name, want); err != nil {
			return err
		}
		written++
	}
	fmt.Fprintf(log.out, "codegen: %d files differ from upstream's, %d were written now\n", len(made), written)
	return nil
}

// finish takes the generated files, and records their inputs.
func (t *tree) finish(ctx context.Context, log *progress, kind string, w *workspace, inputs, stale []string, mine func(string) bool) error {
	if err := t.take(ctx, log, w, stale, mine); err != nil {
		return err
	}
	changed, err := t.changed(ctx)
	if err != nil {
		return err
	}
	made, _ := split(changed, mine)
	return t.setDone(kind, &w.tree, inputs, made)
}

// setDone records the inputs, as they are in source, and the files that a run made of them.
func (t *tree) setDone(kind string, source *tree, inputs, made []string) error {
	stamp, err := t.stamp(source, inputs, made)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(t.stampFile(kind)), 0o777); err != nil {
		return err
	}
	return os.WriteFile(t.stampFile(kind), []byte(stamp), 0o666)
}

// isDone reports whether the last run of this kind had the same inputs, made the present
// files, and used the same program.
func (t *tree) isDone(kind string, inputs, made []string) (bool, error) {
	stamp, err := t.stamp(t, inputs, made)
	if err != nil {
		return false, err
	}
	last, err := os.ReadFile(t.stampFile(kind))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return string(last) == stamp, err
}

func (t *tree) stampFile(kind string) string {
	return filepath.Join(t.git, "codegen", kind+".stamp")
}

// stamp hashes this program, the inputs in source, and the files made in t.
func (t *tree) stamp(source *tree, inputs, made []string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	program, err := os.ReadFile(self)
	if err != nil {
		return "", err
	}
	in, err := source.hash(inputs)
	if err != nil {
		return "", err
	}
	out, err := t.hash(made)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("upstream %s\nprogram %x\ninputs %s\nmade %s\n", t.base, sha256.Sum256(program), in, out), nil
}
