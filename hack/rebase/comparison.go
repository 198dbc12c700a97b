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

// Package rebase finds out what another version of upstream asks of this fork. It compares two
// versions of upstream with each other and with the fork's files. It reads sources only, and
// says what a person has to look at.
package rebase

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"ringmaster/hack/generated"
)

// Upstream is a version of upstream.
type Upstream struct {
	// Version is that of Kubernetes, such as v1.37.2.
	Version string
	// Files has all files by their path in the tree.
	Files fs.FS
	// Folders are the folders of its modules in the tree: ".", staging/src/k8s.io/api and so on.
	Folders []string
}

// Patch is a patch of ours.
type Patch struct {
	// Path is that of the patched file in the tree.
	Path string
	// Hunks are the lines that it changes in the old version of upstream.
	Hunks []Lines
}

// Lines are lines of a file: From is the first of them, and To the last. Both begin with one. If To
// is less than From, they are the place before the line From.
type Lines struct{ From, To int }

// Comparison is the two versions of upstream and the fork.
type Comparison struct {
	Old, New *Upstream
	// Changes are the files that differ between the versions, without generated ones, by path.
	Changes []Change
	// Ours has the files of this repository by their path here, with its patches.
	Ours map[string][]byte
	// Patches are those among them, by the path of the patched file.
	Patches map[string]Patch

	indexed *index
}

// Change is a file that differs between the two versions of upstream.
type Change struct {
	Path string
	// Old or New is nil if that version has no such file.
	Old, New []byte

	diffed []hunk
}

// hunks returns where the file differs.
func (c *Change) hunks() (_ []hunk, err error) {
	if c.diffed == nil {
		c.diffed, err = diff(c.Old, c.New)
	}
	return c.diffed, err
}

// Compare compares two versions of upstream.
func Compare(old, new *Upstream, ours map[string][]byte, patches map[string]Patch) (*Comparison, error) {
	c := &Comparison{Old: old, New: new, Ours: ours, Patches: patches}
	folders := append(slices.Clone(old.Folders), new.Folders...)
	slices.Sort(folders)
	seen := map[string]bool{}
	for _, folder := range slices.Compact(folders) {
		for _, u := range []*Upstream{old, new} {
			if err := u.walk(folder, func(name string) error {
				if seen[name] || generated.Is(name) {
					return nil
				}
				seen[name] = true
				change := Change{Path: name}
				var err error
				if change.Old, err = old.read(name); err != nil {
					return err
				}
				if change.New, err = new.read(name); err != nil {
					return err
				}
				if !bytes.Equal(change.Old, change.New) || (change.Old == nil) != (change.New == nil) {
					c.Changes = append(c.Changes, change)
				}
				return nil
			}); err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(c.Changes, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return c, nil
}

// walk calls visit with each file of a module's folder, if this version has the module.
func (u *Upstream) walk(folder string, visit func(name string) error) error {
	if !slices.Contains(u.Folders, folder) {
		return nil
	}
	return fs.WalkDir(u.Files, folder, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != folder && slices.Contains(u.Folders, name) {
				return fs.SkipDir
			}
			return nil
		}
		return visit(name)
	})
}

// read returns a file, or nil if this version has no such file.
func (u *Upstream) read(name string) ([]byte, error) {
	data, err := fs.ReadFile(u.Files, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if data == nil && err == nil {
		data = []byte{}
	}
	return data, err
}

// must returns a file that each version of upstream has to have.
func (u *Upstream) must(name string) ([]byte, error) {
	data, err := u.read(name)
	if err == nil && data == nil {
		err = fmt.Errorf("upstream %s has no %s: find what took its place, and mend hack/rebase", u.Version, name)
	}
	return data, err
}

// change returns how a file changed, or nil.
func (c *Comparison) change(name string) *Change {
	at, found := slices.BinarySearchFunc(c.Changes, name, func(change Change, name string) int { return strings.Compare(change.Path, name) })
	if !found {
		return nil
	}
	return &c.Changes[at]
}

// changedIn reports whether anything changed in a folder or below it.
func (c *Comparison) changedIn(folder string) bool {
	return slices.ContainsFunc(c.Changes, func(change Change) bool { return strings.HasPrefix(change.Path, folder+"/") })
}

// isSource reports whether a file is Go code that ends up in a binary.
func isSource(name string) bool {
	return strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && !generated.Is(name) && !strings.Contains(name, "/testdata/")
}

const staging = "staging/src/"

// importPath returns the import path of the package in a folder of the tree.
func importPath(folder string) string {
	if rest, found := strings.CutPrefix(folder, staging); found {
		return rest
	}
	return path.Join("k8s.io/kubernetes", folder)
}

// folderOf returns the folder in the tree of a package that upstream may have.
func folderOf(importPath string) string {
	if rest, found := strings.CutPrefix(importPath, "k8s.io/kubernetes/"); found {
		return rest
	}
	return staging + importPath
}
