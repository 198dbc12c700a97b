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
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// kubernetes is a small upstream that compiles, with one of each thing that a rebase looks at.
var kubernetes = folder{
	"go.work":                 "go 1.26\n\nuse (\n\t.\n\t./staging/src/k8s.io/api\n\t./staging/src/k8s.io/apimachinery\n)\n",
	"go.mod":                  "module k8s.io/kubernetes\n\ngo 1.26\n\nrequire go.etcd.io/etcd/client/v3 v3.7.0\n\nreplace go.etcd.io/etcd/client/v3 => ./third_party/etcd\n",
	".go-version":             "1.26.8\n",
	".gitignore":              "*.test\n",
	"third_party/etcd/go.mod": "module go.etcd.io/etcd/client/v3\n",
	"hack/update-codegen.sh":  "#!/bin/sh\necho generate\n",

	"cmd/kube-controller-manager/names/names.go": "package names\n\nconst (\n\tJobController = \"job-controller\"\n)\n",
	"cmd/kube-controller-manager/app/core.go": `package app

import "k8s.io/kubernetes/cmd/kube-controller-manager/names"

type ControllerDescriptor struct {
	name        string
	constructor func()
}

func newJobControllerDescriptor() *ControllerDescriptor {
	return &ControllerDescriptor{name: names.JobController, constructor: newJobController}
}

func newJobController() {}
`,
	"pkg/features/kube_features.go": `package features

type (
	Feature        string
	VersionedSpecs []FeatureSpec
	FeatureSpec    struct {
		Version    int
		Default    bool
		PreRelease string
	}
)

const WorkloadWithJob Feature = "WorkloadWithJob"

var gates = map[Feature]VersionedSpecs{
	WorkloadWithJob: {
		{Version: 1, Default: false, PreRelease: "Alpha"},
	},
}
`,
	"pkg/kubeapiserver/options/plugins.go": "package options\n\nimport (\n\t\"k8s.io/kubernetes/plugin/pkg/admission/gc\"\n)\n\nvar AllOrderedPlugins = []string{\n\tgc.PluginName,\n}\n",
	"plugin/pkg/admission/gc/gc.go":        "package gc\n\nconst PluginName = \"GC\"\n",
	"pkg/controller/job/job.go": `package job

import "k8s.io/kubernetes/pkg/controller/expect"

// Sync syncs a Job.
func Sync(name string) {
	expect.Creations(name, 1)
	after(name)
	report()
}

func after(name string) {
	println(name)
}

func report() {
	println("done")
}
`,
	"pkg/controller/job/util.go":      "package job\n\n// Parallelism is how many pods a Job has.\nfunc Parallelism() int { return 1 }\n",
	"pkg/controller/expect/expect.go": "package expect\n\n// Creations expects creations.\nfunc Creations(name string, n int) {}\n\n// Fulfilled reports whether they came.\nfunc Fulfilled() bool { return true }\n",
	"pkg/nodes/types.go":              "package nodes\n\ntype Node struct{}\n",

	"staging/src/k8s.io/api/go.mod":                            "module k8s.io/api\n\ngo 1.26\n",
	"staging/src/k8s.io/api/core/v1/types.go":                  "package v1\n\ntype Pod struct {\n\tSpec PodSpec\n}\n\ntype PodSpec struct {\n\tNodeName string\n}\n",
	"staging/src/k8s.io/apimachinery/go.mod":                   "module k8s.io/apimachinery\n\ngo 1.26\n",
	"staging/src/k8s.io/apimachinery/pkg/sharding/selector.go": "package sharding\n\n// End is the end of the line.\nconst End = \"0x8000000000000000\"\n",
}

// rings is a small fork of it.
var rings = folder{
	"go.mod":                                     "module ringmaster\n\ngo 1.26.0\n\nrequire (\n\tgo.etcd.io/etcd/server/v3 v3.7.0\n\tk8s.io/api v0.1.0\n\tk8s.io/apimachinery v0.1.0\n\tk8s.io/kubernetes v1.1.0\n)\n",
	"hack/pins/pins.go":                          "package pins\n\nimport (\n\t_ \"k8s.io/api/core/v1\"\n\t_ \"k8s.io/apimachinery/pkg/sharding\"\n)\n",
	"hack/codegen/gen.go":                        "// Package codegen does what hack/update-codegen.sh does.\npackage codegen\n",
	"docs/reference/controllers.md":              "`job-controller` is on a ring.\n",
	"pkg/controller/ring/catalogue/catalogue.go": "package catalogue\n\n// Its Workloads need WorkloadWithJob.\nconst JobController = \"job-controller\"\n",
	"pkg/controller/podtrim/trim.go": `package podtrim

import v1 "k8s.io/api/core/v1"

func spec(whole v1.PodSpec) (kept v1.PodSpec) {
	kept.NodeName = whole.NodeName
	return kept
}
`,
	"pkg/controller/job/ring.go": "package job\n\nfunc onRing() int {\n\treturn Parallelism()\n}\n\nfunc creations(name string) {}\n",
	"pkg/controller/job/job.go.patch": `--- a/pkg/controller/job/job.go
+++ b/pkg/controller/job/job.go
@@ -4,7 +4,7 @@
 
 // Sync syncs a Job.
 func Sync(name string) {
-	expect.Creations(name, 1)
+	creations(name); _ = expect.Creations
 	after(name)
 	report()
 }
`,
	"pkg/nodes/types.go.patch": "--- a/pkg/nodes/types.go\n+++ b/pkg/nodes/types.go\n@@ -1,3 +1,4 @@\n package nodes\n \n type Node struct{}\n+type Key int64\n",
	"pkg/rings/rings.go":       "package rings\n",
	"cmd/rings/main.go":        "package main\n\nfunc main() {}\n",
	"test/rings/rings_test.go": "package rings\n\nimport \"k8s.io/kubernetes/pkg/controller/expect\"\n\nvar _ = expect.Fulfilled()\n",
}

func edit(files folder, path, old, new string) {
	if !strings.Contains(files[path], old) {
		panic(path + " lacks " + old)
	}
	files[path] = strings.Replace(files[path], old, new, 1)
}

// rebased returns the report of a rebase onto these files, by the titles of its sections.
func rebased(t *testing.T, version string, next folder) (h *house, report map[string]string, printed string) {
	t.Helper()
	h = newHouse(t, rings)
	old := fakeUpstream(t, "v1.1.0", kubernetes)
	h.pinned = func() (*upstream, error) { return old, nil }
	h.codegen = func(string) error { return nil }
	u := fakeUpstream(t, version, next)
	h.released = func(string, []string) (*upstream, error) { return u, nil }
	var out bytes.Buffer
	h.out = &out
	before := read(t, h.root)
	must(t, h.rebase(version))
	equal(t, read(t, h.root), before)
	data, err := os.ReadFile(filepath.Join(h.root, "_output", "rebase", version, "report.md"))
	must(t, err)
	report = map[string]string{}
	for _, section := range strings.Split(string(data), "\n## ")[1:] {
		title, text, _ := strings.Cut(section, "\n")
		_, title, _ = strings.Cut(title, ". ")
		report[title] = text
	}
	return h, report, out.String()
}

// The titles of the sections.
const (
	requirements = "go.mod and pinned versions"
	inapplicable = "patches and files that do not apply"
	patchedFiles = "patched files that upstream changed"
	neighbours   = "files beside ours that upstream changed"
	uncompiled   = "what does not compile"
	controllers  = "controllers"
	fields       = "fields of objects that we trim, share or hold by range"
	gates        = "feature gates"
	admission    = "admission plugins"
	callers      = "new callers of what our patches hook into"
	sharding     = "upstream's shardSelector (KEP-5866)"
)

func TestARebaseFindsEachOfTenPlaces(t *testing.T) {
	next := kubernetes.with(nil)
	edit(next, "go.mod", "v3.7.0", "v3.7.3")
	edit(next, "pkg/nodes/types.go", "struct{}", "struct{ Name string }")
	next["pkg/rings/rings.go"] = "package rings\n"
	edit(next, "pkg/controller/job/job.go", "func after(name string) {", "func after(name string) {\n\tprintln(\"after\")")
	edit(next, "pkg/controller/job/util.go", "Parallelism() int", "Parallelism(name string) int")
	edit(next, "pkg/controller/expect/expect.go", "Fulfilled() bool", "Fulfilled(name string) bool")
	edit(next, "hack/update-codegen.sh", "generate", "generate more")
	edit(next, "cmd/kube-controller-manager/names/names.go", "\n)", "\n\tEvictionController = \"eviction-controller\"\n)")
	edit(next, "cmd/kube-controller-manager/app/core.go", "func newJobController() {}", "func newJobController() {}\n\nvar eviction = ControllerDescriptor{name: names.EvictionController}")
	edit(next, "staging/src/k8s.io/api/core/v1/types.go", "NodeName string", "NodeName string\n\tEvictors []string")
	edit(next, "pkg/features/kube_features.go", "\"Alpha\"},", "\"Alpha\"},\n\t\t{Version: 2, Default: true, PreRelease: Beta},")
	next["pkg/features/stages.go"] = "package features\n\nconst Beta = \"Beta\"\n"
	edit(next, "pkg/kubeapiserver/options/plugins.go", "admission/gc\"", "admission/gc\"\n\t\"k8s.io/kubernetes/plugin/pkg/admission/late\"")
	edit(next, "pkg/kubeapiserver/options/plugins.go", "gc.PluginName,", "gc.PluginName,\n\tlate.PluginName,")
	next["plugin/pkg/admission/late/late.go"] = "package late\n\nconst PluginName = \"Late\"\n"
	next["pkg/controller/late/late.go"] = "package late\n\nimport \"k8s.io/kubernetes/pkg/controller/expect\"\n\nfunc sync() { expect.Creations(\"late\", 2) }\n"
	edit(next, "staging/src/k8s.io/apimachinery/pkg/sharding/selector.go", "0x8000000000000000", "0x10000000000000000")

	h, report, printed := rebased(t, "v1.2.0", next)
	for title, texts := range map[string][]string{
		requirements: {"`go.etcd.io/etcd/server/v3 v3.7.3`, now `v3.7.0`", "k8s.io/kubernetes v1.2.0", "k8s.io/api v0.2.0"},
		inapplicable: {"`pkg/nodes/types.go.patch`, hunk 1 of 1", "+type Key int64", "type Node struct{ Name string }", "`pkg/rings/rings.go`: upstream has this file"},
		patchedFiles: {"`pkg/controller/job/job.go` (+1 -0), **near our hunks 1** of 1", "# OURS: hunk 1 of the patch changes line 7", "+\tprintln(\"after\")", "`pkg/nodes/types.go` (+1 -1)"},
		neighbours:   {"in `pkg/controller/job`: `util.go` (+1 -1)", "`hack/update-codegen.sh` (+1 -1) is named in `hack/codegen/gen.go`"},
		uncompiled:   {"2 patches or files that do not apply were left out", "`k8s.io/kubernetes/pkg/controller/job`, in a file of ours", "pkg/controller/job/ring.go:4: not enough arguments in call to Parallelism", "`k8s.io/kubernetes/test/rings`, in a file of ours", "test/rings/rings_test.go:5: not enough arguments in call to expect.Fulfilled"},
		controllers:  {"**new:** `eviction-controller`, which is not in docs/reference/controllers.md nor pkg/controller/podtrim"},
		fields:       {"new: `core/v1.PodSpec.Evictors []string`; **built anew** by `spec` in `pkg/controller/podtrim/trim.go`"},
		gates:        {"`WorkloadWithJob`: beta, on, was alpha, off (`pkg/features`); **named in** `pkg/controller/ring/catalogue/catalogue.go`"},
		admission:    {"new: `late`, off by default, after `gc` in the order"},
		callers:      {"`k8s.io/kubernetes/pkg/controller/expect.Creations` (a call of it is replaced or wrapped by `pkg/controller/job/job.go.patch`)", "pkg/controller/late/late.go:5 in sync"},
		sharding:     {"`staging/src/k8s.io/apimachinery/pkg/sharding/selector.go` (+1 -1)", "+const End = \"0x10000000000000000\""},
	} {
		for _, text := range texts {
			if !strings.Contains(report[title], text) {
				t.Errorf("the section %q does not say\n%s\nIt is\n%s", title, text, report[title])
			}
		}
		if !strings.Contains(printed, title) {
			t.Errorf("what is printed does not name the section %q:\n%s", title, printed)
		}
	}
	made := read(t, filepath.Join(h.root, "_output", "rebase", "v1.2.0", "repository"))
	for _, line := range []string{"k8s.io/kubernetes v1.2.0\n", "k8s.io/api v0.2.0\n", "go.etcd.io/etcd/server/v3 v3.7.3\n"} {
		if !strings.Contains(made["go.mod"], line) {
			t.Errorf("the new go.mod lacks %q:\n%s", line, made["go.mod"])
		}
	}
}

func TestARebaseFindsNothingInAVersionThatIsTheSame(t *testing.T) {
	_, report, printed := rebased(t, "v1.1.1", kubernetes)
	for _, title := range []string{inapplicable, patchedFiles, neighbours, uncompiled, controllers, fields, gates, admission, callers, sharding} {
		if strings.TrimSpace(report[title]) != "Nothing." {
			t.Errorf("the section %q is\n%s\n%s", title, report[title], printed)
		}
	}
}

func TestARebaseAddsNewModulesAndDropsOldOnes(t *testing.T) {
	next := kubernetes.with(folder{
		"staging/src/k8s.io/ktesting/go.mod":         "module k8s.io/ktesting\n\ngo 1.26\n",
		"staging/src/k8s.io/ktesting/doc/testing.go": "package doc\n",
	})
	edit(next, "go.work", "k8s.io/apimachinery\n", "k8s.io/apimachinery\n\t./staging/src/k8s.io/ktesting\n")
	h, report, _ := rebased(t, "v1.2.0", next)
	if !strings.Contains(report[requirements], "new module: `k8s.io/ktesting v0.2.0`") {
		t.Error(report[requirements])
	}
	made := read(t, filepath.Join(h.root, "_output", "rebase", "v1.2.0", "repository"))
	if !strings.Contains(made["hack/pins/pins.go"], "\t_ \"k8s.io/ktesting/doc\"\n") || !strings.Contains(made["go.mod"], "k8s.io/ktesting v0.2.0") {
		t.Errorf("made are\n%s\n%s", made["go.mod"], made["hack/pins/pins.go"])
	}
}

func TestWhatAModuleThatIsNotServedKeepsFromBeingCompiled(t *testing.T) {
	next := kubernetes.with(nil)
	edit(next, "go.work", "k8s.io/apimachinery\n", "k8s.io/apimachinery\n\t./staging/src/k8s.io/ktesting\n")
	edit(next, "pkg/controller/job/util.go", "package job\n", "package job\n\nimport _ \"k8s.io/ktesting/doc\"\n")
	h := newHouse(t, rings)
	old, u := fakeUpstream(t, "v1.1.0", kubernetes), fakeUpstream(t, "v1.2.0", next)
	u.notServed = []module{newModule("k8s.io/ktesting", "v0.2.0")}
	h.pinned = func() (*upstream, error) { return old, nil }
	h.released = func(string, []string) (*upstream, error) { return u, nil }
	h.codegen = func(string) error { return nil }
	must(t, h.rebase("v1.2.0"))
	data, err := os.ReadFile(filepath.Join(h.root, "_output", "rebase", "v1.2.0", "report.md"))
	must(t, err)
	for _, text := range []string{"Not tried: 1 packages import k8s.io/ktesting, which is not served", "k8s.io/ktesting v0.2.0 is not served"} {
		if !strings.Contains(string(data), text) {
			t.Errorf("the report does not say %q:\n%s", text, data)
		}
	}
}

func TestAModuleThatIsNotServedStaysWhereItIs(t *testing.T) {
	sample := folder{
		"staging/src/k8s.io/sample/go.mod": "module k8s.io/sample\n\ngo 1.26\n",
		"staging/src/k8s.io/sample/a.go":   "package sample\n",
	}
	all := kubernetes.with(sample)
	edit(all, "go.work", "k8s.io/apimachinery\n", "k8s.io/apimachinery\n\t./staging/src/k8s.io/sample\n")
	ours := rings.with(nil)
	edit(ours, "go.mod", "\tk8s.io/kubernetes", "\tk8s.io/sample v0.1.0\n\tk8s.io/kubernetes")
	h := newHouse(t, ours)
	served := all.with(nil)
	for path := range sample {
		delete(served, path)
	}
	old, u := fakeUpstream(t, "v1.1.0", all), fakeUpstream(t, "v1.1.1", served)
	u.notServed = []module{newModule("k8s.io/sample", "v0.1.1")}
	h.pinned = func() (*upstream, error) { return old, nil }
	h.released = func(string, []string) (*upstream, error) { return u, nil }
	h.codegen = func(string) error { return nil }
	must(t, h.rebase("v1.1.1"))
	files := read(t, filepath.Join(h.root, "_output", "rebase", "v1.1.1"))
	if want := "`k8s.io/sample` stays at v0.1.0"; !strings.Contains(files["report.md"], want) {
		t.Errorf("the report does not say %q:\n%s", want, files["report.md"])
	}
	made := files["repository/go.mod"]
	if !strings.Contains(made, "k8s.io/sample v0.1.0") || !strings.Contains(made, "k8s.io/api v0.1.1") {
		t.Errorf("made is\n%s", made)
	}
}

func TestPinnedModules(t *testing.T) {
	root := t.TempDir()
	put(t, root, folder{
		"go.mod": "module ringmaster\n\nrequire (\n\tk8s.io/api v0.1.2\n\tk8s.io/klog/v2 v2.1.2\n\tk8s.io/kubernetes v1.1.2\n\tk8s.io/sample v0.1.1\n\tk8s.io/utils v0.0.0-1\n)\n",
		"go.sum": "k8s.io/api v0.1.2 h1:a\nk8s.io/kubernetes v1.1.2 h1:k\nk8s.io/sample v0.1.1 h1:s\n",
	})
	u, err := pinned(root)
	must(t, err)
	var got []string
	for _, m := range u.modules {
		got = append(got, m.path+" "+m.version+" "+m.sum)
	}
	want := []string{"k8s.io/api v0.1.2 h1:a", "k8s.io/kubernetes v1.1.2 h1:k", "k8s.io/sample v0.1.1 h1:s"}
	if u.version != "v1.1.2" || !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", u.version, got, want)
	}
}

func TestVersionsOfKubernetes(t *testing.T) {
	for version, want := range map[string]string{"v1.38.0": "v0.38.0", "v1.38.0-beta.0": "v0.38.0-beta.0", "v1.38": "", "1.38.0": "", "v2.0.0": ""} {
		if got, err := stagingVersion(version); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", version, got, err)
		}
	}
}
