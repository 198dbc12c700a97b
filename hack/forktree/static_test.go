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
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheSourceOfAReleaseIsTheTreeAsItWasMade(t *testing.T) {
	h := newHouse(t, ourFiles)
	must(t, h.make())
	commit := func() string {
		t.Helper()
		source, err := h.source("v1.1.0")
		must(t, err)
		out, err := source.git().run("log", "-1", "--format=%H %D")
		must(t, err)
		id, refs, _ := strings.Cut(strings.TrimSpace(out), " ")
		if !strings.Contains(refs, "tag: v1.1.0") {
			t.Errorf("the source's commit has %s", refs)
		}
		if status, err := source.git().run("status", "--porcelain", "--ignored"); err != nil || status != "" {
			t.Errorf("git status: %v\n%s", err, status)
		}
		equal(t, read(t, source.dir), ourTree)
		return id
	}
	first := commit()
	// What a build and the tests have generated since is no part of it, nor is an edit of anybody.
	put(t, h.tree.dir, folder{"api/openapi-spec/swagger.json": "{}\n", "test/compatibility_lifecycle/reference/versioned_feature_list.yaml": "a: b\n"})
	must(t, h.make())
	put(t, h.tree.dir, folder{"pkg/rings/empty": "edited\n"})
	put(t, filepath.Join(h.root, "_output", "static", "source"), folder{"pkg/rings/empty": "edited\n", "left.go": "package left\n"})
	if again := commit(); again != first {
		t.Errorf("the source was %s, and is %s", first, again)
	}
	// There the tag is upstream's.
	c, err := h.tree.commits()
	must(t, err)
	if tagged, err := h.tree.git().run("rev-parse", "refs/tags/v1.1.0"); err != nil || strings.TrimSpace(tagged) != c.upstream {
		t.Errorf("the tree's tag is at %q, not at %s: %v", tagged, c.upstream, err)
	}
}

func TestAStaticBuildRefusesWhatIsNotReleased(t *testing.T) {
	h := newHouse(t, ourFiles)
	must(t, h.make())
	for _, tc := range []struct{ platform, name, err string }{
		{"linux", "kubectl", `"linux" is no platform`},
		{"linux/amd64", "etcd", "etcd is not of the tree"},
		{"linux/amd64", "kubectl-rings", "there is no binary"},
	} {
		if err := h.static(tc.platform, []string{tc.name}); err == nil || !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s for %s: %v, want %s", tc.name, tc.platform, err, tc.err)
		}
	}
	must(t, os.WriteFile(filepath.Join(h.root, ".git", "shallow"), []byte(strings.Repeat("0", 40)+"\n"), 0o644))
	if err := h.static("linux/amd64", []string{"kubectl"}); err == nil || !strings.Contains(err.Error(), "git fetch --unshallow") {
		t.Errorf("a shallow clone: %v", err)
	}
}
