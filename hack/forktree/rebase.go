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
	"slices"
)

// rebase tries all patches on another version of upstream, and lists what to review before
// go.mod requires it. It changes nothing.
func (h *house) rebase(version string) error {
	old, err := h.pinned()
	if err != nil {
		return err
	}
	if err := old.download(); err != nil {
		return err
	}
	sources, err := h.sources()
	if err != nil {
		return err
	}
	h.say("downloading upstream %s", version)
	u, err := h.released(version, sorted(sources))
	if err != nil {
		return err
	}
	o, err := overlayOn(u, sources)
	if err != nil {
		return err
	}
	changed, err := changedUpstream(o, old, u)
	if err != nil {
		return err
	}
	h.say("tried everything")
	fmt.Fprintf(h.out, "On upstream %s (now %s)\n%4d patches apply, %d of them at other lines\n", u.version, old.version, o.patches, len(o.moved))
	for _, path := range sorted(o.moved) {
		fmt.Fprintf(h.out, "       %s: %s\n", path, describe(o.moved[path]))
	}
	fmt.Fprintf(h.out, "%4d files of ours go in\n", len(o.files)-o.patches)
	fmt.Fprintf(h.out, "%4d patched files upstream changed too: read what changed, even where the patch applies\n", len(changed))
	for _, path := range changed {
		fmt.Fprintf(h.out, "       %s\n", path)
	}
	fmt.Fprintf(h.out, "%4d files do not apply\n", len(o.problems))
	for _, path := range sorted(o.problems) {
		fmt.Fprintf(h.out, "       %s: %v\n", path, o.problems[path])
	}
	if len(o.problems) > 0 {
		return errors.New("not everything applies")
	}
	return nil
}

// changedUpstream returns the patched files that differ between two versions of upstream.
func changedUpstream(o *overlay, old, new *upstream) ([]string, error) {
	var changed []string
	for _, path := range o.patched {
		before, err := old.read(path)
		if err != nil {
			return nil, err
		}
		after, err := new.read(path)
		if err != nil {
			return nil, err
		}
		if !before.equal(after) {
			changed = append(changed, path)
		}
	}
	slices.Sort(changed)
	return changed, nil
}
