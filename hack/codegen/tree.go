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
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// tree is the patched tree: a git repository whose first commit is upstream.
type tree struct {
	dir  string // absolute
	git  string // its git directory, absolute
	base string // the first commit
}

func openTree(ctx context.Context, dir string) (*tree, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	t := &tree{dir: dir}
	out, err := output(ctx, dir, nil, "git", "rev-parse", "--show-toplevel", "--absolute-git-dir")
	if err != nil {
		return nil, fmt.Errorf("%s is not a tree; make it first: %w", dir, err)
	}
	top, git, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if real, err := filepath.EvalSymlinks(dir); err != nil || real != top {
		return nil, fmt.Errorf("%s is not the root of a tree; make it first", dir)
	}
	t.git = git
	out, err = output(ctx, dir, nil, "git", "rev-list", "--max-parents=0", "HEAD")
	if err != nil {
		return nil, err
	}
	t.base = strings.TrimSpace(string(out))
	return t, nil
}

// changed returns the sorted files that differ from upstream, including new and deleted
// ones.
func (t *tree) changed(ctx context.Context) ([]string, error) {
	tracked, err := output(ctx, t.dir, nil, "git", "diff", "--name-only", "--no-renames", "-z", t.base)
	if err != nil {
		return nil, err
	}
	untracked, err := output(ctx, t.dir, nil, "git", "ls-files", "--others", "--exclude-standard", "-z")
	if err != nil {
		return nil, err
	}
	return splitNames(tracked, untracked), nil
}

func splitNames(lists ...[]byte) []string {
	var names []string
	for _, list := range lists {
		for name := range strings.SplitSeq(string(list), "\x00") {
			if name != "" {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// read returns the content of a file, or nil if there is none.
func (t *tree) read(name string) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(t.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if data == nil {
		data = []byte{}
	}
	return data, err
}

// write replaces a file atomically, so a build under way never reads half of it. Nil data
// deletes the file.
func (t *tree) write(name string, data []byte) error {
	path := filepath.Join(t.dir, name)
	if data == nil {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(path), ".codegen-*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	_, err = temp.Write(data)
	if err = errors.Join(err, temp.Chmod(0o644), temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}

// hash returns a hash of the names and contents of the files.
func (t *tree) hash(names []string) (string, error) {
	h := sha256.New()
	for _, name := range names {
		data, err := t.read(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %t %x\n", name, data != nil, sha256.Sum256(data))
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// workspace is a copy of the tree for the generators. They delete and rewrite files, while
// the tree itself must stay complete.
type workspace struct {
	tree                    // the copy; shares the git directory of the original
	env   []string          // makes git work on the copy
	given map[string][]byte // the files that replace upstream's; nil means deleted
}

// inWorkspace calls work in a workspace that holds upstream's files. A tree has at most one
// at a time, because two could write back files generated from different sources.
func (t *tree) inWorkspace(ctx context.Context, log *progress, work func(*workspace) error) (err error) {
	parent := filepath.Join(t.git, "codegen")
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return err
	}
	lock, err := os.Create(filepath.Join(parent, "lock"))
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("another codegen works on %s; wait until it has finished (%s: %w)", t.dir, lock.Name(), err)
	}

	dir := filepath.Join(parent, "tree")
	remove := func() error {
		all, err := filepath.Glob(dir + "*") // twins and indexes, too
		for _, path := range all {
			err = errors.Join(err, os.RemoveAll(path))
		}
		return err
	}
	// A killed codegen may have left it.
	if err := remove(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	var w *workspace
	if err := log.step("copy of upstream", func() (err error) {
		w, err = t.copyUpstream(ctx, dir)
		return err
	}); err != nil {
		return err
	}
	return work(w)
}

// copyUpstream makes a workspace in a new folder.
func (t *tree) copyUpstream(ctx context.Context, dir string) (*workspace, error) {
	if err := os.MkdirAll(filepath.Join(dir, scratch), 0o777); err != nil {
		return nil, err
	}
	w := &workspace{
		tree:  tree{dir: dir, git: t.git, base: t.base},
		env:   []string{"GIT_DIR=" + t.git, "GIT_WORK_TREE=" + dir, "GIT_INDEX_FILE=" + dir + ".index"},
		given: map[string][]byte{},
	}
	if _, err := output(ctx, w.dir, w.env, "git", "read-tree", w.base); err != nil {
		return nil, err
	}
	_, err := output(ctx, w.dir, w.env, "git", "checkout-index", "--all", "--index")
	return w, err
}

// twin returns another workspace of the same files, as they were before any generator ran.
// It reads none of them here, so generators may already be running.
func (w *workspace) twin(ctx context.Context) (*workspace, error) {
	twin, err := w.copyUpstream(ctx, w.dir+".twin")
	if err != nil {
		return nil, err
	}
	for name, data := range w.given {
		if err := twin.write(name, data); err != nil {
			return nil, err
		}
	}
	twin.given = w.given
	return twin, nil
}

// join brings in what the generators have made in a twin.
func (w *workspace) join(ctx context.Context, twin *workspace) error {
	made, err := twin.made(ctx)
	if err != nil {
		return err
	}
	for _, name := range made {
		data, err := twin.read(name)
		if err != nil {
			return err
		}
		if err := w.write(name, data); err != nil {
			return err
		}
	}
	return nil
}

// lay copies files from the tree into the workspace, and deletes those that it lacks.
func (w *workspace) lay(from *tree, names []string) error {
	for _, name := range names {
		data, err := from.read(name)
		if err != nil {
			return err
		}
		if err := w.write(name, data); err != nil {
			return err
		}
		w.given[name] = data
	}
	return nil
}

// made returns the files that differ from those that the workspace was made of.
func (w *workspace) made(ctx context.Context) ([]string, error) {
	tracked, err := output(ctx, w.dir, w.env, "git", "diff", "--name-only", "--no-renames", "-z")
	if err != nil {
		return nil, err
	}
	untracked, err := output(ctx, w.dir, w.env, "git", "ls-files", "--others", "--exclude-standard", "-z")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, name := range splitNames(tracked, untracked) {
		data, err := w.read(name)
		if err != nil {
			return nil, err
		}
		given, ok := w.given[name]
		if !ok || (data == nil) != (given == nil) || !bytes.Equal(data, given) {
			names = append(names, name)
		}
	}
	return names, nil
}

// output runs a command and returns its standard output. The error includes its standard
// error.
func output(ctx context.Context, dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), args[0], err, &stderr)
	}
	return stdout.Bytes(), nil
}
