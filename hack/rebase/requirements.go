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
	r := &requirements{Comparison: c, Section: &Section{
		Title: "go.mod and pinned versions",
		Do:    "Take over the files that were made beside this report, and run `go mod tidy`. They have these changes:",
	}, notServed: notServed, pinned: string(c.Ours[pins])}
	var err error
	if r.ours, err = modfile.Parse(goMod, c.Ours[goMod], nil); err != nil {
		return nil, nil, err
	}
	data, err := c.New.must(goMod)
	if err != nil {
		return nil, nil, err
	}
	if r.theirs, err = modfile.ParseLax(goMod, data, nil); err != nil {
		return nil, nil, err
	}
	for _, change := range []func() error{r.goStatement, r.upstreamsModules, r.modulesGone, r.otherModules, r.goVersion} {
		if err := change(); err != nil {
			return nil, nil, err
		}
	}
	r.ours.Cleanup()
	file, err := r.ours.Format()
	if err != nil {
		return nil, nil, err
	}
	r.Findings = append(r.Findings, c.mentions()...)
	return r.Section, map[string][]byte{goMod: file, pins: []byte(r.pinned)}, nil
}

// requirements is how go.mod and hack/pins change.
type requirements struct {
	*Comparison
	*Section
	notServed []string
	// ours is our go.mod, which is changed, and theirs that of the new version.
	ours, theirs *modfile.File
	// pinned is the text of pins.
	pinned string
}

func (r *requirements) found(format string, args ...any) {
	r.Findings = append(r.Findings, Finding{Text: fmt.Sprintf(format, args...)})
}

func (r *requirements) goStatement() error {
	ours, theirs := r.ours.Go, r.theirs.Go
	if theirs == nil || ours == nil || version.Compare("go"+ours.Version, "go"+theirs.Version) >= 0 {
		return nil
	}
	r.found("`go %s`, now `go %s`", theirs.Version, ours.Version)
	return r.ours.AddGoStmt(theirs.Version)
}

// upstreamsModules requires the modules that upstream is made of in the new version.
func (r *requirements) upstreamsModules() error {
	staged := strings.Replace(r.New.Version, "v1.", "v0.", 1)
	required := map[string]string{}
	for _, m := range r.ours.Require {
		required[m.Mod.Path] = m.Mod.Version
	}
	var moved []string
	for _, folder := range append([]string{"."}, r.modules()...) {
		name, want := mainModule, r.New.Version
		if folder != "." {
			name, want = strings.TrimPrefix(folder, staging), staged
		}
		have, served := required[name], !slices.Contains(r.notServed, name)
		switch {
		case have == want:
			continue
		case have == "":
			r.newModule(folder, name, want, served)
		case !served:
			r.found("`%s` stays at %s, as %s is not served: its files in the tree are those of then", name, have, want)
			continue
		default:
			moved = append(moved, fmt.Sprintf("%s %s", name, want))
		}
		if err := r.ours.AddRequire(name, want); err != nil {
			return err
		}
	}
	if len(moved) > 0 {
		r.Findings = append(r.Findings, Finding{Text: fmt.Sprintf("%d modules of upstream's:", len(moved)), Detail: strings.Join(moved, "\n") + "\n"})
	}
	return nil
}

// newModule tells of a module that upstream has added, and pins it.
func (r *requirements) newModule(folder, name, version string, served bool) {
	r.found("new module: `%s %s`", name, version)
	if !served {
		r.found("%s %s is not served: `go mod tidy` will fail as long as it is not", name, version)
	}
	if pkg := r.anyPackage(folder); pkg != "" {
		r.pinned = strings.Replace(r.pinned, "\n)\n", fmt.Sprintf("\n\t_ %q\n)\n", pkg), 1)
	} else {
		r.found("`%s` has to import a package of %s: which there are is not known here, as the module is not served", pins, name)
	}
}

// modulesGone drops the modules that upstream has no more.
func (r *requirements) modulesGone() error {
	for _, folder := range r.Old.Folders {
		name := strings.TrimPrefix(folder, staging)
		if folder == "." || slices.Contains(r.modules(), folder) {
			continue
		}
		r.found("upstream has no module `%s` any more: drop it, and what `%s` imports of it", name, pins)
		if err := r.ours.DropRequire(name); err != nil {
			return err
		}
	}
	return nil
}

// otherModules requires of the others what upstream requires, and etcd as its client: etcd is built
// from its server's module, of which upstream requires only that.
func (r *requirements) otherModules() error {
	etcd := ""
	wanted := map[string]string{}
	for _, m := range r.theirs.Require {
		wanted[m.Mod.Path] = m.Mod.Version
		if m.Mod.Path == "go.etcd.io/etcd/client/v3" {
			etcd = m.Mod.Version
		}
	}
	for _, m := range slices.Clone(r.ours.Require) {
		want := wanted[m.Mod.Path]
		if strings.HasPrefix(m.Mod.Path, "go.etcd.io/etcd/") && etcd != "" {
			want = etcd
		} else if m.Indirect || semver.Compare(want, m.Mod.Version) <= 0 {
			continue
		}
		if want == m.Mod.Version || strings.HasPrefix(want, "v0.0.0") && path.Dir(m.Mod.Path) == "k8s.io" {
			continue
		}
		r.found("`%s %s`, now `%s`, as upstream requires", m.Mod.Path, want, m.Mod.Version)
		if err := r.ours.AddRequire(m.Mod.Path, want); err != nil {
			return err
		}
	}
	return nil
}

// goVersion finds whether upstream builds with another version of Go.
func (r *requirements) goVersion() error {
	if r.change(".go-version") == nil {
		return nil
	}
	old, err := r.Old.must(".go-version")
	if err != nil {
		return err
	}
	new, err := r.New.must(".go-version")
	if err != nil {
		return err
	}
	r.found("upstream builds with Go %s, now %s: `make release` takes that from the tree, and needs it", strings.TrimSpace(string(new)), strings.TrimSpace(string(old)))
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
