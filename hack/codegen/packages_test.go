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
	"reflect"
	"slices"
	"strings"
	"testing"
)

// write writes files below dir.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

var sources = map[string]string{
	"pkg/apis/one/doc.go":                    "// +k8s:deepcopy-gen=package\n\npackage one\n",
	"pkg/apis/one/v1/doc.go":                 "// +k8s:conversion-gen=k8s.io/kubernetes/pkg/apis/one\n// +k8s:conversion-gen-external-types=k8s.io/api/one/v1\n// +k8s:defaulter-gen=TypeMeta\n// +k8s:defaulter-gen-input=k8s.io/api/one/v1\npackage v1\n",
	"pkg/apis/two/v1/doc.go":                 "// +k8s:conversion-gen=k8s.io/kubernetes/pkg/apis/two\npackage v1\n",
	"pkg/plain/plain.go":                     "package plain\n\n// +k8s is no tag\n",
	"pkg/plain/indented.go":                  "package plain\n\ntype T struct {\n\t// +k8s:conversion-gen=false\n\tA int\n}\n",
	"pkg/plain/testdata/doc.go":              "// +k8s:deepcopy-gen=package\n",
	"staging/src/k8s.io/api/one/v1/doc.go":   "// +k8s:openapi-gen=true\n// +k8s:protobuf-gen=package\npackage v1\n",
	"staging/src/k8s.io/api/one/v1/types.go": "package v1\n\n// +genclient\n// +genclient:nonNamespaced\n\n// T is a type.\ntype T struct{}\n",
	"vendor/k8s.io/x/doc.go":                 "// +k8s:deepcopy-gen=package\n",
}

func TestScan(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, sources)
	got, err := scan(dir, ".")
	if err != nil {
		t.Fatal(err)
	}
	want := packages{
		"pkg/apis/one": {"deepcopy-gen": {"package"}},
		"pkg/apis/one/v1": {
			"conversion-gen":                {"k8s.io/kubernetes/pkg/apis/one"},
			"conversion-gen-external-types": {"k8s.io/api/one/v1"},
			"defaulter-gen":                 {"TypeMeta"},
			"defaulter-gen-input":           {"k8s.io/api/one/v1"},
		},
		"pkg/apis/two/v1":               {"conversion-gen": {"k8s.io/kubernetes/pkg/apis/two"}},
		"staging/src/k8s.io/api/one/v1": {"openapi-gen": {"true"}, "protobuf-gen": {"package"}, "genclient": {"", ""}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}

	dirs := map[string]bool{"pkg/apis/one": true, "pkg/plain": true, "pkg/gone": true}
	got, err = scanDirs(dir, dirs)
	if err != nil {
		t.Fatal(err)
	}
	if want := (packages{"pkg/apis/one": want["pkg/apis/one"]}); !reflect.DeepEqual(got, want) {
		t.Errorf("scanDirs: got %v, want %v", got, want)
	}
}

func TestWith(t *testing.T) {
	p := packages{"b": {"x": {"true"}}, "a": {"x": {"false", "package"}}, "c": {"y": {"true"}}}
	if got, want := p.with("x"), []string{"a", "b"}; !slices.Equal(got, want) {
		t.Errorf("any value: got %q, want %q", got, want)
	}
	if got, want := p.with("x", "package"), []string{"a"}; !slices.Equal(got, want) {
		t.Errorf("one value: got %q, want %q", got, want)
	}
}

func TestAffected(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, sources)
	p, err := scan(dir, ".")
	if err != nil {
		t.Fatal(err)
	}
	conversions := p.with("conversion-gen")
	for name, test := range map[string]struct {
		changed string
		want    []string
	}{
		"itself":         {"pkg/apis/two/v1", []string{"pkg/apis/two/v1"}},
		"internal types": {"pkg/apis/one", []string{"pkg/apis/one/v1"}},
		"external types": {"staging/src/k8s.io/api/one/v1", []string{"pkg/apis/one/v1"}},
		"something else": {"pkg/plain", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := p.affected(conversions, map[string]bool{test.changed: true}, "conversion-gen", "conversion-gen-external-types")
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestInputs(t *testing.T) {
	files := []string{
		"api/api-rules/violation_exceptions.list",
		"hack/lib/init.sh",
		"hack/lib/util.sh",
		"pkg/apis/one/types.go",
		"pkg/apis/one/types_test.go",
		"pkg/apis/one/zz_generated.deepcopy.go",
		"pkg/plain/plain.go",
	}
	tagged := packages{"pkg/apis/one": {"deepcopy-gen": {"package"}}}
	want := []string{"api/api-rules/violation_exceptions.list", "hack/lib/init.sh", "pkg/apis/one/types.go"}
	if got := inputs(files, tagged); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDirOf(t *testing.T) {
	for pkg, dir := range map[string]string{
		"k8s.io/kubernetes/pkg/apis/apps": "pkg/apis/apps",
		"k8s.io/api/apps/v1":              "staging/src/k8s.io/api/apps/v1",
	} {
		if got := dirOf(pkg); got != dir {
			t.Errorf("dirOf(%q) = %q, want %q", pkg, got, dir)
		}
		if got := importPath(dir); got != pkg {
			t.Errorf("importPath(%q) = %q, want %q", dir, got, pkg)
		}
	}
}

const script = `
KUBE_AVAILABLE_GROUP_VERSIONS="${KUBE_AVAILABLE_GROUP_VERSIONS:-\
v1 \
apps/v1 \
admission.k8s.io/v1 \
flowcontrol.apiserver.k8s.io/v1 \
internal.apiserver.k8s.io/v1alpha1 \
}"

# not in the server
KUBE_NONSERVER_GROUP_VERSIONS="
 abac.authorization.kubernetes.io/v0 \
 admission.k8s.io/v1\
"
export KUBE_NONSERVER_GROUP_VERSIONS
`

func TestGroupVersions(t *testing.T) {
	all, served, err := groupVersions([]byte(script), func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"core/v1", "apps/v1", "admission/v1", "flowcontrol/v1", "apiserverinternal/v1alpha1"}; !slices.Equal(all, want) {
		t.Errorf("all: got %q, want %q", all, want)
	}
	if want := []string{"core/v1", "apps/v1", "flowcontrol/v1", "apiserverinternal/v1alpha1"}; !slices.Equal(served, want) {
		t.Errorf("served: got %q, want %q", served, want)
	}

	_, _, err = groupVersions([]byte(script), func(dir string) bool { return dir != "apps/v1" })
	if err == nil || !strings.Contains(err.Error(), "apps/v1") {
		t.Errorf("a group without types: got error %v", err)
	}
	_, _, err = groupVersions([]byte("# nothing\n"), func(string) bool { return true })
	if err == nil || !strings.Contains(err.Error(), "KUBE_AVAILABLE_GROUP_VERSIONS") {
		t.Errorf("no list: got error %v", err)
	}
}

func TestProtobufPackages(t *testing.T) {
	g := &generation{
		packages: packages{
			"staging/src/k8s.io/api/one/v1": {"protobuf-gen": {"package"}},
			"staging/src/k8s.io/api/two/v1": {"protobuf-gen": {"package"}},
			"pkg/apis/one":                  {"deepcopy-gen": {"package"}},
		},
		changed: map[string]bool{
			"pkg/apis/one":                                true,
			"staging/src/k8s.io/api/one/v1":               true,
			"staging/src/k8s.io/apimachinery/pkg/runtime": true,
		},
	}
	got, n := g.protobufPackages()
	want := []string{
		"-k8s.io/apimachinery/pkg/util/intstr",
		"-k8s.io/apimachinery/pkg/api/resource",
		"-k8s.io/apimachinery/pkg/runtime/schema",
		"+k8s.io/apimachinery/pkg/runtime",
		"-k8s.io/apimachinery/pkg/apis/meta/v1",
		"-k8s.io/apimachinery/pkg/apis/meta/v1beta1",
		"-k8s.io/apimachinery/pkg/apis/testapigroup/v1",
		"k8s.io/api/one/v1",
		"-k8s.io/api/two/v1",
	}
	if !slices.Equal(got, want) || n != 2 {
		t.Errorf("got %d of %q, want 2 of %q", n, got, want)
	}
}

func TestCompareViolations(t *testing.T) {
	if err := compareViolations("list", []byte("a\nb\n"), []byte("a\nb\n")); err != nil {
		t.Error(err)
	}
	err := compareViolations("list", []byte("a\nb\n"), []byte("a\nc\n"))
	if err == nil || !strings.Contains(err.Error(), "new:  c\ngone: b\n") {
		t.Errorf("got error %v", err)
	}
}
