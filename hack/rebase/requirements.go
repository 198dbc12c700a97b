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

package rebase

import (
	"fmt"
	"go/version"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

const (
	mainModule = "k8s.io/kubernetes"
	goMod      = "go.mod"
	pins       = "hack/pins/pins.go"
)

// Requirements returns how go.mod and hack/pins have to change, and both files as they will be, by
// their paths in the repository. `go mod tidy` does the rest. notServed are upstream's modules that
// could not be had in the new version.
func (c *Comparison) Requirements(notServed []string) (*Section, map[string][]byte, error) {
	s := &Section{
		Title: "go.mod and pinned versions",
		Do:    "Take over the files that were made beside this report, and run `go mod tidy`. They have these changes:",
	}
	ours, err := modfile.Parse(goMod, c.Ours[goMod], nil)
	if err != nil {
		return nil, nil, err
	}
	data, err := c.New.must(goMod)
	if err != nil {
		return nil, nil, err
	}
	theirs, err := modfile.ParseLax(goMod, data, nil)
	if err != nil {
		return nil, nil, err
	}
	found := func(format string, args ...any) {
		s.Findings = append(s.Findings, Finding{Text: fmt.Sprintf(format, args...)})
	}
	pinned := string(c.Ours[pins])

	if theirs.Go != nil && ours.Go != nil && version.Compare("go"+ours.Go.Version, "go"+theirs.Go.Version) < 0 {
		found("`go %s`, now `go %s`", theirs.Go.Version, ours.Go.Version)
		if err := ours.AddGoStmt(theirs.Go.Version); err != nil {
			return nil, nil, err
		}
	}
	staged := strings.Replace(c.New.Version, "v1.", "v0.", 1)
	var moved []string
	required := map[string]string{}
	for _, r := range ours.Require {
		required[r.Mod.Path] = r.Mod.Version
	}
	for _, folder := range append([]string{"."}, c.modules()...) {
		name, want := mainModule, c.New.Version
		if folder != "." {
			name, want = strings.TrimPrefix(folder, staging), staged
		}
		have := required[name]
		served := !slices.Contains(notServed, name)
		if have == want {
			continue
		}
		if have != "" && !served {
			found("`%s` stays at %s, as %s is not served: its files in the tree are those of then", name, have, want)
			continue
		}
		if have == "" {
			found("new module: `%s %s`", name, want)
			if !served {
				found("%s %s is not served: `go mod tidy` will fail as long as it is not", name, want)
			}
			if pkg := c.anyPackage(folder); pkg != "" {
				pinned = strings.Replace(pinned, "\n)\n", fmt.Sprintf("\n\t_ %q\n)\n", pkg), 1)
			} else {
				found("`%s` has to import a package of %s: which there are is not known here, as the module is not served", pins, name)
			}
		} else {
			moved = append(moved, fmt.Sprintf("%s %s", name, want))
		}
		if err := ours.AddRequire(name, want); err != nil {
			return nil, nil, err
		}
	}
	if len(moved) > 0 {
		s.Findings = append(s.Findings, Finding{Text: fmt.Sprintf("%d modules of upstream's:", len(moved)), Detail: strings.Join(moved, "\n") + "\n"})
	}
	for _, folder := range c.Old.Folders {
		name := strings.TrimPrefix(folder, staging)
		if folder == "." || slices.Contains(c.modules(), folder) {
			continue
		}
		found("upstream has no module `%s` any more: drop it, and what `%s` imports of it", name, pins)
		if err := ours.DropRequire(name); err != nil {
			return nil, nil, err
		}
	}
	// etcd is built from its server's module, of which upstream requires only the client.
	etcd := ""
	wanted := map[string]string{}
	for _, r := range theirs.Require {
		wanted[r.Mod.Path] = r.Mod.Version
		if r.Mod.Path == "go.etcd.io/etcd/client/v3" {
			etcd = r.Mod.Version
		}
	}
	for _, r := range slices.Clone(ours.Require) {
		want := wanted[r.Mod.Path]
		if strings.HasPrefix(r.Mod.Path, "go.etcd.io/etcd/") && etcd != "" {
			want = etcd
		} else if r.Indirect || semver.Compare(want, r.Mod.Version) <= 0 {
			continue
		}
		if want == r.Mod.Version || strings.HasPrefix(want, "v0.0.0") && path.Dir(r.Mod.Path) == "k8s.io" {
			continue
		}
		found("`%s %s`, now `%s`, as upstream requires", r.Mod.Path, want, r.Mod.Version)
		if err := ours.AddRequire(r.Mod.Path, want); err != nil {
			return nil, nil, err
		}
	}
	if err := c.goVersion(found); err != nil {
		return nil, nil, err
	}
	ours.Cleanup()
	file, err := ours.Format()
	if err != nil {
		return nil, nil, err
	}
	s.Findings = append(s.Findings, c.mentions()...)
	return s, map[string][]byte{goMod: file, pins: []byte(pinned)}, nil
}

// goVersion finds whether upstream builds with another version of Go.
func (c *Comparison) goVersion(found func(string, ...any)) error {
	if c.change(".go-version") == nil {
		return nil
	}
	old, err := c.Old.must(".go-version")
	if err != nil {
		return err
	}
	new, err := c.New.must(".go-version")
	if err != nil {
		return err
	}
	found("upstream builds with Go %s, now %s: `make release` takes that from the tree, and needs it", strings.TrimSpace(string(new)), strings.TrimSpace(string(old)))
	return nil
}

// modules returns the folders of the modules that the new version of upstream is made of, whether
// they are served or not, without the main one.
func (c *Comparison) modules() []string {
	data, err := c.New.read("go.work")
	if err != nil {
		return nil
	}
	work, err := modfile.ParseWork("go.work", data, nil)
	if err != nil {
		return nil
	}
	var all []string
	for _, use := range work.Use {
		if folder := path.Clean(use.Path); folder != "." {
			all = append(all, folder)
		}
	}
	return all
}

// anyPackage returns the import path of the first package in a module that is no command, or "".
func (c *Comparison) anyPackage(folder string) (found string) {
	_ = c.New.walk(folder, func(name string) error {
		if !isSource(name) || strings.Contains(name, "/internal/") {
			return nil
		}
		data, err := c.New.read(name)
		if err != nil {
			return err
		}
		s, err := parse(name, data)
		if err != nil || s.Name.Name == "main" {
			return err
		}
		found = importPath(path.Dir(name))
		return fs.SkipAll
	})
	return found
}

// mentions finds the files of ours that name the old version.
func (c *Comparison) mentions() []Finding {
	staged := strings.Replace(c.Old.Version, "v1.", "v0.", 1)
	var lines []string
	for _, name := range sortedKeys(c.Ours) {
		if base := path.Base(name); base == "go.sum" || name == goMod || strings.HasSuffix(name, "_test.go") {
			continue
		}
		number := 0
		for line := range strings.Lines(string(c.Ours[name])) {
			if number++; strings.Contains(line, c.Old.Version) || strings.Contains(line, staged) {
				lines = append(lines, fmt.Sprintf("%s:%d: %s", name, number, strings.TrimSpace(line)))
			}
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return []Finding{{Text: fmt.Sprintf("our own files name %s, or %s, in %d lines:", c.Old.Version, staged, len(lines)), Detail: strings.Join(lines, "\n") + "\n"}}
}
