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
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestMake(t *testing.T) {
	h := newHouse(t, ourFiles)
	must(t, h.make())
	equal(t, read(t, h.tree.dir), ourTree)

	c, err := h.tree.commits()
	must(t, err)
	upstream, err := h.tree.git().list(c.upstream)
	must(t, err)
	if len(upstream) != len(upstreamFiles) {
		t.Errorf("the first commit has %d files, upstream has %d", len(upstream), len(upstreamFiles))
	}
	if tagged, err := h.tree.git().run("rev-parse", "refs/tags/v1.1.0"); err != nil || strings.TrimSpace(tagged) != c.upstream {
		t.Errorf("upstream's tag is at %q, not at %s: %v", tagged, c.upstream, err)
	}
	laid, err := h.tree.git().list(c.ringmaster)
	must(t, err)
	if _, ok := laid["pkg/rings/zz_generated.pb.go"]; ok || len(laid) != len(upstream)+len(ourFiles)-1 {
		t.Errorf("the second commit should have our files alone over upstream's")
	}
	if status, err := h.tree.git().run("status", "--porcelain"); err != nil || status != "" {
		t.Errorf("git status: %v\n%s", err, status)
	}
}

func TestMakeAgainTouchesNothing(t *testing.T) {
	h := newHouse(t, ourFiles)
	must(t, h.make())
	before, err := h.tree.commits()
	must(t, err)
	unwritten := age(t, h.tree.dir)
	must(t, h.make())
	after, err := h.tree.commits()
	must(t, err)
	if *before != *after {
		t.Errorf("commits changed from %v to %v", before, after)
	}
	if written := unwritten(); len(written) > 0 {
		t.Errorf("files were written again: %v", written)
	}
}

// Changes of the repository change the tree, and no other file is written.
func TestMakeUpdates(t *testing.T) {
	tests := map[string]struct {
		change  folder
		want    folder // in the tree
		written []string
	}{
		"a file": {
			change:  folder{"pkg/rings/empty": "full\n"},
			want:    folder{"pkg/rings/empty": "full\n"},
			written: []string{"pkg/rings/empty"},
		},
		"what code is generated from": {
			change:  folder{"pkg/rings/types.go": "package ring\n"},
			want:    folder{"pkg/rings/types.go": "package ring\n", "pkg/rings/zz_generated.pb.go": generatedFrom("package ring\n")},
			written: []string{"pkg/rings/types.go", "pkg/rings/zz_generated.pb.go"},
		},
		"a new patch": {
			change: folder{"pkg/nodes/types.go.patch": "--- a/pkg/nodes/types.go\n+++ b/pkg/nodes/types.go\n@@ -1,2 +1,3 @@\n package nodes\n type Node struct{}\n+type Ours int\n"},
			want: folder{
				"pkg/nodes/types.go":           "package nodes\ntype Node struct{}\ntype Ours int\n",
				"pkg/nodes/zz_generated.pb.go": generatedFrom("package nodes\ntype Node struct{}\ntype Ours int\n"),
			},
			written: []string{"pkg/nodes/types.go", "pkg/nodes/zz_generated.pb.go"},
		},
		"a patch that goes": {
			change:  folder{"pkg/pods/pods.go.patch": deleted},
			want:    folder{"pkg/pods/pods.go": upstreamFiles["pkg/pods/pods.go"]},
			written: []string{"pkg/pods/pods.go"},
		},
		"a file that goes, with what was generated from it": {
			change: folder{"pkg/rings/types.go": deleted},
			want:   folder{"pkg/rings/types.go": deleted, "pkg/rings/zz_generated.pb.go": deleted},
		},
		"a run bit": {
			change:  folder{"pkg/rings/empty": "#!/bin/sh\n"},
			want:    folder{"pkg/rings/empty": "#!/bin/sh\n"},
			written: []string{"pkg/rings/empty"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, ourFiles)
			must(t, h.make())
			unwritten := age(t, h.tree.dir)
			put(t, h.root, test.change)
			must(t, h.make())
			equal(t, read(t, h.tree.dir), ourTree.with(test.want))
			if written := unwritten(); strings.Join(written, " ") != strings.Join(test.written, " ") {
				t.Errorf("written: %v, should be %v", written, test.written)
			}
		})
	}
}

func TestMakeOnAnotherUpstream(t *testing.T) {
	h := newHouse(t, ourFiles)
	must(t, h.make())
	moved := upstreamFiles.with(folder{
		"pkg/pods/pods.go":   "// two\n// more\n" + upstreamFiles["pkg/pods/pods.go"],
		"pkg/nodes/types.go": deleted, "pkg/nodes/zz_generated.pb.go": deleted,
		"pkg/new.go": "package pkg\n",
	})
	u := fakeUpstream(t, "v1.1.1", moved)
	h.pinned = func() (*upstream, error) { return u, nil }
	must(t, h.make())
	equal(t, read(t, h.tree.dir), ourTree.with(folder{
		"pkg/pods/pods.go":   "// two\n// more\n" + patchedPods,
		"pkg/nodes/types.go": deleted, "pkg/nodes/zz_generated.pb.go": deleted,
		"pkg/new.go": "package pkg\n",
	}))
	// The patch applied at other lines. Saving updates its line numbers.
	must(t, h.save())
	if patch := read(t, h.root)["pkg/pods/pods.go.patch"]; !strings.Contains(patch, "@@ -20,6 +20,7 @@") {
		t.Errorf("the patch was not renewed:\n%s", patch)
	}
	must(t, h.verify())
}

func TestMakeRefuses(t *testing.T) {
	tests := map[string]struct {
		files folder
		say   []string
	}{
		"a patch whose context is not there": {
			folder{"pkg/pods/pods.go.patch": strings.Replace(podsPatch, "line B7", "line XX", 1)},
			[]string{"pkg/pods/pods.go.patch: hunk 1 of 1 (@@ -18,6 +18,7 @@)", "line 19", "// line B7", "// line XX", "mend the patch"},
		},
		"a patch of no file": {
			folder{"pkg/gone.go.patch": strings.ReplaceAll(podsPatch, "pkg/pods/pods.go", "pkg/gone.go")},
			[]string{"pkg/gone.go.patch", "upstream has no pkg/gone.go"},
		},
		"a patch in the wrong place": {
			folder{"pkg/pods/types.go.patch": podsPatch},
			[]string{"pkg/pods/types.go.patch", "names pkg/pods/pods.go"},
		},
		"a patch that is none": {
			folder{"pkg/pods/pods.go.patch": "hello\n"},
			[]string{"pkg/pods/pods.go.patch", "no patch"},
		},
		"a file that upstream has": {
			folder{"pkg/pods/pods.go": "package mine\n"},
			[]string{"pkg/pods/pods.go", "upstream has this file"},
		},
		"a generated file": {
			folder{"pkg/rings/zz_generated.pb.go": "package mine\n"},
			[]string{"pkg/rings/zz_generated.pb.go", "generated"},
		},
		"a patch of a generated file": {
			folder{"pkg/pods/zz_generated.pb.go.patch": podsPatch},
			[]string{"pkg/pods/zz_generated.pb.go.patch", "generated"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, ourFiles.with(test.files))
			fails(t, h.make(), test.say...)
			fails(t, h.check(), test.say...)
		})
	}
}

func TestMakeRefusesWhileThereAreUnsavedEdits(t *testing.T) {
	edits := map[string]folder{
		"of our file":             {"pkg/rings/empty": "edited\n"},
		"of upstream's":           {"crlf.txt": "edited\n"},
		"new":                     {"pkg/new.go": "package pkg\n"},
		"deleted":                 {"pkg/rings/empty": deleted},
		"of a run bit":            {"pkg/rings/empty": "#!/bin/sh\n"},
		"of what cannot be saved": {"hack/update.sh": "#!/bin/sh\nedited\n"},
		"that git ignores":        {"pkg/ignored.test": "in the way\n"},
		"a folder's place":        {"pkg/rings": "a file\n", "pkg/rings/types.go": deleted, "pkg/rings/empty": deleted, "pkg/rings/run.sh": deleted},
	}
	for name, edit := range edits {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, ourFiles)
			must(t, h.make())
			if _, ok := edit["pkg/rings"]; ok {
				must(t, os.RemoveAll(filepath.Join(h.tree.dir, "pkg/rings")))
				put(t, h.tree.dir, folder{"pkg/rings": "a file\n"})
			} else {
				put(t, h.tree.dir, edit)
			}
			put(t, h.root, folder{"pkg/rings/other.go": "package rings\n", "pkg/ignored.test": "ours\n"})
			before := read(t, h.tree.dir)
			fails(t, h.make(), sorted(edit)[0], "unsaved", "save")
			equal(t, read(t, h.tree.dir), before)
		})
	}
}

func TestMakeTakesEditsThatTheRepositoryHas(t *testing.T) {
	h := newHouse(t, ourFiles)
	must(t, h.make())
	for _, dir := range []string{h.root, h.tree.dir} {
		put(t, dir, folder{"pkg/rings/empty": "the same\n", "pkg/new.go": "package pkg\n"})
	}
	must(t, h.make())
	equal(t, read(t, h.tree.dir), ourTree.with(folder{"pkg/rings/empty": "the same\n", "pkg/new.go": "package pkg\n"}))
}

func TestMakeGeneratesAgain(t *testing.T) {
	h := newHouse(t, ourFiles)
	must(t, h.make())
	put(t, h.tree.dir, folder{"pkg/pods/zz_generated.pb.go": "by hand\n", "pkg/nodes/zz_generated.pb.go": deleted})
	must(t, h.make())
	equal(t, read(t, h.tree.dir), ourTree)
}

// Another run of the generators makes fixtures on demand. make does not touch them.
func TestMakeKeepsFixtures(t *testing.T) {
	fixtures := folder{"staging/src/k8s.io/api/testdata/HEAD/pod.json": "new\n", "staging/src/k8s.io/api/testdata/HEAD/node.json": "new\n"}
	h := newHouse(t, ourFiles)
	must(t, h.make())
	put(t, h.tree.dir, fixtures)
	for range 2 {
		put(t, h.root, folder{"pkg/rings/empty": "full\n"})
		must(t, h.make())
		equal(t, read(t, h.tree.dir), ourTree.with(fixtures).with(folder{"pkg/rings/empty": "full\n"}))
	}
	must(t, h.save())
	must(t, h.verify())
}

func TestMakeRefusesOtherFilesOfTheGenerator(t *testing.T) {
	h := newHouse(t, ourFiles)
	h.codegen = func(tree string) error { return os.WriteFile(filepath.Join(tree, "pkg", "odd.go"), nil, 0o644) }
	fails(t, h.make(), "pkg/odd.go")
}

// A make whose generator fails leaves no unsaved edits, and the next make continues.
func TestMakeAfterFailedGeneration(t *testing.T) {
	h := newHouse(t, ourFiles)
	h.codegen = func(string) error { return errors.New("broken") }
	fails(t, h.make(), "broken")
	fails(t, h.make(), "broken")
	h.codegen = generate
	must(t, h.make())
	equal(t, read(t, h.tree.dir), ourTree)
}

// A make that was killed while it wrote files leaves no unsaved edits either.
func TestMakeAfterStoppedMake(t *testing.T) {
	h := newHouse(t, ourFiles)
	must(t, h.make())
	put(t, h.root, folder{"pkg/rings/empty": "full\n", "pkg/new.go": "package pkg\n", "pkg/rings/run.sh": deleted})
	v, err := h.view()
	must(t, err)
	target, err := h.tree.git().commit(v.commits.upstream, "target", func(yield func(string, *file) bool) {
		for path, f := range v.overlay.files {
			if !yield(path, f) {
				return
			}
		}
	})
	must(t, err)
	if _, err := h.tree.git().run("update-ref", makingRef, target); err != nil {
		t.Fatal(err)
	}
	put(t, h.tree.dir, folder{"pkg/rings/empty": "full\n", "pkg/rings/run.sh": deleted})
	// Meanwhile the repository changes again.
	put(t, h.root, folder{"pkg/rings/empty": "fuller\n"})
	must(t, h.make())
	equal(t, read(t, h.tree.dir), ourTree.with(folder{"pkg/rings/empty": "fuller\n", "pkg/new.go": "package pkg\n", "pkg/rings/run.sh": deleted}))
}

func TestMakeRefusesChangedUpstream(t *testing.T) {
	h := newHouse(t, ourFiles)
	u, err := h.pinned()
	must(t, err)
	at := filepath.Join(u.modules[0].dir, "pkg/pods/pods.go")
	must(t, errors.Join(os.Chmod(at, 0o644), os.WriteFile(at, []byte("changed\n"), 0o444)))
	fails(t, h.make(), u.modules[0].dir, "was changed")
	if _, err := os.Stat(h.tree.dir); !os.IsNotExist(err) {
		t.Errorf("there is a tree: %v", err)
	}
}

func TestMakeRefusesAFolderThatIsNoTree(t *testing.T) {
	h := newHouse(t, ourFiles)
	put(t, h.tree.dir, folder{"important.txt": "mine\n"})
	fails(t, h.make(), h.tree.dir)
	equal(t, read(t, h.tree.dir), folder{"important.txt": "mine\n"})
}

// age makes all files look old, and returns a function that lists those written since.
func age(t *testing.T, dir string) (written func() []string) {
	t.Helper()
	old := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	for path := range read(t, dir) {
		must(t, os.Chtimes(filepath.Join(dir, path), old, old))
	}
	return func() []string {
		var all []string
		for _, path := range sorted(read(t, dir)) {
			info, err := os.Stat(filepath.Join(dir, path))
			must(t, err)
			if !info.ModTime().Equal(old) {
				all = append(all, path)
			}
		}
		return all
	}
}
