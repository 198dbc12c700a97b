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
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// PatchedFiles returns how upstream changed the files that have a patch.
func (c *Comparison) PatchedFiles() (*Section, error) {
	s := &Section{
		Title: "patched files that upstream changed",
		Do:    "Read them even where the patch applies: does upstream now do, or undo, what the patch relies on?",
	}
	for _, name := range sortedKeys(c.Patches) {
		change := c.change(name)
		if change == nil {
			continue
		}
		if change.New == nil {
			s.Findings = append(s.Findings, Finding{Text: fmt.Sprintf("`%s` is gone", name)})
			continue
		}
		text, touched, err := marked(change, c.Patches[name])
		if err != nil {
			return nil, err
		}
		where := "near none of our hunks"
		if len(touched) > 0 {
			where = fmt.Sprintf("**near our hunks %s** of %d", numbers(touched), len(c.Patches[name].Hunks))
		}
		s.Findings = append(s.Findings, Finding{Text: fmt.Sprintf("`%s` (%s), %s", name, change.size(), where), Detail: text, Language: "diff"})
	}
	return s, nil
}

func numbers(all []int) string {
	var texts []string
	for _, n := range all {
		texts = append(texts, fmt.Sprint(n))
	}
	return strings.Join(texts, ", ")
}

// Neighbours returns the changed files of upstream's that have no patch, but are in a package with
// code of ours, or are named in our own files. It also returns how they changed, as a diff.
func (c *Comparison) Neighbours() (*Section, []byte, error) {
	s := &Section{
		Title: "files beside ours that upstream changed",
		Do:    "Our code in the same package may rely on them, or does what they do (`hack/codegen` runs the generators as `hack/update-codegen.sh` does). `neighbours.diff`, beside this report, has the changes.",
	}
	var text bytes.Buffer
	ours := map[string]bool{}
	for name := range c.Ours {
		target := strings.TrimSuffix(name, ".patch")
		if isSource(target) {
			ours[path.Dir(target)] = true
		}
	}
	byFolder := map[string][]string{}
	for i := range c.Changes {
		change := &c.Changes[i]
		folder := path.Dir(change.Path)
		if _, patched := c.Patches[change.Path]; patched {
			continue
		}
		beside, by := ours[folder] && isSource(change.Path), c.index().paths[change.Path]
		if c.Ours[change.Path] != nil { // the name is that of a file of ours, which stays here
			by = nil
		}
		if !beside && len(by) == 0 {
			continue
		}
		hunks, err := change.hunks()
		if err != nil {
			return nil, nil, err
		}
		fmt.Fprintf(&text, "--- a/%[1]s\n+++ b/%[1]s\n%[2]s", change.Path, join(hunks))
		if beside {
			byFolder[folder] = append(byFolder[folder], fmt.Sprintf("`%s` (%s)", path.Base(change.Path), change.size()))
		}
		if len(by) > 0 {
			s.Findings = append(s.Findings, Finding{Text: fmt.Sprintf("`%s` (%s) is named in %s", change.Path, change.size(), quoted(by))})
		}
	}
	for _, folder := range sortedKeys(byFolder) {
		s.Findings = append(s.Findings, Finding{Text: fmt.Sprintf("in `%s`: %s", folder, strings.Join(byFolder[folder], ", "))})
	}
	return s, text.Bytes(), nil
}

// Heirs returns the files of the new version that have most of the lines of a file that is gone,
// and that the old version does not have so many of, the best first; three at most.
func (c *Comparison) Heirs(name string) []string {
	gone := c.change(name)
	if gone == nil || gone.New != nil {
		return nil
	}
	lines := telling(gone.Old)
	count := func(text []byte) (n int) {
		for line := range telling(text) {
			if lines[line] {
				n++
			}
		}
		return n
	}
	gained := map[string]int{}
	var heirs []string
	for i := range c.Changes {
		change := &c.Changes[i]
		if path.Ext(change.Path) != path.Ext(name) || change.New == nil {
			continue
		}
		if n := count(change.New) - count(change.Old); n > 0 && 10*n >= len(lines) {
			gained[change.Path] = n
			heirs = append(heirs, change.Path)
		}
	}
	slices.SortStableFunc(heirs, func(a, b string) int { return gained[b] - gained[a] })
	var all []string
	for _, heir := range heirs[:min(3, len(heirs))] {
		all = append(all, fmt.Sprintf("`%s` (%d of %d lines)", heir, gained[heir], len(lines)))
	}
	return all
}

// telling returns the lines of a file that are hardly in another one by chance. What comes before
// the package clause, the license, is in all.
func telling(text []byte) map[string]bool {
	lines := map[string]bool{}
	_, code, _ := strings.Cut("\n"+string(text), "\npackage ")
	for line := range strings.Lines(code) {
		if line = strings.TrimSpace(line); len(line) > 20 && !strings.HasPrefix(line, "//") {
			lines[line] = true
		}
	}
	return lines
}
