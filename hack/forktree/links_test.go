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
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestUpstreamsLinksAreMade(t *testing.T) {
	h := newHouse(t, ourFiles)
	u := fakeUpstream(t, "v1.1.0", upstreamFiles.with(folder{"build/root/Makefile": "all:\n", "cluster/gce/gci/run": "run\n", "cluster/gce/cos": "a file\n"}))
	h.pinned = func() (*upstream, error) { return u, nil }
	must(t, h.make())
	to := func(path string) string {
		t.Helper()
		target, err := os.Readlink(filepath.Join(h.tree.dir, path))
		must(t, err)
		return target
	}
	if got := to("Makefile"); got != "build/root/Makefile" {
		t.Errorf("Makefile leads to %s", got)
	}
	if got := to("cluster/gce/ubuntu"); got != "gci" {
		t.Errorf("cluster/gce/ubuntu leads to %s", got)
	}
	if got := slices.Sorted(maps.Keys(linksIn(u.modules[0].dir))); !slices.Equal(got, []string{"Makefile", "cluster/gce/custom", "cluster/gce/ubuntu"}) {
		t.Errorf("the links are %v: one leads nowhere, or is in the place of a file", got)
	}
	// They stay as they are, and are no edits.
	must(t, h.save())
	must(t, h.make())

	link := filepath.Join(h.tree.dir, "Makefile")
	must(t, os.Remove(link))
	if err := h.save(); err == nil || !strings.Contains(err.Error(), "upstream's symbolic link") {
		t.Errorf("a link that is deleted: %v", err)
	}
	must(t, os.WriteFile(link, []byte("all:\n"), 0o644))
	if err := h.save(); err == nil || !strings.Contains(err.Error(), "upstream's symbolic link") {
		t.Errorf("a file in the place of a link: %v", err)
	}
	must(t, os.Remove(link))
	must(t, os.Symlink("elsewhere", link))
	if err := h.save(); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("a link to elsewhere: %v", err)
	}
}
