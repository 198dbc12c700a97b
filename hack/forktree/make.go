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
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ringmaster/hack/generated"
)

// Messages of the tree's commits. Each ends in what the commit was made from, so that make can tell whether it still holds.
func upstreamMessage(u *upstream) string { return "upstream " + u.version + "\n\nsums: " + u.key() }

const ringmasterMessage = "ringmaster's files and patches"

func generatedMessage(key string) string { return "generated code\n\nfrom: " + key }

// stale is the key of generated code that nobody knows to be up to date.
const stale = "unknown"

// make makes the tree, or brings it up to date. Files whose content does not change are left alone, with their times.
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
		h.say("%s applies, but %s: saving the tree renews the line numbers", path, describe(o.moved[path]))
	}
	if c.ringmaster, err = h.tree.git().commit(c.upstream, ringmasterMessage, maps.All(o.files)); err != nil {
		return err
	}
	key, err := h.generatedKey(&c, o)
	if err != nil {
		return err
	}
	if err := h.generate(v, &c, key); err != nil {
		return err
	}
	h.say("the tree in %s is up to date: upstream %s, %d files of ours, %d patched", h.tree.dir, u.version, len(o.files)-o.patches, o.patches)
	return nil
}

// begin makes a tree of upstream alone, if there is no tree. It appears whole or not at all.
func (h *house) begin(u *upstream) error {
	if _, err := os.Stat(h.tree.dir); !os.IsNotExist(err) {
		return err
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

// refuseUnsaved returns an error when the tree has edits that the repository does not have.
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

// commitUpstream makes the commit of upstream as it is.
func (h *house) commitUpstream(t *tree, u *upstream) (string, error) {
	h.say("getting upstream %s: %d modules", u.version, len(u.modules))
	if err := u.download(); err != nil {
		return "", err
	}
	h.say("reading upstream's files, and checking their sums")
	var filesErr error
	id, err := t.git().commit("", upstreamMessage(u), u.files(&filesErr))
	return id, errors.Join(filesErr, err)
}

// generate brings the working files to commit 2 and makes commit 3: with the code generated before, if nothing that it comes from has changed.
func (h *house) generate(v *view, c *commits, key string) error {
	g := h.tree.git()
	before, err := g.changed(v.commits.ringmaster, v.commits.generated)
	if err != nil {
		return err
	}
	old, err := g.message(v.commits.generated)
	if err != nil {
		return err
	}
	if old == generatedMessage(key) {
		if c.generated, err = g.commit(c.ringmaster, generatedMessage(key), maps.All(before)); err != nil {
			return err
		}
		if *c == *v.commits && !v.dirty {
			return nil
		}
		h.say("updating the tree's files")
		return h.tree.bring(c)
	}
	stamps, err := h.stamps(v)
	if err != nil {
		return err
	}
	h.say("updating the tree's files")
	if c.generated, err = g.commit(c.ringmaster, generatedMessage(stale), none); err != nil {
		return err
	}
	if err := h.tree.bring(c); err != nil {
		return err
	}
	h.say("generating code")
	if err := h.codegen(h.tree.dir); err != nil {
		return fmt.Errorf("generating code: %w", err)
	}
	after, err := h.tree.edited(c.ringmaster)
	if err != nil {
		return err
	}
	for _, path := range sorted(after) {
		if !generated.Is(path) {
			return fmt.Errorf("code generation changed %s, which hack/generated does not call generated", path)
		}
	}
	if c.generated, err = g.commit(c.ringmaster, generatedMessage(key), maps.All(after)); err != nil {
		return err
	}
	return errors.Join(h.restore(stamps, c), h.tree.record(c))
}

// stamp is what a generated file was, and when it was written.
type stamp struct {
	blob string
	time time.Time
}

// stamps notes the generated files before they are generated again.
func (h *house) stamps(v *view) (map[string]stamp, error) {
	entries, err := h.tree.git().list(v.commits.generated)
	if err != nil {
		return nil, err
	}
	stamps := map[string]stamp{}
	for path, e := range entries {
		_, drifted := v.drift[path]
		if !generated.Is(path) || drifted {
			continue
		}
		info, err := os.Stat(filepath.Join(h.tree.dir, path))
		if err != nil {
			return nil, err
		}
		stamps[path] = stamp{e.blob, info.ModTime()}
	}
	return stamps, nil
}

// restore gives generated files that came out the same the time they had, so that what was built and tested from them counts as up to date.
func (h *house) restore(stamps map[string]stamp, c *commits) error {
	entries, err := h.tree.git().list(c.generated)
	if err != nil {
		return err
	}
	for path, s := range stamps {
		if entries[path].blob == s.blob {
			if err := os.Chtimes(filepath.Join(h.tree.dir, path), time.Time{}, s.time); err != nil {
				return err
			}
		}
	}
	return nil
}

// none is no files.
func none(func(string, *file) bool) {}

// generatedKey changes when anything does that generated code may come from.
func (h *house) generatedKey(c *commits, o *overlay) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, c.upstream)
	for _, path := range sorted(o.files) {
		if !strings.HasSuffix(path, "_test.go") {
			fmt.Fprintln(sum, path, blobID(o.files[path]))
		}
	}
	key, err := h.codegenKey()
	if err != nil {
		return "", err
	}
	fmt.Fprintln(sum, key)
	return hex.EncodeToString(sum.Sum(nil)), nil
}
