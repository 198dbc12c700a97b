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
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ringmaster/hack/generated"
)

func TestOurs(t *testing.T) {
	for path, want := range map[string]bool{
		"README.md": true, "README.md.patch": false, "pkg/README.md": false, "go.mod": true, "go.mod.patch": false, "staging/src/k8s.io/api/go.mod": false,
		"docs/a.md": true, "pkg/docs/a.md": false, "hack/forktree/main.go": true, "hack/lib/a.sh": false, "hack/library.sh": true, "_output/a": true, "LICENSES/a": false,
		".ci/run": true, ".gitignore": true, "Makefile": true, "cmd/kubectl-ring/main.go": false,
	} {
		if got := ours(path); got != want {
			t.Errorf("ours(%q) is %v", path, got)
		}
	}
}

func TestVerifyFindsPatchesThatSaveWritesOtherwise(t *testing.T) {
	for name, patch := range map[string]string{
		"other lines":  strings.Replace(podsPatch, "-18,6 +18,7", "-19,6 +19,7", 1),
		"less context": "--- a/pkg/pods/pods.go\n+++ b/pkg/pods/pods.go\n@@ -20 +20,2 @@\n // line B8\n+// ours\n",
		"no change":    "--- a/pkg/pods/pods.go\n+++ b/pkg/pods/pods.go\n@@ -20 +20 @@\n // line B8\n",
		"a git header": "diff --git a/pkg/pods/pods.go b/pkg/pods/pods.go\nindex 123..456 100644\n" + podsPatch,
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, ourFiles.with(folder{"pkg/pods/pods.go.patch": patch}))
			fails(t, h.verify(), "pkg/pods/pods.go.patch is not as save writes it")
			must(t, h.make())
			must(t, h.save())
			must(t, h.verify())
		})
	}
}

func TestRebase(t *testing.T) {
	const nodesPatch = "--- a/pkg/nodes/types.go\n+++ b/pkg/nodes/types.go\n@@ -1,2 +1,3 @@\n package nodes\n type Node struct{}\n+type Ours int\n"
	apiPatch := strings.ReplaceAll(nodesPatch, "pkg/nodes/types.go", "staging/src/k8s.io/api/types.go")
	apiPatch = strings.Replace(apiPatch, "@@ -1,2 +1,3 @@\n package nodes\n type Node struct{}\n", "@@ -1 +1,2 @@\n package api\n", 1)
	h := newHouse(t, ourFiles.with(folder{"pkg/nodes/types.go.patch": nodesPatch, "staging/src/k8s.io/api/types.go.patch": apiPatch}))
	next := fakeUpstream(t, "v1.2.0", upstreamFiles.with(folder{
		"pkg/pods/pods.go":   "// more\n" + upstreamFiles["pkg/pods/pods.go"],
		"pkg/nodes/types.go": "package nodes\n",
		"pkg/rings/empty":    "upstream has it now\n",
	}))
	h.released = func(version string, paths []string) (*upstream, error) { return next, nil }
	var out bytes.Buffer
	h.out = &out
	before := read(t, h.root)
	fails(t, h.rebase("v1.2.0"), "not everything applies")
	equal(t, read(t, h.root), before)
	_, report, _ := strings.Cut(out.String(), "tried everything\n")
	want := `On upstream v1.2.0 (now v1.1.0)
   2 patches apply, 1 of them at other lines
       pkg/pods/pods.go.patch: hunk 1 by +1 lines
   3 files of ours go in
   2 patched files upstream changed too: read what changed, even where the patch applies
       pkg/nodes/types.go
       pkg/pods/pods.go
   2 files do not apply
       pkg/nodes/types.go.patch: hunk 1 of 1 (@@ -1,2 +1,3 @@) does not apply: the nearest place differs from it at line 2, which is
	the end of the file
and should be
	type Node struct{}
       pkg/rings/empty: upstream has this file: give yours another name, or make it a patch (edit the file in the tree, then save)
`
	if report != want {
		t.Errorf("the report is\n%s\nand should be\n%s", report, want)
	}
}

func TestVersionFlags(t *testing.T) {
	h := newHouse(t, ourFiles)
	must(t, h.make())
	flags := func() string {
		t.Helper()
		flags, err := h.versionFlags()
		must(t, err)
		return flags
	}
	has := func(flags, want string) {
		t.Helper()
		for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
			if !strings.Contains(flags+" ", "-X "+pkg+"."+want+" ") {
				t.Errorf("%s.%s is not in %s", pkg, want, flags)
			}
		}
	}
	has(flags(), "gitVersion=v1.1.0+ringmaster.0")
	g := git{h.root}
	commit := func() {
		t.Helper()
		for _, args := range [][]string{{"add", "."}, {"-c", "user.name=a", "-c", "user.email=b", "commit", "-q", "--allow-empty", "-m", "one", "--date=2020-01-01T00:00:00Z"}} {
			_, err := g.run(args...)
			must(t, err)
		}
	}
	commit()
	commit()
	id, err := g.run("rev-parse", "HEAD")
	must(t, err)
	has(flags(), "gitVersion=v1.1.0+ringmaster.2")
	has(flags(), "gitCommit="+strings.TrimSpace(id))
	has(flags(), "gitTreeState=clean")
	has(flags(), "gitMajor=1")
	has(flags(), "gitMinor=1")
	if flags() != flags() || !regexp.MustCompile(`buildDate=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ `).MatchString(flags()) {
		t.Errorf("the date is not one, or not always the same: %s", flags())
	}
	put(t, h.tree.dir, folder{"pkg/rings/empty": "edited\n"})
	has(flags(), "gitTreeState=dirty")
	put(t, h.tree.dir, folder{"pkg/rings/empty": ""})
	has(flags(), "gitTreeState=clean")
	put(t, h.root, folder{"README.md": "edited\n"})
	has(flags(), "gitTreeState=dirty")
}

// hack/generated goes by the files' places and names; upstream's generators say it in the files.
func TestGeneratedAgreesWithUpstreamsFiles(t *testing.T) {
	u, err := pinned(filepath.Join("..", ".."))
	must(t, err)
	must(t, u.download())
	header := regexp.MustCompile(`(?m)^// Code generated by (applyconfiguration|client|conversion|deepcopy|defaulter|informer|lister|openapi|prerelease-lifecycle|register|validation)-gen\. ` +
		`|^// Code generated by protoc-gen-gogo\. `)
	var filesErr error
	for path, f := range u.files(&filesErr) {
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "types_swagger_doc_generated.go") || strings.Contains(path, "/testdata/") {
			continue
		}
		top, _, _ := bytes.Cut(f.data, []byte("\npackage "))
		if got, want := generated.Is(path), header.Match(top); got != want {
			t.Errorf("generated.Is(%q) is %v, its header says %v", path, got, want)
		}
	}
	must(t, filesErr)
}
