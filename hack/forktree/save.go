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
	"errors"
	"fmt"
	"maps"
	"strings"
)

// save copies the edits of the tree into the repository. It does not change working files
// of the tree.
func (h *house) save() error {
	unlock, err := h.tree.lock()
	if err != nil {
		return err
	}
	defer unlock()
	v, err := h.view()
	if err != nil {
		return err
	}
	if err := v.savable(); err != nil {
		return err
	}
	changes, err := h.rendered(v)
	if err != nil {
		return err
	}
	for _, path := range sorted(changes) {
		f := changes[path]
		word := "changed"
		switch {
		case f == nil:
			word = "deleted"
		case v.sources[path] == nil:
			word = "new"
		}
		if err := h.write(path, f); err != nil {
			return err
		}
		fmt.Fprintf(h.out, "%-8s %s\n", word, path)
	}
	if err := h.recordSaved(v); err != nil {
		return err
	}
	fmt.Fprintf(h.out, "saved: %d edited files of the tree, %d files written here\n", len(v.edits), len(changes))
	return nil
}

// savable returns an error that lists edits which the repository cannot hold, with reasons.
func (v *view) savable() error {
	var problems []error
	for _, path := range sorted(v.edits) {
		f := v.edits[path]
		_, isUpstream := v.upstream[path]
		var why string
		switch {
		case v.repositoryHas(path, f):
			continue
		case !v.repositoryHas(path, v.before[path]):
			why = fmt.Sprintf("changed here and in the tree since the tree was made: bring the tree's change (git -C _output/kubernetes diff %s -- %s) into the repository's "+
				"file by hand, put the tree's file back, and make the tree", madeRef, path)
		case v.upstream[path].mode == linkMode:
			why = "upstream's symbolic link, which a patch cannot change: put it back (git -C _output/kubernetes checkout upstream -- FILE)"
		case f == nil && isUpstream:
			why = "upstream's file is deleted, which a patch cannot say: put it back (git -C _output/kubernetes checkout upstream -- FILE), and leave it out of the build otherwise"
		case f == nil:
			continue
		case bytes.IndexByte(f.data, 0) >= 0:
			why = "a binary file: delete it if something built it, or have git ignore it; the repository keeps text only"
		case ours(sourceOf(path, isUpstream)):
			why = "this place belongs to the repository's own files: put it elsewhere in the tree"
		case !isUpstream && strings.HasSuffix(path, patchSuffix):
			why = "a new file cannot end in .patch: the repository would take it for one"
		case strings.ContainsAny(path, "\"\\\n\t"):
			why = "no quotes, backslashes, tabs or newlines in names, please"
		}
		if why != "" {
			problems = append(problems, fmt.Errorf("%s: %s", path, why))
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("nothing is saved, because of:\n%w", errors.Join(problems...))
	}
	return nil
}

// rendered returns the repository's files that change: those of edits, and patches that save
// would write differently.
func (h *house) rendered(v *view) (map[string]*file, error) {
	g := h.tree.git()
	want := maps.Clone(v.overlay.files)
	for path, f := range v.edits {
		want[path] = f
	}
	for path, f := range want {
		if _, ok := v.upstream[path]; !ok || f == nil {
			delete(want, path)
		}
	}
	wanted, err := g.commit(v.commits.upstream, "scratch", maps.All(want))
	if err != nil {
		return nil, err
	}
	patches, err := g.patches(v.commits.upstream, wanted)
	if err != nil {
		return nil, err
	}
	changes := map[string]*file{}
	for path := range want {
		changes[path+patchSuffix] = nil
		if text, ok := patches[path]; ok {
			changes[path+patchSuffix] = &file{data: text}
		}
	}
	for path, f := range v.edits {
		if _, ok := v.upstream[path]; !ok {
			changes[path] = f
		}
	}
	for path, f := range changes {
		if f.equal(v.sources[path]) {
			delete(changes, path)
		}
	}
	return changes, nil
}

// patches returns the difference of two commits as a patch for each file.
func (g git) patches(from, to string) (map[string][]byte, error) {
	out, err := g.run("diff", "--unified=3", "--inter-hunk-context=0", "--diff-algorithm=myers", "--indent-heuristic",
		"--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", "--text", "--src-prefix=a/", "--dst-prefix=b/", from, to)
	if err != nil {
		return nil, err
	}
	all := map[string][]byte{}
	for _, one := range strings.SplitAfter("\n"+out, "\ndiff --git ")[1:] {
		one = strings.TrimSuffix(one, "diff --git ")
		_, body, _ := strings.Cut(one, "\n--- ") // the lines before it have hashes
		body = "--- " + body
		p, err := parsePatch([]byte(body))
		if err != nil {
			return nil, fmt.Errorf("git diff: %w in\n%s", err, one)
		}
		all[p.path] = []byte(body)
	}
	return all, nil
}

// recordSaved makes the tree's commits match its working files as they were read.
func (h *house) recordSaved(v *view) error {
	if len(v.edits) == 0 && len(v.drift) == 0 {
		return nil
	}
	g := h.tree.git()
	ourFiles, err := g.changed(v.commits.upstream, v.commits.ringmaster)
	if err != nil {
		return err
	}
	generatedFiles, err := v.generated(g)
	if err != nil {
		return err
	}
	maps.Copy(ourFiles, v.edits)
	c := *v.commits
	if c.ringmaster, err = g.commit(c.upstream, ringmasterMessage, maps.All(ourFiles)); err != nil {
		return err
	}
	if c.generated, err = g.commit(c.ringmaster, generatedMessage, maps.All(generatedFiles)); err != nil {
		return err
	}
	return h.tree.record(&c)
}
