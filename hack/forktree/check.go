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
	"fmt"
	"strings"
)

// check applies all patches to upstream's files in memory.
func (h *house) check() error {
	u, err := h.pinned()
	if err != nil {
		return err
	}
	if err := u.download(); err != nil {
		return err
	}
	sources, err := h.sources()
	if err != nil {
		return err
	}
	o, err := overlayOn(u, sources)
	if err != nil {
		return err
	}
	if err := o.err(); err != nil {
		return err
	}
	for _, path := range sorted(o.moved) {
		h.say("%s applies, but %s: `make tree save` updates its line numbers", path, describe(o.moved[path]))
	}
	h.say("%d patches and %d files of ours apply to upstream %s", o.patches, len(o.files)-o.patches, u.version)
	return nil
}

// overlayOn applies the repository's files to upstream's modules.
func overlayOn(u *upstream, sources map[string]*file) (*overlay, error) {
	there := map[string]*file{}
	for path := range sources {
		target, _ := strings.CutSuffix(path, patchSuffix)
		f, err := u.read(target)
		if err != nil {
			return nil, err
		}
		if f != nil {
			there[target] = f
		}
	}
	return newOverlay(sources, there, func(path string) bool { return there[path] != nil }), nil
}

// describe lists the offsets at which hunks applied.
func describe(moved []placed) string {
	var all []string
	for _, p := range moved {
		all = append(all, fmt.Sprintf("hunk %d by %+d lines", p.hunk, p.offset))
	}
	return strings.Join(all, ", ")
}
