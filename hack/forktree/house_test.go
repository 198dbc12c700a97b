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
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// folder has the files of a folder by path. Scripts are executable.
type folder map[string]string

// upstreamFiles is a tiny upstream with two modules, a generated file beside each types.go,
// and a script.
var upstreamFiles = folder{
	"go.work":                         "use (\n\t.\n\t./staging/src/k8s.io/api\n)\n",
	"README.md":                       "upstream\n",
	".gitignore":                      "*.test\n",
	".gitattributes":                  "* text eol=lf\n",
	"crlf.txt":                        "a\r\nb\r\n",
	"a.test":                          "upstream has files that it ignores\n",
	"hack/lib/init.sh":                "#!/bin/sh\necho one\n",
	"hack/update.sh":                  "#!/bin/sh\n",
	"pkg/pods/pods.go":                lines("package pods", 40),
	"pkg/pods/types.go":               "package pods\ntype Pod struct{}\n",
	"pkg/pods/zz_generated.pb.go":     generatedFrom("package pods\ntype Pod struct{}\n"),
	"pkg/nodes/types.go":              "package nodes\ntype Node struct{}\n",
	"pkg/nodes/zz_generated.pb.go":    generatedFrom("package nodes\ntype Node struct{}\n"),
	"staging/src/k8s.io/api/types.go": "package api\n",
	"staging/src/k8s.io/api/zz_generated.pb.go": generatedFrom("package api\n"),
}

// lines returns a file with n different lines after the first.
func lines(first string, n int) string {
	var b strings.Builder
	b.WriteString(first + "\n")
	for i := range n {
		b.WriteString("// line " + string(rune('A'+i/10)) + string(rune('0'+i%10)) + "\n")
	}
	return b.String()
}

func generatedFrom(types string) string { return "// generated from " + strings.ToUpper(types) }

// generate is a code generator that writes a zz_generated.pb.go beside each types.go.
func generate(tree string) error {
	return filepath.WalkDir(tree, func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		made := filepath.Join(dir, "zz_generated.pb.go")
		types, err := readFile(filepath.Join(dir, "types.go"))
		if err != nil {
			return err
		}
		old, err := readFile(made)
		switch {
		case err != nil:
			return err
		case types == nil && old == nil:
			return nil
		case types == nil:
			return os.Remove(made)
		}
		want := &file{data: []byte(generatedFrom(string(types.data)))}
		if want.equal(old) {
			return nil
		}
		return os.WriteFile(made, want.data, 0o644)
	})
}

// newHouse makes a repository with these files, over the tiny upstream.
func newHouse(t *testing.T, files folder) *house {
	t.Helper()
	t.Parallel()
	root := t.TempDir()
	h := &house{root: root, tree: &tree{dir: filepath.Join(root, "_output", "kubernetes")}, out: t.Output(), started: time.Now()}
	u := fakeUpstream(t, "v1.1.0", upstreamFiles)
	h.pinned = func() (*upstream, error) { return u, nil }
	h.codegen = generate
	if _, err := (git{root}).run("init", "-q"); err != nil {
		t.Fatal(err)
	}
	put(t, root, folder{".gitignore": "/_output/\n", "README.md": "ours\n", "go.mod": "module ours\n", "hack/tool/main.go": "package main\n", "docs/a.md": "ours\n"})
	put(t, root, files)
	return h
}

// fakeUpstream writes upstream's modules as they would be in the module cache.
func fakeUpstream(t *testing.T, version string, files folder) *upstream {
	t.Helper()
	u := &upstream{version: version}
	staged := map[string]bool{}
	for name := range files {
		if rest, found := strings.CutPrefix(name, stagingFolder); found {
			staged[strings.Join(strings.Split(rest, "/")[:2], "/")] = true
		}
	}
	for _, path := range append([]string{mainModule}, sorted(staged)...) {
		m := newModule(path, version)
		m.dir = t.TempDir()
		sums := map[string]string{}
		for name, data := range files {
			if strings.HasPrefix(name, stagingFolder) == (m.at == "") || !strings.HasPrefix(name, m.at) {
				continue
			}
			name = strings.TrimPrefix(name, m.at)
			put(t, m.dir, folder{name: data})
			if err := os.Chmod(filepath.Join(m.dir, name), 0o444); err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256([]byte(data))
			sums[name] = hex.EncodeToString(sum[:])
		}
		m.sum = m.hash(sums)
		u.modules = append(u.modules, m)
	}
	return u
}

// put writes files into a folder; "<deleted>" deletes one.
func put(t *testing.T, dir string, files folder) {
	t.Helper()
	for path, data := range files {
		at := filepath.Join(dir, path)
		if data == deleted {
			if err := os.Remove(at); err != nil {
				t.Fatal(err)
			}
			continue
		}
		mode := os.FileMode(0o644)
		if strings.HasPrefix(data, "#!") {
			mode = 0o755
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(data), mode), os.Chmod(at, mode)); err != nil {
			t.Fatal(err)
		}
	}
}

const deleted = "<deleted>"

// read returns the files of a folder, which contains no other git repository.
func read(t *testing.T, dir string) folder {
	t.Helper()
	files := folder{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == ".git" || d.Name() == "_output" {
				return fs.SkipDir
			}
			return nil
		}
		f, err := readFile(path)
		if err != nil {
			return err
		}
		if f.exec != bytes.HasPrefix(f.data, []byte("#!")) {
			t.Errorf("%s: run bit is %v", path, f.exec)
		}
		files[strings.TrimPrefix(path, dir+"/")] = string(f.data)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// with returns the files with some changed.
func (f folder) with(changes folder) folder {
	all := maps.Clone(f)
	maps.Copy(all, changes)
	maps.DeleteFunc(all, func(_, data string) bool { return data == deleted })
	return all
}

// equal fails the test for each file in which two folders differ.
func equal(t *testing.T, got, want folder) {
	t.Helper()
	for _, path := range sorted(got.with(want)) {
		g, isGot := got[path]
		w, isWanted := want[path]
		switch {
		case !isGot:
			t.Errorf("%s: missing", path)
		case !isWanted:
			t.Errorf("%s: should not be there; it is\n%s", path, g)
		case g != w:
			t.Errorf("%s: is\n%s\nshould be\n%s", path, g, w)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fails fails the test unless err contains all these texts.
func fails(t *testing.T, err error, say ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, s := range say {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("the error does not say %q:\n%v", s, err)
		}
	}
}

// podsPatch adds a line in the middle of pods.go, and patchedPods is the result.
const podsPatch = `--- a/pkg/pods/pods.go
+++ b/pkg/pods/pods.go
@@ -18,6 +18,7 @@ package pods
 // line B6
 // line B7
 // line B8
+// ours
 // line B9
 // line C0
 // line C1
`

var patchedPods = strings.Replace(upstreamFiles["pkg/pods/pods.go"], "// line B8\n", "// line B8\n// ours\n", 1)

// ourFiles is a repository with a file of each kind, and ourTree the tree that it makes.
var (
	ourFiles = folder{
		"pkg/pods/pods.go.patch": podsPatch,
		"pkg/rings/types.go":     "package rings\n",
		"pkg/rings/run.sh":       "#!/bin/sh\n",
		"pkg/rings/empty":        "",
		"hack/lib/ours.sh":       "#!/bin/sh\n",
	}
	ourTree = upstreamFiles.with(folder{
		"pkg/pods/pods.go":             patchedPods,
		"pkg/rings/types.go":           "package rings\n",
		"pkg/rings/zz_generated.pb.go": generatedFrom("package rings\n"),
		"pkg/rings/run.sh":             "#!/bin/sh\n",
		"pkg/rings/empty":              "",
		"hack/lib/ours.sh":             "#!/bin/sh\n",
	})
)
