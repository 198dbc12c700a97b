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
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ringmaster/hack/rebase"
)

// rebase writes a report of what another version of upstream asks of this repository, and with it
// the files that follow from the version alone. All of that goes into a folder of _output. The
// quick parts come first, and the report is there before the tree of that version is made and
// compiled.
func (h *house) rebase(version string) error {
	r := &rebasing{house: h, dir: filepath.Join(h.root, "_output", "rebase", version), since: time.Now()}
	for _, step := range []struct {
		name string
		run  func(version string) error
	}{
		{"downloading both versions", r.download},
		{"trying all patches", r.try},
		{"comparing both versions", r.compare},
		{"looking into the differences", r.look},
		{"making the tree and compiling it", r.compile},
	} {
		h.say("%s", step.name)
		if err := step.run(version); err != nil {
			return err
		}
		r.report.Times = append(r.report.Times, rebase.Time{Step: step.name, Took: time.Since(r.since)})
		r.since = time.Now()
	}
	if err := r.write(); err != nil {
		return err
	}
	fmt.Fprintln(h.out)
	r.report.Summary(h.out)
	h.say("read %s", r.file("report.md"))
	return nil
}

// rebasing is a rebase under way.
type rebasing struct {
	*house
	dir        string
	since      time.Time // when the present step began
	old, new   *upstream
	sources    map[string]*file
	overlay    *overlay // on the new version
	comparison *rebase.Comparison
	compiled   *rebase.Section
	report     rebase.Report
}

func (r *rebasing) file(name string) string { return filepath.Join(r.dir, name) }

func (r *rebasing) download(version string) (err error) {
	if r.old, err = r.pinned(); err != nil {
		return err
	}
	if err := r.old.download(); err != nil {
		return err
	}
	if r.sources, err = r.house.sources(); err != nil {
		return err
	}
	r.new, err = r.released(version, sorted(r.sources))
	return err
}

func (r *rebasing) try(string) (err error) {
	r.overlay, err = overlayOn(r.new, r.sources)
	return err
}

func (r *rebasing) compare(string) error {
	all, err := r.files(func(string) bool { return true })
	if err != nil {
		return err
	}
	ours := map[string][]byte{}
	for path, f := range all {
		ours[path] = f.data
	}
	patches := map[string]rebase.Patch{}
	for _, target := range r.overlay.patched {
		old, err := r.old.read(target)
		if err != nil {
			return err
		}
		p, err := parsePatch(ours[target+patchSuffix])
		if err != nil {
			return fmt.Errorf("%s: %w", target+patchSuffix, err)
		}
		if old == nil {
			continue // said where patches are tried
		}
		patches[target] = rebase.Patch{Path: target, Hunks: p.lines(old.data)}
	}
	r.comparison, err = rebase.Compare(r.old.compared(r.new.notServed), r.new.compared(nil), ours, patches)
	if err == nil {
		r.say("%d files of upstream's differ, without generated ones", len(r.comparison.Changes))
	}
	return err
}

// compared returns a version of upstream as hack/rebase takes it, without modules that the other
// version should have, but cannot be had in.
func (u *upstream) compared(without []module) *rebase.Upstream {
	c := &rebase.Upstream{Version: u.version, Files: u}
	for _, m := range u.modules {
		if slices.ContainsFunc(without, func(other module) bool { return other.path == m.path }) {
			continue
		}
		c.Folders = append(c.Folders, filepath.Join(".", m.at))
	}
	return c
}

// look adds all sections to the report but that of what does not compile, which it leaves for
// later.
func (r *rebasing) look(version string) error {
	r.report.Old, r.report.New = r.old.version, r.new.version
	c := r.comparison
	var notServed []string
	for _, m := range r.new.notServed {
		notServed = append(notServed, m.path)
	}
	requirements, files, err := c.Requirements(notServed)
	if err != nil {
		return err
	}
	requirements.Do = fmt.Sprintf("`cp -r _output/rebase/%s/repository/. .` and `go mod tidy` do these:", version)
	neighbours, diff, err := c.Neighbours()
	if err != nil {
		return err
	}
	files["../neighbours.diff"] = diff
	for path, data := range files {
		at := r.file(filepath.Join("repository", path))
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, data, 0o644)); err != nil {
			return err
		}
	}
	r.compiled = &rebase.Section{Title: "what does not compile", Untried: "this is still under way"}
	have := func(s *rebase.Section) func() (*rebase.Section, error) {
		return func() (*rebase.Section, error) { return s, nil }
	}
	for _, look := range []func() (*rebase.Section, error){
		have(requirements), have(r.inapplicable()), c.PatchedFiles, have(neighbours), have(r.compiled),
		c.Controllers, c.Fields, c.Gates, c.Admission, c.Callers, c.Sharding,
	} {
		s, err := look()
		if err != nil {
			return err
		}
		r.report.Add(s)
		r.say("  %s: %d", s.Title, len(s.Findings))
	}
	if err := r.write(); err != nil {
		return err
	}
	r.say("%s is there, but for what does not compile", r.file("report.md"))
	return nil
}

func (r *rebasing) write() error {
	var text strings.Builder
	r.report.Write(&text)
	return os.WriteFile(r.file("report.md"), []byte(text.String()), 0o644)
}

// inapplicable lists what does not apply.
func (r *rebasing) inapplicable() *rebase.Section {
	o := r.overlay
	s := &rebase.Section{
		Title: "patches and files that do not apply",
		Do:    "Once go.mod requires the new version, move these patches out of the way, run `make tree`, do their changes in `_output/kubernetes` by hand, and run `make save`.",
	}
	for _, path := range sorted(o.problems) {
		var failed []*hunkError
		for _, err := range flatten(o.problems[path]) {
			var e *hunkError
			if errors.As(err, &e) {
				failed = append(failed, e)
				continue
			}
			text := fmt.Sprintf("`%s`: %v", path, err)
			if heirs := r.comparison.Heirs(strings.TrimSuffix(path, patchSuffix)); len(heirs) > 0 {
				text += ". Its lines are now in " + strings.Join(heirs, ", ")
			}
			s.Findings = append(s.Findings, rebase.Finding{Text: text})
		}
		for _, e := range failed {
			s.Findings = append(s.Findings, rebase.Finding{
				Text:     fmt.Sprintf("`%s`, hunk %d of %d: the nearest place, from line %d on, differs from it at line %d", path, e.hunk, e.of, e.at, e.line),
				Detail:   e.text + "# upstream has there:\n" + strings.Join(e.around, ""),
				Language: "diff",
			})
		}
	}
	return s
}

// flatten returns the errors that were joined into one.
func flatten(err error) []error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return all.Unwrap()
	}
	return []error{err}
}

// lines returns which lines of a file each hunk changes, without its context.
func (p *patch) lines(data []byte) []rebase.Lines {
	_, moved, _ := p.apply(data)
	var all []rebase.Lines
	for i, h := range p.hunks {
		from := max(h.oldStart, 1)
		for _, m := range moved {
			if m.hunk == i+1 {
				from += m.offset
			}
		}
		same := 0
		for same < min(len(h.old), len(h.new)) && h.old[same] == h.new[same] {
			same++
		}
		after := 0
		for after < min(len(h.old), len(h.new))-same && h.old[len(h.old)-1-after] == h.new[len(h.new)-1-after] {
			after++
		}
		all = append(all, rebase.Lines{From: from + same, To: from + len(h.old) - after - 1})
	}
	return all
}
