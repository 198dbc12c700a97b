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
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// overlayOf returns an overlay for a tree of these files. Those that are emptied have no code.
func overlayOf(t *testing.T, files map[string]string, emptied ...string) *overlay {
	t.Helper()
	o := &overlay{tree: t.TempDir(), files: map[string][]byte{}}
	for path, text := range files {
		if slices.Contains(emptied, path) {
			text = "package none"
		}
		at := filepath.Join(o.tree, path)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

func parsed(t *testing.T, text string) *source {
	t.Helper()
	s, err := parse("a_test.go", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// run returns what the program in the folder of the tree prints with the overlay.
func run(t *testing.T, o *overlay) string {
	t.Helper()
	out := t.TempDir()
	if err := o.write(out); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "run", "-overlay", filepath.Join(out, "overlay.json"), ".")
	cmd.Dir = o.tree
	output, _ := cmd.CombinedOutput()
	return string(output)
}

func TestGoReadsTheOverlay(t *testing.T) {
	o := overlayOf(t, map[string]string{
		"go.mod":  "module example.com/m\n\ngo 1.26\n",
		"main.go": "package main\n\nfunc main() { print(one) }\n\nconst one = 1\n",
	})
	s, err := readSource(o.tree, "main.go")
	if err != nil {
		t.Fatal(err)
	}
	s.replace("other number", s.Decls[0], "func main() { print(two) }")
	o.edit(s)
	o.files["two.go"] = []byte("package main\n\nconst two = 2\n")
	if got := run(t, o); got != "2" {
		t.Errorf("the program prints %q", got)
	}
	var table bytes.Buffer
	o.print(&table)
	if want := "file     edit          times\nmain.go  other number  1\ntwo.go   added         \n"; table.String() != want {
		t.Errorf("got\n%swant\n%s", table.String(), want)
	}
}

func TestOnlyKnownPackagesAreChosen(t *testing.T) {
	known := map[string]int{"b": 1, "a": 2}
	if all, err := choose(known, nil); err != nil || !slices.Equal(all, []string{"a", "b"}) {
		t.Errorf("of all: %v, %v", all, err)
	}
	if named, err := choose(known, []string{"b"}); err != nil || !slices.Equal(named, []string{"b"}) {
		t.Errorf("of one: %v, %v", named, err)
	}
	if _, err := choose(known, []string{"c"}); err == nil || !strings.Contains(err.Error(), `"c"`) {
		t.Errorf("of another: %v", err)
	}
}

func TestGateOff(t *testing.T) {
	const text = "// Copyright\n\npackage replicaset\n\nfunc init() {}\n"
	o := overlayOf(t, map[string]string{
		"test/integration/replicaset/controller_ring_test.go": text,
		"test/integration/quota/quota_test.go":                "package quota_test\n",
	})
	folders, err := gateOff(o, []string{"./test/integration/quota"})
	if err != nil || !slices.Equal(folders, []string{"test/integration/quota"}) {
		t.Errorf("got %q, %v", folders, err)
	}
	got := string(o.files["test/integration/quota/controller_ring_test.go"])
	if want := strings.Replace(text, "replicaset", "quota", 1); got != want {
		t.Errorf("got\n%s", got)
	}
}

func TestOlder(t *testing.T) {
	files := map[string]string{
		"go.mod":  "module example.com/m\n\ngo 1.26\n",
		"main.go": "package main\n\nimport (\n\t\"fmt\"\n\n\t\"example.com/m/pkg/controller/ring/catalogue\"\n)\n\nfunc main() { fmt.Print(catalogue.Rings()) }\n",
		"pkg/controller/ring/catalogue/catalogue.go": `package catalogue

const (
	DeploymentController, JobController, ReplicaSetController = "deployment", "job", "replicaset"
	NamespacesRing, WorkloadsRing                             = "namespaces", "workloads"
)

type Controller struct{ Name string }

type Ring struct {
	Name        string
	Controllers []Controller
}

func Rings() []Ring { return rings }

var rings = []Ring{
	{Name: NamespacesRing, Controllers: []Controller{{Name: JobController}}},
	{Name: WorkloadsRing, Controllers: []Controller{{Name: DeploymentController}, {Name: JobController}, {Name: ReplicaSetController}}},
}
`,
	}
	o := overlayOf(t, files)
	if _, err := older(o, nil); err != nil {
		t.Fatal(err)
	}
	if got := run(t, o); got != "[{workloads [{deployment} {replicaset}]}]" {
		t.Errorf("the catalogue has %s", got)
	}
	const catalogue = "pkg/controller/ring/catalogue/catalogue.go"
	files[catalogue] = strings.Replace(files[catalogue], ", {Name: ReplicaSetController}", "", 1)
	o = overlayOf(t, files)
	if _, err := older(o, nil); err != nil {
		t.Fatal(err)
	}
	if got := run(t, o); !strings.Contains(got, "the catalogue does not have") {
		t.Errorf("without a controller the program prints %s", got)
	}
}
