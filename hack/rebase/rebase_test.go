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

package rebase

import (
	"strings"
	"testing"
	"testing/fstest"
)

// files are the files of a version, or of the fork, by path.
type files map[string]string

// compare compares two versions that have only these files, below pkg/features and the like.
func compare(t *testing.T, old, new, ours files, patches map[string]Patch) *Comparison {
	t.Helper()
	upstream := func(version string, f files) *Upstream {
		all := fstest.MapFS{}
		for name, data := range f {
			all[name] = &fstest.MapFile{Data: []byte(data)}
		}
		return &Upstream{Version: version, Files: all, Folders: []string{"."}}
	}
	data := map[string][]byte{}
	for name, text := range ours {
		data[name] = []byte(text)
	}
	c, err := Compare(upstream("v1.37.1", old), upstream("v1.38.0", new), data, patches)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// expect fails the test unless these are the findings.
func expect(t *testing.T, s *Section, err error, want ...string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range s.Findings {
		got = append(got, f.Text)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the findings are\n%s\nand should be\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestAGateIsWhatItIsInItsVersion(t *testing.T) {
	gates := func(entries string) files {
		return files{"pkg/features/gates.go": "package features\nvar gates = map[featuregate.Feature]featuregate.VersionedSpecs{\n" + entries + "}\n"}
	}
	const alpha, beta, later = `{Version: version.MustParse("1.36"), Default: false, PreRelease: featuregate.Alpha},`,
		`{Version: version.MustParse("1.38"), Default: true, PreRelease: featuregate.Beta, LockToDefault: true},`,
		`{Version: version.MustParse("1.39"), Default: true, PreRelease: featuregate.GA},`
	c := compare(t,
		gates("Same: {"+alpha+"},\nTurned: {"+alpha+"},\nGone: {"+alpha+"},\nLater: {"+alpha+"},\n"),
		gates("Same: {"+alpha+"},\nTurned: {"+alpha+beta+"},\nLater: {"+alpha+later+"},\nOther: {"+alpha+"},\n"),
		files{"pkg/ring.go": "package pkg // Other\n", "pkg/b.go.patch": " Turned\n+Gone\n"}, nil)
	s, err := c.Gates()
	expect(t, s, err,
		"gone: `Gone`, which was alpha, off (`pkg/features`); **named in** `pkg/b.go.patch`",
		"new: `Other`, alpha, off (`pkg/features`); **named in** `pkg/ring.go`",
		"`Turned`: beta, on, locked, was alpha, off (`pkg/features`)")
}

func TestACallThatMovedIsNotNew(t *testing.T) {
	const hooked = "package job\n\nfunc Sync(name string) {\n\tprintln(name)\n}\n"
	old := files{
		"pkg/job/job.go": hooked,
		"pkg/a/a.go":     "package a\nimport \"k8s.io/kubernetes/pkg/job\"\nfunc one() { job.Sync(\"a\") }\n",
		"pkg/b/b.go":     "package b\nfunc Sync() {}\nfunc two() {}\n",
	}
	new := files{
		"pkg/job/job.go": hooked,
		"pkg/a/a.go":     "package a\nimport \"k8s.io/kubernetes/pkg/job\"\n// more\nfunc three() { job.Sync(\"a\") }\n",
		"pkg/b/b.go":     "package b\nfunc Sync() {}\nfunc two() { Sync() }\n", // another Sync
	}
	patches := map[string]Patch{"pkg/job/job.go": {Path: "pkg/job/job.go", Hunks: []Lines{{4, 3}}}}
	s, err := compare(t, old, new, nil, patches).Callers()
	expect(t, s, err)
	new["pkg/c/c.go"] = "package c\nimport jobs \"k8s.io/kubernetes/pkg/job\"\nfunc four() { jobs.Sync(\"a\") }\n"
	s, err = compare(t, old, new, nil, patches).Callers()
	expect(t, s, err, "`k8s.io/kubernetes/pkg/job.Sync` (hooked into by `pkg/job/job.go.patch`)")
	if want := "pkg/c/c.go:3 in four: jobs.Sync(\"a\")\n"; len(s.Findings) == 1 && s.Findings[0].Detail != want {
		t.Errorf("the call is %q, want %q", s.Findings[0].Detail, want)
	}
}

func TestFieldsCountWhereTheirTypesAreReached(t *testing.T) {
	types := func(port, other, condition string) files {
		return files{
			staging + "k8s.io/api/core/v1/types.go": "package v1\ntype Pod struct {\n\tSpec PodSpec\n}\n" +
				"type PodSpec struct {\n\tPorts []*Port\n\tConditions map[string]Condition\n}\n" +
				"type Port struct {\n\tNumber " + port + "\n}\ntype Unrelated struct {\n\tA " + other + "\n}\ntype Condition struct {\n" + condition + "}\n",
		}
	}
	ours := files{podtrimFolder + "/trim.go": "package podtrim\nimport v1 \"k8s.io/api/core/v1\"\n" +
		"func trim(p *v1.Pod) {}\nfunc condition() any { return v1.Condition{} }\n"}
	c := compare(t, types("int32", "int", "\tType string\n"), types("int64", "string", "\tType string\n\tWhy string\n"), ours, nil)
	s, err := c.Fields()
	expect(t, s, err,
		"new: `core/v1.Condition.Why string`; **built anew** by `condition` in `pkg/controller/podtrim/trim.go`, so it is dropped",
		"`core/v1.Port.Number` is `int64`, was `int32`; trimmed by podtrim, as core/v1.Pod")
}

func TestTheOrderOfAdmissionPlugins(t *testing.T) {
	plugins := func(order, on string) files {
		return files{"pkg/kubeapiserver/options/plugins.go": "package options\nvar AllOrderedPlugins = []string{" + order + "}\n" +
			"func off() {\n\tdefaultOnPlugins := sets.New(" + on + ")\n\tuse(defaultOnPlugins)\n}\n" +
			""}
	}
	imported := func(f files) files {
		for name, text := range f {
			f[name] = strings.Replace(text, "package options\n", "package options\nimport (\n\t\"a\"\n\t\"b\"\n\t\"c\"\n\t\"d\"\n)\n", 1)
		}
		return f
	}
	old := imported(plugins("a.PluginName, b.PluginName, c.PluginName", "a.PluginName"))
	s, err := compare(t, old, imported(plugins("b.PluginName, d.PluginName, a.PluginName", "a.PluginName, b.PluginName, d.PluginName")), nil, nil).Admission()
	expect(t, s, err, "`b` is on by default, was off", "new: `d`, on by default, after `b` in the order", "gone: `c`", "the order of those that were there before changed:")
}

func TestHunksOfOursAreMarkedWhereUpstreamChanged(t *testing.T) {
	text := strings.Repeat("line\n", 50)
	change := &Change{Path: "a.go", Old: []byte(text + "old\n" + text), New: []byte(text + "new\n" + text)}
	got, touched, err := marked(change, Patch{Hunks: []Lines{{10, 10}, {30, 31}, {51, 51}, {60, 59}, {90, 91}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# OURS: hunk 3 of the patch changes line 51, in this hunk\n",
		"# OURS: hunk 4 of the patch changes what comes before line 60, 5 lines below this hunk\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the diff lacks %q:\n%s", want, got)
		}
	}
	if n := numbers(touched); n != "3, 4" {
		t.Errorf("near are the hunks %s, want 3, 4", n)
	}
}

func TestWhereTheCodeOfAFileWent(t *testing.T) {
	const common, moved = "package a\n\nvar everybodyHasThisLine = 1\n", "func aFunctionThatMoves() { first() }\nfunc anotherThatMovesWithIt() {}\n"
	old := files{"pkg/a.go": common + moved, "pkg/b.go": common}
	c := compare(t, old, files{"pkg/b.go": common + "// more\n", "pkg/c.go": "package c\n" + moved}, nil, nil)
	if got := strings.Join(c.Heirs("pkg/a.go"), ", "); got != "`pkg/c.go` (2 of 3 lines)" {
		t.Errorf("its code went to %s", got)
	}
	if got := c.Heirs("pkg/b.go"); got != nil {
		t.Errorf("what is there has the heirs %s", got)
	}
}

func TestADetailIsShownWhole(t *testing.T) {
	var b strings.Builder
	(&Report{Sections: []*Section{{Title: "a", Findings: []Finding{{Text: "f", Detail: "```\nx\n\n"}}}}}).Write(&b)
	if want := "- f\n\n  ````\n  ```\n  x\n\n  ````\n"; !strings.Contains(b.String(), want) {
		t.Errorf("the report lacks %q:\n%s", want, b.String())
	}
}
