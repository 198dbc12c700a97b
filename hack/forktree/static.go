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

// static builds the named binaries of the tree as they are released, for a platform such as
// linux/arm64, into _output/static/linux-arm64: they need no library and have no symbols. It builds
// commits, not edits, with the version of Go that upstream builds with, so the same commit gives
// the same bytes.
func (h *house) static(platform string, names []string) error {
	goos, goarch, ok := strings.Cut(platform, "/")
	if !ok {
		return fmt.Errorf("%q is no platform, such as linux/arm64", platform)
	}
	chosen, err := choose(names, func(b binary) bool { return b.inTree })
	if err != nil {
		return err
	}
	for _, b := range chosen {
		if !b.inTree {
			return fmt.Errorf("%s is not of the tree, and not released", b.name)
		}
	}
	if shallow, err := (git{h.root}).run("rev-parse", "--is-shallow-repository"); err != nil || strings.TrimSpace(shallow) == "true" {
		return errors.Join(err, errors.New("a shallow clone does not know the number of its commit, which is in the version: run git fetch --unshallow"))
	}
	v, err := h.version()
	if err != nil {
		return err
	}
	source, err := h.source(v.Upstream)
	if err != nil {
		return err
	}
	toolchain, err := os.ReadFile(filepath.Join(source.dir, ".go-version"))
	if err != nil {
		return err
	}
	env := []string{
		"CGO_ENABLED=0", "GOOS=" + goos, "GOARCH=" + goarch, "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFLAGS=-trimpath",
		"GOTOOLCHAIN=go" + strings.TrimSpace(string(toolchain)),
		// The source may be another user's.
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
	}
	into := filepath.Join(h.root, "_output", "static", goos+"-"+goarch)
	return h.compile(chosen, source.dir, into, env, "-buildvcs=true", "-ldflags", "-s -w "+v.flags())
}

// source checks out what a release is built from, the tree as it was made, in a repository of its
// own. There it has the tag of upstream's version, so that the binaries have that as the version of
// their module. Files that are made of built binaries, or only for tests, are upstream's.
func (h *house) source(version string) (*tree, error) {
	c, err := h.tree.commits()
	if err != nil {
		return nil, err
	}
	g := h.tree.git()
	files, err := g.changed(c.ringmaster, c.generated)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(files, func(path string, _ *file) bool { return generated.IsAPI(path) || generated.IsFixture(path) })
	id, err := g.commit(c.ringmaster, generatedMessage, maps.All(files))
	if err != nil {
		return nil, err
	}
	t := &tree{dir: filepath.Join(h.root, "_output", "static", "source")}
	// The objects stay in the tree's repository.
	objects := filepath.Join(t.dir, ".git", "objects", "info", "alternates")
	if err := os.MkdirAll(t.dir, 0o755); err != nil {
		return nil, err
	}
	if _, err := t.git().run("init", "-q", "-b", filepath.Base(branch)); err != nil {
		return nil, err
	}
	if err := os.WriteFile(objects, []byte(filepath.Join(h.tree.dir, ".git", "objects")+"\n"), 0o644); err != nil {
		return nil, err
	}
	if err := t.bring(&commits{c.upstream, c.ringmaster, id}); err != nil {
		return nil, err
	}
	if _, err := t.git().run("update-ref", "refs/tags/"+version, id); err != nil {
		return nil, err
	}
	_, err = t.git().run("clean", "-fdxq")
	return t, err
}
