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
	"strings"
	"testing"
)

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
