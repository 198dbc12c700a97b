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
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// tree is the patched tree: a git repository whose working files people edit.
type tree struct {
	dir string
}

func (t *tree) git() git { return git{t.dir} }

const (
	madeRef     = "refs/forktree/made"
	makingRef   = "refs/forktree/making" // the commit that the working files are being updated to
	upstreamTag = "refs/tags/upstream"
	branch      = "refs/heads/main"
)

// commits are the three commits of a tree.
type commits struct {
	upstream, ringmaster, generated string
}

// commits returns the commits that the tree was last made or saved as. A tree that has only
// upstream's commit has no files of ours yet.
func (t *tree) commits() (*commits, error) {
	if _, err := os.Stat(filepath.Join(t.dir, ".git")); err != nil {
		return nil, fmt.Errorf("there is no tree: run `make tree` first (%w)", err)
	}
	made, err := t.resolve(madeRef)
	if err != nil {
		return nil, err
	}
	if made == "" {
		made = "HEAD"
	}
	out, err := t.git().run("rev-list", "--reverse", made)
	if err != nil {
		return nil, err
	}
	ids := strings.Fields(out)
	switch len(ids) {
	case 1:
		return &commits{ids[0], ids[0], ids[0]}, nil
	case 3:
		return &commits{ids[0], ids[1], ids[2]}, nil
	}
	return nil, fmt.Errorf("%s has %d commits up to %s, not three as a tree has: move it away, and make the tree anew", t.dir, len(ids), made)
}

// resolve returns the commit of a reference, or "" if the reference does not exist.
func (t *tree) resolve(ref string) (string, error) {
	out, err := t.git().run("for-each-ref", "--format=%(objectname)", ref)
	return strings.TrimSpace(out), err
}

// bring updates the working files to c, and records c. It does not touch files that are
// already right. If it is interrupted, makingRef shows which files it had to write.
func (t *tree) bring(c *commits) error {
	// Keep upstream's bytes unchanged, whatever its .gitattributes say.
	attributes := filepath.Join(t.dir, ".git", "info", "attributes")
	if err := os.MkdirAll(filepath.Dir(attributes), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(attributes, []byte("* -text\n"), 0o644); err != nil {
		return err
	}
	if _, err := t.git().run("update-ref", makingRef, c.generated); err != nil {
		return err
	}
	if _, err := t.git().run("reset", "--hard", "-q", c.generated); err != nil {
		return err
	}
	if err := t.record(c); err != nil {
		return err
	}
	_, err := t.git().run("update-ref", "-d", makingRef)
	return err
}

// record makes c the tree's commits without changing working files.
func (t *tree) record(c *commits) error {
	for _, args := range [][]string{
		{"update-ref", upstreamTag, c.upstream},
		{"symbolic-ref", "HEAD", branch},
		{"reset", "-q", "--mixed", c.generated},
		{"update-ref", madeRef, c.generated},
	} {
		if _, err := t.git().run(args...); err != nil {
			return err
		}
	}
	return nil
}

// edited returns the working files that differ from a commit, nil for deleted ones. Files
// that git ignores do not count.
func (t *tree) edited(commit string) (map[string]*file, error) {
	changed, err := t.git().names("diff", "--name-only", "--no-renames", "-z", commit)
	if err != nil {
		return nil, err
	}
	added, err := t.git().names("ls-files", "-z", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	files := map[string]*file{}
	for _, path := range append(changed, added...) {
		if files[path], err = readFile(filepath.Join(t.dir, path)); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// lock prevents concurrent makes and saves of the tree.
func (t *tree) lock() (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(t.dir), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(t.dir+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, errors.New("another forktree works on this tree: wait until it has finished")
	}
	return func() {
		syscall.Flock(int(f.Fd()), syscall.LOCK_UN) // closing does not unlock while a starting process shares the file
		f.Close()
	}, nil
}

func sorted[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
