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
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// newTree makes a tree whose upstream commit holds the files.
func newTree(t *testing.T, files map[string]string) *tree {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, files)
	for _, args := range [][]string{
		{"init", "--quiet"},
		{"add", "--all"},
		{"-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "--quiet", "--message", "upstream"},
	} {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", args[0], err, out)
		}
	}
	opened, err := openTree(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

func TestOpenTree(t *testing.T) {
	tr := newTree(t, map[string]string{"sub/a.go": "package sub\n"})
	for name, dir := range map[string]string{"no repository": t.TempDir(), "folder of a tree": filepath.Join(tr.dir, "sub")} {
		if _, err := openTree(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "make it first") {
			t.Errorf("%s: got error %v", name, err)
		}
	}
}

func TestChanged(t *testing.T) {
	tr := newTree(t, map[string]string{
		".gitignore":    "/_output\n",
		"changed.go":    "package a\n",
		"deleted.go":    "package a\n",
		"touched.go":    "package a\n",
		"committed.txt": "a\n",
	})
	write(t, tr.dir, map[string]string{"changed.go": "package b\n", "touched.go": "package a\n", "new dir/new.go": "package c\n", "_output/ignored.go": ""})
	if err := os.Remove(filepath.Join(tr.dir, "deleted.go")); err != nil {
		t.Fatal(err)
	}
	got, err := tr.changed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"changed.go", "deleted.go", "new dir/new.go"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// run generates code in a workspace with the given files, as runGenerate does, and takes it.
func run(t *testing.T, tr *tree, given []string, generate func(w *workspace) error) error {
	t.Helper()
	changed, err := tr.changed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stale, _ := split(changed, isCode)
	log := &progress{out: io.Discard}
	return tr.inWorkspace(t.Context(), log, func(w *workspace) error {
		if err := w.lay(tr, given); err != nil {
			return err
		}
		if err := generate(w); err != nil {
			return err
		}
		return tr.finish(context.Background(), log, "code", w, given, stale, isCode)
	})
}

func content(t *testing.T, tr *tree, name string) string {
	t.Helper()
	data, err := tr.read(name)
	if err != nil {
		t.Fatal(err)
	}
	if data == nil {
		return "(none)"
	}
	return string(data)
}

func TestWorkspace(t *testing.T) {
	tr := newTree(t, map[string]string{
		"a/types.go":             "upstream",
		"a/zz_generated.a.go":    "of upstream",
		"b/zz_generated.b.go":    "of upstream",
		"c/zz_generated.c.go":    "of upstream",
		"d/zz_generated.d.go":    "of upstream",
		"gone/types.go":          "upstream",
		"gone/zz_generated.g.go": "of upstream",
	})
	write(t, tr.dir, map[string]string{
		"a/types.go":            "ours",
		"a/zz_generated.a.go":   "of ours", // stays
		"b/zz_generated.b.go":   "stale",   // goes back to upstream's
		"new/zz_generated.n.go": "stale",   // disappears
		"unrelated/types.go":    "not given",
	})
	if err := os.Remove(filepath.Join(tr.dir, "gone/types.go")); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(tr.dir, "a/zz_generated.a.go")
	old := time.Now().Add(-time.Hour).Truncate(time.Second)
	if err := os.Chtimes(kept, old, old); err != nil {
		t.Fatal(err)
	}

	given := []string{"a/types.go", "gone/types.go"}
	err := run(t, tr, given, func(w *workspace) error {
		for name, want := range map[string]string{
			"a/types.go":          "ours",
			"a/zz_generated.a.go": "of upstream",
			"gone/types.go":       "(none)",
			"unrelated/types.go":  "(none)",
		} {
			if got := content(t, &w.tree, name); got != want {
				t.Errorf("in the workspace, %s has %q, want %q", name, got, want)
			}
		}
		write(t, w.dir, map[string]string{
			"a/zz_generated.a.go": "of ours",
			"c/zz_generated.c.go": "of upstream", // written, but the same
			"d/zz_generated.d.go": "of ours",
			"e/zz_generated.e.go": "of ours",
			"_output/scratch":     "",
		})
		return os.Remove(filepath.Join(w.dir, "gone/zz_generated.g.go"))
	})
	if err == nil || !strings.Contains(err.Error(), "_output/scratch") {
		t.Errorf("a file that git does not ignore here: got error %v", err)
	}
	if got := content(t, tr, "d/zz_generated.d.go"); got != "of upstream" {
		t.Errorf("after an error, d/zz_generated.d.go has %q", got)
	}

	generate := func(w *workspace) error {
		write(t, w.dir, map[string]string{
			"a/zz_generated.a.go": "of ours",
			"c/zz_generated.c.go": "of upstream",
			"d/zz_generated.d.go": "of ours",
			"e/zz_generated.e.go": "of ours",
		})
		return os.Remove(filepath.Join(w.dir, "gone/zz_generated.g.go"))
	}
	if err := run(t, tr, given, generate); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"a/types.go":             "ours",
		"a/zz_generated.a.go":    "of ours",
		"b/zz_generated.b.go":    "of upstream",
		"c/zz_generated.c.go":    "of upstream",
		"d/zz_generated.d.go":    "of ours",
		"e/zz_generated.e.go":    "of ours",
		"gone/zz_generated.g.go": "(none)",
		"new/zz_generated.n.go":  "(none)",
		"unrelated/types.go":     "not given",
	} {
		if got := content(t, tr, name); got != want {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
	if info, err := os.Stat(kept); err != nil || !info.ModTime().Equal(old) {
		t.Errorf("a file that stays has a new time: %v, %v", info.ModTime(), err)
	}
	left, err := filepath.Glob(filepath.Join(tr.git, "codegen", "tree*"))
	if err != nil || len(left) > 0 {
		t.Errorf("workspaces left: %q, %v", left, err)
	}
}

func TestForeignFile(t *testing.T) {
	tr := newTree(t, map[string]string{"a/types.go": "upstream", "a/zz_generated.a.go": "of upstream"})
	write(t, tr.dir, map[string]string{"a/types.go": "ours"})
	err := run(t, tr, []string{"a/types.go"}, func(w *workspace) error {
		write(t, w.dir, map[string]string{"a/types.go": "ours, with tags", "a/zz_generated.a.go": "of ours"})
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "a/types.go") {
		t.Errorf("got error %v", err)
	}
	if got := content(t, tr, "a/zz_generated.a.go"); got != "of upstream" {
		t.Errorf("generated file has %q", got)
	}
}

func TestDone(t *testing.T) {
	tr := newTree(t, map[string]string{"a/types.go": "upstream", "a/zz_generated.a.go": "of upstream"})
	write(t, tr.dir, map[string]string{"a/types.go": "ours"})
	in, made := []string{"a/types.go"}, []string{"a/zz_generated.a.go"}
	check := func(when string, want bool) {
		t.Helper()
		if got, err := tr.isDone("code", in, made); err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", when, got, err, want)
		}
	}
	check("before the first run", false)
	err := run(t, tr, in, func(w *workspace) error {
		// The generators do not see an edit that is made while they run.
		write(t, tr.dir, map[string]string{"a/types.go": "edited"})
		write(t, w.dir, map[string]string{"a/zz_generated.a.go": "of ours"})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	check("after an edit during the run", false)
	write(t, tr.dir, map[string]string{"a/types.go": "ours"})
	check("after the run", true)
	write(t, tr.dir, map[string]string{"a/zz_generated.a.go": "changed by hand"})
	check("after a change by hand", false)
}

func TestOneAtATime(t *testing.T) {
	tr := newTree(t, map[string]string{"a/zz_generated.a.go": "of upstream"})
	// The files of a killed run do no harm and are not used.
	write(t, filepath.Join(tr.git, "codegen/tree"), map[string]string{"a/zz_generated.a.go": "half"})
	err := run(t, tr, nil, func(w *workspace) error {
		if got := content(t, &w.tree, "a/zz_generated.a.go"); got != "of upstream" {
			t.Errorf("the workspace has %q", got)
		}
		err := run(t, tr, nil, func(*workspace) error {
			t.Error("two workspaces at once")
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), "another codegen") {
			t.Errorf("second run: got error %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestTwin(t *testing.T) {
	tr := newTree(t, map[string]string{
		".gitignore":             "/_output\n",
		"a/types.go":             "upstream",
		"a/zz_generated.a.go":    "of upstream",
		"b/zz_generated.b.go":    "of upstream",
		"gone/types.go":          "upstream",
		"gone/zz_generated.g.go": "of upstream",
	})
	write(t, tr.dir, map[string]string{"a/types.go": "ours"})
	if err := os.Remove(filepath.Join(tr.dir, "gone/types.go")); err != nil {
		t.Fatal(err)
	}
	err := run(t, tr, []string{"a/types.go", "gone/types.go"}, func(w *workspace) error {
		write(t, w.dir, map[string]string{"a/zz_generated.a.go": "half"})
		twin, err := w.twin(t.Context())
		if err != nil {
			return err
		}
		for name, want := range map[string]string{
			"a/types.go":          "ours",
			"a/zz_generated.a.go": "of upstream",
			"gone/types.go":       "(none)",
		} {
			if got := content(t, &twin.tree, name); got != want {
				t.Errorf("in the twin, %s has %q, want %q", name, got, want)
			}
		}
		write(t, w.dir, map[string]string{"a/zz_generated.a.go": "of ours"})
		write(t, twin.dir, map[string]string{"b/zz_generated.b.go": "of ours", "c/zz_generated.c.go": "of ours"})
		if err := os.Remove(filepath.Join(twin.dir, "gone/zz_generated.g.go")); err != nil {
			return err
		}
		return w.join(t.Context(), twin)
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"a/types.go":             "ours",
		"a/zz_generated.a.go":    "of ours",
		"b/zz_generated.b.go":    "of ours",
		"c/zz_generated.c.go":    "of ours",
		"gone/zz_generated.g.go": "(none)",
	} {
		if got := content(t, tr, name); got != want {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
	left, err := filepath.Glob(filepath.Join(tr.git, "codegen", "tree*"))
	if err != nil || len(left) > 0 {
		t.Errorf("workspaces left: %q, %v", left, err)
	}
}

func TestSideBySide(t *testing.T) {
	broken := errors.New("broken")
	stopped := false
	err := sideBySide(t.Context(),
		func(ctx context.Context) error {
			<-ctx.Done()
			stopped = true
			return ctx.Err()
		},
		func(context.Context) error { return broken },
	)
	if err != broken || !stopped {
		t.Errorf("got error %v, the other was stopped: %v", err, stopped)
	}
	both := make(chan struct{})
	if err := sideBySide(t.Context(),
		func(context.Context) error { both <- struct{}{}; return nil },
		func(context.Context) error { <-both; return nil },
	); err != nil {
		t.Error(err)
	}
}
