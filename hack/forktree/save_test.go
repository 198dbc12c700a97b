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
	"strings"
	"testing"
)

func TestSave(t *testing.T) {
	tests := map[string]struct {
		edit folder // in the tree
		want folder // in the repository
	}{
		"nothing": {},
		"a new file": {
			edit: folder{"pkg/new/new.go": "package new\n"},
			want: folder{"pkg/new/new.go": "package new\n"},
		},
		"a new script": {
			edit: folder{"pkg/new.sh": "#!/bin/sh\n"},
			want: folder{"pkg/new.sh": "#!/bin/sh\n"},
		},
		"a new file whose name begins with a dot": {
			edit: folder{"pkg/rings/.import-restrictions": "rules: []\n"},
			want: folder{"pkg/rings/.import-restrictions": "rules: []\n"},
		},
		"a file of ours": {
			edit: folder{"pkg/rings/types.go": "package ring\n"},
			want: folder{"pkg/rings/types.go": "package ring\n"},
		},
		"a file of ours that goes, with its folder": {
			edit: folder{"pkg/rings/types.go": deleted, "pkg/rings/empty": deleted, "pkg/rings/run.sh": deleted},
			want: folder{"pkg/rings/types.go": deleted, "pkg/rings/empty": deleted, "pkg/rings/run.sh": deleted},
		},
		"a file of upstream's": {
			edit: folder{"pkg/nodes/types.go": "package nodes\ntype Node struct{}\ntype Ours int\n"},
			want: folder{"pkg/nodes/types.go.patch": "--- a/pkg/nodes/types.go\n+++ b/pkg/nodes/types.go\n@@ -1,2 +1,3 @@\n package nodes\n type Node struct{}\n+type Ours int\n"},
		},
		"a file of upstream's in a module beside it": {
			edit: folder{"staging/src/k8s.io/api/types.go": "package ours\n"},
			want: folder{"staging/src/k8s.io/api/types.go.patch": "--- a/staging/src/k8s.io/api/types.go\n+++ b/staging/src/k8s.io/api/types.go\n@@ -1 +1 @@\n-package api\n+package ours\n"},
		},
		"a script of upstream's in hack/lib": {
			edit: folder{"hack/lib/init.sh": "#!/bin/sh\necho two\n"},
			want: folder{"hack/lib/init.sh.patch": "--- a/hack/lib/init.sh\n+++ b/hack/lib/init.sh\n@@ -1,2 +1,2 @@\n #!/bin/sh\n-echo one\n+echo two\n"},
		},
		"a file that has a patch": {
			edit: folder{"pkg/pods/pods.go": strings.Replace(patchedPods, "// ours\n", "// ours too\n", 1)},
			want: folder{"pkg/pods/pods.go.patch": strings.Replace(podsPatch, "// ours\n", "// ours too\n", 1)},
		},
		"a file put back as upstream has it": {
			edit: folder{"pkg/pods/pods.go": upstreamFiles["pkg/pods/pods.go"]},
			want: folder{"pkg/pods/pods.go.patch": deleted},
		},
		"a name that only the tree's root shares with ours": {
			edit: folder{"README.md": "edited\n", "pkg/docs/README.md": "new\n"},
			want: folder{"README.md.patch": "--- a/README.md\n+++ b/README.md\n@@ -1 +1 @@\n-upstream\n+edited\n", "pkg/docs/README.md": "new\n"},
		},
		"no newline at the end": {
			edit: folder{"README.md": "upstream\nmore", "pkg/new.txt": "text"},
			want: folder{"README.md.patch": "--- a/README.md\n+++ b/README.md\n@@ -1 +1,2 @@\n upstream\n+more\n\\ No newline at end of file\n", "pkg/new.txt": "text"},
		},
		"carriage returns": {
			edit: folder{"crlf.txt": "a\r\nc\r\n"},
			want: folder{"crlf.txt.patch": "--- a/crlf.txt\n+++ b/crlf.txt\n@@ -1,2 +1,2 @@\n a\r\n-b\r\n+c\r\n"},
		},
		"generated files, which are left out": {
			edit: folder{"pkg/pods/zz_generated.pb.go": "edited\n", "pkg/new/zz_generated.pb.go": "new\n", "pkg/nodes/zz_generated.pb.go": deleted},
		},
		"files that git ignores, which are left out": {
			edit: folder{"pkg/pods.test": "built\n"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, ourFiles)
			must(t, h.make())
			before := read(t, h.root)
			put(t, h.tree.dir, test.edit)
			edited := read(t, h.tree.dir)
			unwritten := age(t, h.tree.dir)
			must(t, h.save())
			equal(t, read(t, h.root), before.with(test.want))
			equal(t, read(t, h.tree.dir), edited)
			if written := unwritten(); len(written) > 0 {
				t.Errorf("save wrote to the tree: %v", written)
			}
			if status, err := h.tree.git().run("status", "--porcelain"); err != nil || status != "" {
				t.Errorf("git status in the tree after saving: %v\n%s", err, status)
			}
			// Everything is saved, so make finds no unsaved edits. The tree keeps the edits, and
			// the code generated from them.
			must(t, h.make())
			want := edited.with(nil)
			maps.DeleteFunc(want, func(path, _ string) bool { return strings.HasSuffix(path, ".pb.go") })
			got := read(t, h.tree.dir)
			maps.DeleteFunc(got, func(path, _ string) bool { return strings.HasSuffix(path, ".pb.go") })
			equal(t, got, want)
		})
	}
}

func TestSaveAndVerify(t *testing.T) {
	h := newHouse(t, ourFiles)
	must(t, h.make())
	put(t, h.tree.dir, folder{
		"pkg/new/new.go": "package new\n", "pkg/new/.import-restrictions": "rules: []\n", "pkg/rings/empty": deleted, "pkg/nodes/types.go": "package nodes\ntype Node struct{}\ntype Ours int\n",
		"pkg/pods/pods.go": "package pods\n", "crlf.txt": "a\r\nc\n", "hack/lib/init.sh": "#!/bin/sh", "README.md": "",
	})
	must(t, h.save())
	must(t, h.verify())
}

// The first save of a tree that was made by hand finds only upstream's commit.
func TestSaveOfATreeWithUpstreamsCommitAlone(t *testing.T) {
	h := newHouse(t, nil)
	put(t, h.tree.dir, upstreamFiles)
	for _, args := range [][]string{{"init", "-q"}, {"add", "-f", "."}, {"-c", "user.name=a", "-c", "user.email=b", "commit", "-q", "-m", "upstream"}} {
		if _, err := h.tree.git().run(args...); err != nil {
			t.Fatal(err)
		}
	}
	before := read(t, h.root)
	put(t, h.tree.dir, ourTree)
	must(t, h.save())
	equal(t, read(t, h.root), before.with(ourFiles))
	equal(t, read(t, h.tree.dir), ourTree)
	must(t, h.make())
	equal(t, read(t, h.tree.dir), ourTree)
}

// Commits made by hand in the tree count as edits.
func TestSaveOfCommits(t *testing.T) {
	h := newHouse(t, ourFiles)
	must(t, h.make())
	before := read(t, h.root)
	put(t, h.tree.dir, folder{"pkg/rings/empty": "committed\n"})
	if _, err := h.tree.git().run("-c", "user.name=a", "-c", "user.email=b", "commit", "-q", "-a", "-m", "mine"); err != nil {
		t.Fatal(err)
	}
	fails(t, h.make(), "pkg/rings/empty")
	must(t, h.save())
	equal(t, read(t, h.root), before.with(folder{"pkg/rings/empty": "committed\n"}))
	must(t, h.make())
}

// A patch cannot change a run bit. Upstream's is kept, and a changed one is not an edit.
func TestRunBitsOfUpstreamsFiles(t *testing.T) {
	h := newHouse(t, ourFiles)
	must(t, h.make())
	before := read(t, h.root)
	must(t, os.Chmod(filepath.Join(h.tree.dir, "pkg/nodes/types.go"), 0o755))
	must(t, h.save())
	equal(t, read(t, h.root), before)
	put(t, h.root, folder{"pkg/rings/empty": "full\n"})
	must(t, h.make())
	equal(t, read(t, h.tree.dir), ourTree.with(folder{"pkg/rings/empty": "full\n"}))
}

func TestSaveRefuses(t *testing.T) {
	tests := map[string]struct {
		edit folder
		say  string
	}{
		"a binary":                      {folder{"pkg/tool": "\x7fELF\x00"}, "pkg/tool: a binary"},
		"a deleted file of upstream's":  {folder{"pkg/nodes/types.go": deleted}, "pkg/nodes/types.go: upstream's file is deleted"},
		"our own places":                {folder{"docs/a.md": "new\n"}, "docs/a.md: this place"},
		"upstream's file in our places": {folder{"hack/update.sh": "#!/bin/sh\nedited\n"}, "hack/update.sh: this place"},
		"a new patch":                   {folder{"pkg/a.patch": "new\n"}, "pkg/a.patch: "},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, ourFiles)
			must(t, h.make())
			before := read(t, h.root)
			put(t, h.tree.dir, test.edit)
			put(t, h.tree.dir, folder{"pkg/rings/types.go": "package ring\n"})
			fails(t, h.save(), test.say)
			equal(t, read(t, h.root), before)
		})
	}
	t.Run("a symbolic link", func(t *testing.T) {
		h := newHouse(t, ourFiles)
		must(t, h.make())
		must(t, os.Symlink("pods.go", h.tree.dir+"/pkg/pods/link.go"))
		fails(t, h.save(), "pkg/pods/link.go")
	})
}

// The repository changed after the tree was made, for example by a pull.
func TestSaveAfterTheRepositoryChanged(t *testing.T) {
	change := folder{"pkg/rings/types.go": "package pulled\n", "pkg/rings/empty": deleted, "pkg/pods/pods.go.patch": strings.Replace(podsPatch, "// ours", "// pulled", 1)}
	t.Run("elsewhere", func(t *testing.T) {
		h := newHouse(t, ourFiles)
		must(t, h.make())
		put(t, h.root, change)
		before := read(t, h.root)
		put(t, h.tree.dir, folder{"pkg/rings/run.sh": "#!/bin/sh\nedited\n"})
		must(t, h.save())
		equal(t, read(t, h.root), before.with(folder{"pkg/rings/run.sh": "#!/bin/sh\nedited\n"}))
		must(t, h.make())
		equal(t, read(t, h.tree.dir), ourTree.with(folder{
			"pkg/rings/run.sh": "#!/bin/sh\nedited\n", "pkg/rings/types.go": "package pulled\n", "pkg/rings/zz_generated.pb.go": generatedFrom("package pulled\n"),
			"pkg/rings/empty": deleted, "pkg/pods/pods.go": strings.Replace(patchedPods, "// ours", "// pulled", 1),
		}))
	})
	for path, data := range map[string]string{
		"pkg/rings/types.go": "package edited\n", "pkg/rings/empty": "edited\n", "pkg/pods/pods.go": strings.Replace(patchedPods, "// ours", "// edited", 1),
	} {
		t.Run(path, func(t *testing.T) {
			h := newHouse(t, ourFiles)
			must(t, h.make())
			put(t, h.root, change)
			before := read(t, h.root)
			put(t, h.tree.dir, folder{path: data, "pkg/rings/run.sh": "#!/bin/sh\nedited\n"})
			fails(t, h.save(), path+": changed here and in the tree")
			equal(t, read(t, h.root), before)
		})
	}
}
