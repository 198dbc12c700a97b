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
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ringmaster/hack/generated"
)

// house is this repository, with everything needed to make the tree.
type house struct {
	root     string
	tree     *tree
	pinned   func() (*upstream, error)                               // the version in go.mod
	released func(version string, paths []string) (*upstream, error) // any other
	out      io.Writer                                               // for progress and results
	started  time.Time
	// codegen updates the generated files of a tree that are out of date, and no others.
	codegen func(tree string) error
	// leftOut are the sources that the tree does without, by their path here.
	leftOut map[string]error
}

// say prints a line of progress, with the time since the start.
func (h *house) say(format string, args ...any) {
	fmt.Fprintf(h.out, "[%5.1fs] %s\n", time.Since(h.started).Seconds(), fmt.Sprintf(format, args...))
}

// ours reports whether a path stays in the repository, and is not part of the tree. All of
// hack/ stays here, except for hack/lib, which is upstream's.
func ours(path string) bool {
	top, _, inFolder := strings.Cut(path, "/")
	switch top {
	case "README.md", "BUILD.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "go.mod", "go.sum", ".gitignore", ".gitattributes":
		return !inFolder
	case "docs", "examples", ".ci", "_output", "vendor", ".git":
		return true
	case "hack":
		return !strings.HasPrefix(path, "hack/lib/")
	}
	return false
}

const patchSuffix = ".patch"

// sources returns the repository's files for the tree by their path here: files of ours,
// and patches.
func (h *house) sources() (map[string]*file, error) {
	return h.files(func(path string) bool { return !ours(path) && h.leftOut[path] == nil })
}

// files returns those of the repository's files that are wanted, by their path here.
func (h *house) files(wanted func(path string) bool) (map[string]*file, error) {
	paths, err := git{h.root}.names("ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	files := map[string]*file{}
	for _, path := range paths {
		if !wanted(path) {
			continue
		}
		f, err := readFile(filepath.Join(h.root, path))
		if err != nil {
			return nil, err
		}
		if f != nil { // git also lists deleted files that it tracks
			files[path] = f
		}
	}
	return files, nil
}

// sourceOf returns the file of the repository that determines a file of the tree.
func sourceOf(path string, inUpstream bool) string {
	if inUpstream {
		return path + patchSuffix
	}
	return path
}

// overlay is the result of applying the repository to upstream.
type overlay struct {
	files   map[string]*file    // by path in the tree, patched
	patches int                 // how many of them are patched
	patched []string            // files that have a patch, even if it does not apply
	moved   map[string][]placed // hunks that applied at other lines, by the patch's path
	// problems explains why a file is not in files, by its path in the repository.
	problems map[string]error
}

// err returns the problems, with what to do about them.
func (o *overlay) err() error {
	if len(o.problems) == 0 {
		return nil
	}
	var all []error
	for _, path := range sorted(o.problems) {
		all = append(all, fmt.Errorf("%s: %w", path, o.problems[path]))
	}
	return fmt.Errorf("%w\nIf a hunk does not apply: mend the patch, or move it away, make the tree, do its change in the tree's file by hand, and save", errors.Join(all...))
}

// newOverlay applies the repository's files to upstream's. upstream has the content of all
// files that have a patch.
func newOverlay(sources, upstream map[string]*file, inUpstream func(path string) bool) *overlay {
	o := &overlay{files: map[string]*file{}, moved: map[string][]placed{}, problems: map[string]error{}}
	for path, source := range sources {
		target, isPatch := strings.CutSuffix(path, patchSuffix)
		switch {
		case generated.Is(target):
			o.problems[path] = errors.New("this file is generated, and is not kept: delete it here; hack/codegen makes it")
		case !isPatch && inUpstream(path):
			o.problems[path] = fmt.Errorf("upstream has this file: give yours another name, or make it a patch (edit the file in the tree, then save)")
		case !isPatch:
			o.files[path] = source
		case !inUpstream(target):
			o.problems[path] = fmt.Errorf("upstream has no %s: if it moved, move the patch after it and mend its names; if it is gone, find where its code went", target)
		default:
			o.patch(path, target, source.data, upstream[target])
		}
	}
	return o
}

func (o *overlay) patch(path, target string, data []byte, old *file) {
	o.patched = append(o.patched, target)
	p, err := parsePatch(data)
	if err != nil {
		o.problems[path] = fmt.Errorf("this is no patch of one file: %w", err)
		return
	}
	if p.path != target {
		o.problems[path] = fmt.Errorf("the patch names %s, but its place says it is for %s", p.path, target)
		return
	}
	patched, moved, failed := p.apply(old.data)
	if len(failed) > 0 {
		var all []error
		for _, e := range failed {
			all = append(all, e)
		}
		o.problems[path] = errors.Join(all...)
		return
	}
	o.files[target] = &file{data: patched, exec: old.exec}
	o.patches++
	if len(moved) > 0 {
		o.moved[path] = moved
	}
}

// targets returns the upstream files that have a patch among the sources.
func targets(sources map[string]*file) []string {
	var all []string
	for path := range sources {
		if target, isPatch := strings.CutSuffix(path, patchSuffix); isPatch {
			all = append(all, target)
		}
	}
	return all
}

// write writes a file of the repository. A nil file is deleted, with the folders that it
// leaves empty.
func (h *house) write(path string, f *file) error {
	at := filepath.Join(h.root, path)
	if f == nil {
		if err := os.Remove(at); err != nil {
			return err
		}
		for dir := filepath.Dir(at); dir != h.root && os.Remove(dir) == nil; dir = filepath.Dir(dir) {
		}
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	mode := os.FileMode(0o644)
	if f.exec {
		mode = 0o755
	}
	if err := os.WriteFile(at, f.data, mode); err != nil {
		return err
	}
	return os.Chmod(at, mode)
}
