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
	"strings"

	"ringmaster/hack/generated"
)

// Messages of the tree's commits. The first identifies the bytes it was made from.
const (
	ringmasterMessage = "ringmaster's files and patches"
	generatedMessage  = "generated code"
	upstreamSubject   = "upstream "
)

func upstreamMessage(u *upstream) string { return upstreamSubject + u.version + "\n\nsums: " + u.key() }

// make makes or updates the tree. It does not touch files whose content stays the same, so
// their times stay, too.
func (h *house) make() error {
	unlock, err := h.tree.lock()
	if err != nil {
		return err
	}
	defer unlock()
	u, err := h.pinned()
	if err != nil {
		return err
	}
	if err := h.begin(u); err != nil {
		return err
	}
	v, err := h.view()
	if err != nil {
		return err
	}
	if err := v.refuseUnsaved(); err != nil {
		return err
	}
	c, o := *v.commits, v.overlay
	message, err := h.tree.git().message(c.upstream)
	if err != nil {
		return err
	}
	if message != upstreamMessage(u) {
		if c.upstream, err = h.commitUpstream(h.tree, u); err != nil {
			return err
		}
		entries, err := h.tree.git().list(c.upstream)
		if err != nil {
			return err
		}
		if o, err = h.overlayIn(entries, v.sources); err != nil {
			return err
		}
	}
	if err := o.err(); err != nil {
		return fmt.Errorf("the tree is not made, because of:\n%w", err)
	}
	for _, path := range sorted(o.moved) {
		h.say("%s applies, but %s: `make save` updates its line numbers", path, describe(o.moved[path]))
	}
	if c.ringmaster, err = h.tree.git().commit(c.upstream, ringmasterMessage, maps.All(o.files)); err != nil {
		return err
	}
	if err := h.lay(v, &c); err != nil {
		return err
	}
	if err := h.generate(&c); err != nil {
		return err
	}
	// Upstream's scripts work out the version from its tag.
	if _, err := h.tree.git().run("update-ref", "refs/tags/"+u.version, c.upstream); err != nil {
		return err
	}
	h.say("the tree in %s is up to date: upstream %s, %d files of ours, %d patched", h.tree.dir, u.version, len(o.files)-o.patches, o.patches)
	return nil
}

// begin makes a tree of upstream alone if there is none. The tree appears atomically.
func (h *house) begin(u *upstream) error {
	if _, err := os.Stat(h.tree.dir); err == nil {
		if _, err := os.Stat(filepath.Join(h.tree.dir, ".git")); err != nil {
			return fmt.Errorf("%s exists, but is not a tree: move it away (%w)", h.tree.dir, err)
		}
		return nil
	}
	t := &tree{dir: h.tree.dir + ".new"}
	if err := errors.Join(os.RemoveAll(t.dir), os.MkdirAll(t.dir, 0o755)); err != nil {
		return err
	}
	if _, err := t.git().run("init", "-q", "-b", filepath.Base(branch)); err != nil {
		return err
	}
	id, err := h.commitUpstream(t, u)
	if err != nil {
		return err
	}
	h.say("writing upstream's files")
	if err := t.bring(&commits{id, id, id}); err != nil {
		return err
	}
	return os.Rename(t.dir, h.tree.dir)
}

// refuseUnsaved returns an error if the tree has edits that the repository lacks.
func (v *view) refuseUnsaved() error {
	var unsaved []string
	for _, path := range sorted(v.edits) {
		if !v.repositoryHas(path, v.edits[path]) {
			unsaved = append(unsaved, path)
		}
	}
	if len(unsaved) == 0 {
		return nil
	}
	return fmt.Errorf("the tree has unsaved edits in\n  %s\nBring them into the repository with `make save`, or drop them (git -C _output/kubernetes checkout FILE), and try again",
		strings.Join(unsaved, "\n  "))
}

// commitUpstream makes the commit of unchanged upstream.
func (h *house) commitUpstream(t *tree, u *upstream) (string, error) {
	h.say("downloading upstream %s: %d modules", u.version, len(u.modules))
	if err := u.download(); err != nil {
		return "", err
	}
	h.say("reading upstream's files and checking their hashes")
	var filesErr error
	id, err := t.git().commit("", upstreamMessage(u), u.files(&filesErr))
	return id, errors.Join(filesErr, err)
}

// lay updates the working files to commit 2. It keeps generated files as they are, because
// the generators decide about those.
func (h *house) lay(v *view, c *commits) error {
	g := h.tree.git()
	files, err := v.generated(g)
	if err != nil {
		return err
	}
	if c.generated, err = g.commit(c.ringmaster, generatedMessage, maps.All(files)); err != nil {
		return err
	}
	if *c == *v.commits && !v.dirty {
		return nil
	}
	h.say("updating the tree's files")
	return h.tree.bring(c)
}

// generate runs the generators, and makes commit 3 of their changes.
func (h *house) generate(c *commits) error {
	h.say("generating code")
	if err := h.codegen(h.tree.dir); err != nil {
		return fmt.Errorf("generating code: %w", err)
	}
	changes, err := h.tree.edited(c.generated)
	if err != nil || len(changes) == 0 {
		return err
	}
	for _, path := range sorted(changes) {
		if !generated.Is(path) {
			return fmt.Errorf("code generation changed %s, which is not a generated file according to hack/generated", path)
		}
	}
	g := h.tree.git()
	files, err := g.changed(c.ringmaster, c.generated)
	if err != nil {
		return err
	}
	maps.Copy(files, changes)
	if c.generated, err = g.commit(c.ringmaster, generatedMessage, maps.All(files)); err != nil {
		return err
	}
	return h.tree.record(c)
}
