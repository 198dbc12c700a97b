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
	"maps"
	"path/filepath"

	"ringmaster/hack/generated"
)

// view is a consistent reading of the tree's commits, its working files and the repository.
type view struct {
	commits  *commits
	upstream map[string]entry // files of commit 1
	made     map[string]entry // files of commit 2
	edits    map[string]*file // working files that differ from commit 2, without generated ones
	drift    map[string]*file // generated working files that differ from commit 3
	dirty    bool             // some working file differs from commit 3
	before   map[string]*file // the edited files in commit 2
	sources  map[string]*file // the repository's files
	overlay  *overlay         // the result of applying them to commit 1
}

func (h *house) view() (*view, error) {
	v := &view{edits: map[string]*file{}, drift: map[string]*file{}}
	g := h.tree.git()
	var err error
	if v.commits, err = h.tree.commits(); err != nil {
		return nil, err
	}
	if v.upstream, err = g.list(v.commits.upstream); err != nil {
		return nil, err
	}
	if v.made, err = g.list(v.commits.ringmaster); err != nil {
		return nil, err
	}
	edited, err := h.tree.edited(v.commits.generated)
	if err != nil {
		return nil, err
	}
	if v.before, err = g.read(v.made, sorted(edited)); err != nil {
		return nil, err
	}
	v.dirty = len(edited) > 0
	for path, f := range edited {
		if old, ok := v.upstream[path]; ok && f != nil {
			f.exec = old.mode == "100755" // a patch cannot change it
		}
		switch {
		case generated.Is(path):
			v.drift[path] = f
		case !f.equal(v.before[path]):
			v.edits[path] = f
		}
	}
	if err := h.dropUnfinished(v); err != nil {
		return nil, err
	}
	if v.sources, err = h.sources(); err != nil {
		return nil, err
	}
	if v.overlay, err = h.overlayIn(v.upstream, v.sources); err != nil {
		return nil, err
	}
	return v, h.addIgnored(v)
}

// addIgnored adds files that git ignores to the edits if new files of the repository would
// overwrite them.
func (h *house) addIgnored(v *view) error {
	for path := range v.overlay.files {
		_, made := v.made[path]
		_, edited := v.edits[path]
		if made || edited {
			continue
		}
		f, err := readFile(filepath.Join(h.tree.dir, path))
		if err != nil {
			return err
		}
		if f != nil {
			v.edits[path] = f
		}
	}
	return nil
}

// dropUnfinished removes from the edits the files that an interrupted make had written.
func (h *house) dropUnfinished(v *view) error {
	making, err := h.tree.resolve(makingRef)
	if err != nil || making == "" {
		return err
	}
	entries, err := h.tree.git().list(making)
	if err != nil {
		return err
	}
	for path, f := range v.edits {
		e, ok := entries[path]
		if f == nil && !ok || f != nil && ok && blobID(f) == e.blob {
			delete(v.edits, path)
		}
	}
	return nil
}

// overlayIn applies the repository's files to the upstream commit of the tree.
func (h *house) overlayIn(upstream map[string]entry, sources map[string]*file) (*overlay, error) {
	patched, err := h.tree.git().read(upstream, targets(sources))
	if err != nil {
		return nil, err
	}
	return newOverlay(sources, patched, func(path string) bool { _, ok := upstream[path]; return ok }), nil
}

// generated returns the working files that the generators changed.
func (v *view) generated(g git) (map[string]*file, error) {
	files, err := g.changed(v.commits.ringmaster, v.commits.generated)
	if err == nil {
		maps.Copy(files, v.drift)
	}
	return files, err
}

// repositoryHas reports whether the repository already gives a file this content.
func (v *view) repositoryHas(path string, content *file) bool {
	if f, ok := v.overlay.files[path]; ok {
		return f.equal(content)
	}
	_, new := v.sources[path]
	_, patched := v.sources[path+patchSuffix]
	if new || patched { // but with a problem
		return false
	}
	old, ok := v.upstream[path]
	if !ok || content == nil {
		return !ok && content == nil
	}
	return blobID(content) == old.blob
}
