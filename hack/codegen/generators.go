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
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

const (
	boilerplate = "hack/boilerplate/boilerplate.generatego.txt"
	apiRules    = "api/api-rules/"
	allowlist   = "test/declarative_validation/coverage-allowlist.yaml"
	clientGo    = staging + "k8s.io/client-go"
	scratch     = "_output/codegen" // in the workspace; git ignores it
)

// generators are the programs that a generation runs, besides go, gofmt and our openapi-gen.
var generators = []string{
	"./cmd/genswaggertypedocs",
	"golang.org/x/tools/cmd/goimports",
	"k8s.io/code-generator/cmd/applyconfiguration-gen",
	"k8s.io/code-generator/cmd/client-gen",
	"k8s.io/code-generator/cmd/conversion-gen",
	"k8s.io/code-generator/cmd/deepcopy-gen",
	"k8s.io/code-generator/cmd/defaulter-gen",
	"k8s.io/code-generator/cmd/go-to-protobuf",
	"k8s.io/code-generator/cmd/go-to-protobuf/protoc-gen-gogo",
	"k8s.io/code-generator/cmd/informer-gen",
	"k8s.io/code-generator/cmd/lister-gen",
	"k8s.io/code-generator/cmd/prerelease-lifecycle-gen",
	"k8s.io/code-generator/cmd/validation-gen",
}

// generation is one run of the generators in a workspace, with the flags that
// upstream's hack/update-codegen.sh gives them.
type generation struct {
	*workspace
	packages
	changed map[string]bool // folders with changed sources
	groups  bool            // whether the list of groups changed
	log     *progress
}

// newGeneration builds the generators. The workspace must hold only upstream's files, so
// changes of shared libraries do not cause a rebuild.
func newGeneration(ctx context.Context, w *workspace, log *progress) (*generation, error) {
	tools, err := filepath.Abs(toolsDir)
	if err != nil {
		return nil, err
	}
	g := &generation{workspace: w, log: log}
	return g, log.step("build of the generators", func() error {
		build := []string{"build", "-ldflags=-w", "-o", tools + "/"}
		if _, err := output(ctx, w.dir, nil, "go", append(build, generators...)...); err != nil {
			return err
		}
		_, err := output(ctx, ".", nil, "go", append(build, "./hack/codegen/openapi-gen")...)
		return err
	})
}

// run runs the generators that the changed folders need, each after those whose output it
// reads. groups means that the list of groups changed.
//
// Most generators ignore what others make, so two can run at the same time. But they would
// fail on files that others have deleted or half written: each runs in a workspace of its own.
// The schema for the apply configurations is compiled from what all others but clients make.
func (g *generation) run(ctx context.Context, changed map[string]bool, groups bool) error {
	var err error
	if g.packages, err = scan(g.dir, "."); err != nil {
		return err
	}
	g.changed, g.groups = changed, groups
	beside := *g
	if err := sideBySide(ctx,
		func(ctx context.Context) error {
			return inTurn(ctx,
				g.protobuf,
				g.deepCopy,
				g.swaggerDocs,
				g.prereleaseLifecycle,
				g.defaults,
				g.validation,
				g.conversion,
			)
		},
		func(ctx context.Context) error {
			if err := g.log.step("second copy", func() (err error) {
				beside.workspace, err = g.twin(ctx)
				return err
			}); err != nil {
				return err
			}
			return inTurn(ctx, beside.openAPI, beside.clients)
		},
	); err != nil {
		return err
	}
	if err := g.join(ctx, beside.workspace); err != nil {
		return err
	}
	return g.applyConfigurations(ctx)
}

func inTurn(ctx context.Context, runs ...func(context.Context) error) error {
	for _, run := range runs {
		if err := run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// sideBySide runs all at the same time. It returns the first error, which stops the others.
func sideBySide(ctx context.Context, runs ...func(context.Context) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var running sync.WaitGroup
	for _, run := range runs {
		running.Go(func() {
			if err := run(ctx); err != nil {
				stop(err)
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

// apimachinery are the packages that go-to-protobuf generates by default, in its notation.
// For those with a + it generates only the tagged types.
var apimachinery = []string{
	"+k8s.io/apimachinery/pkg/util/intstr",
	"+k8s.io/apimachinery/pkg/api/resource",
	"+k8s.io/apimachinery/pkg/runtime/schema",
	"+k8s.io/apimachinery/pkg/runtime",
	"k8s.io/apimachinery/pkg/apis/meta/v1",
	"k8s.io/apimachinery/pkg/apis/meta/v1beta1",
	"k8s.io/apimachinery/pkg/apis/testapigroup/v1",
}

// protobufPackages returns the packages for go-to-protobuf, and how many of them it must
// generate. The others, marked with a -, only provide types.
func (g *generation) protobufPackages() (pkgs []string, selected int) {
	all := append(slices.Clone(apimachinery), importPaths(g.with("protobuf-gen", "package"))...)
	for _, pkg := range all {
		plain := strings.TrimPrefix(pkg, "+")
		if g.changed[dirOf(plain)] {
			selected++
		} else {
			pkg = "-" + plain
		}
		pkgs = append(pkgs, pkg)
	}
	return pkgs, selected
}

func (g *generation) protobuf(ctx context.Context) error {
	pkgs, n := g.protobufPackages()
	if n == 0 {
		return nil
	}
	return g.step("go-to-protobuf", n, func() error {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		if err := g.link(scratch+"/bin/protoc", self); err != nil {
			return err
		}
		path := "PATH=" + filepath.Join(g.dir, scratch, "bin") + string(filepath.ListSeparator) + os.Getenv("PATH")

		// The sources import gogo.proto by the name of its module.
		gogo, err := output(ctx, g.dir, nil, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/gogo/protobuf")
		if err != nil {
			return err
		}
		if err := g.link(scratch+"/proto/github.com/gogo/protobuf", strings.TrimSpace(string(gogo))); err != nil {
			return err
		}

		// Given relative paths, it deletes apimachinery's files without generating them again.
		src := filepath.Join(g.dir, staging)
		_, err = output(ctx, g.dir, []string{path, seldomCollect}, "go-to-protobuf",
			"--go-header-file="+filepath.Join(g.dir, boilerplate),
			"--output-dir="+src,
			"--proto-import="+src,
			"--proto-import="+filepath.Join(g.dir, scratch, "proto"),
			"--proto-import="+filepath.Join(g.dir, "third_party/protobuf"),
			"--apimachinery-packages=",
			"--packages="+strings.Join(pkgs, ","))
		return err
	})
}

// perPackage runs a generator that writes one file into each package.
func (g *generation) perPackage(ctx context.Context, tool string, dirs []string, file string, flags ...string) error {
	if len(dirs) == 0 {
		return nil
	}
	return g.step(tool, len(dirs), func() error {
		for _, dir := range dirs {
			if err := g.write(path.Join(dir, file), nil); err != nil {
				return err
			}
		}
		args := append([]string{
			"--go-header-file=" + boilerplate,
			"--output-file=" + file,
			"--lint-rules=known-tags-only,require-explicit-disablement",
		}, flags...)
		return g.do(ctx, tool, append(args, relative(dirs)...)...)
	})
}

func (g *generation) deepCopy(ctx context.Context) error {
	dirs := g.affected(g.with("deepcopy-gen"), g.changed)
	return g.perPackage(ctx, "deepcopy-gen", dirs, "zz_generated.deepcopy.go")
}

func (g *generation) prereleaseLifecycle(ctx context.Context) error {
	dirs := g.affected(g.with("prerelease-lifecycle-gen", "true"), g.changed)
	return g.perPackage(ctx, "prerelease-lifecycle-gen", dirs, "zz_generated.prerelease-lifecycle.go")
}

func (g *generation) defaults(ctx context.Context) error {
	dirs := g.affected(g.with("defaulter-gen"), g.changed, "defaulter-gen-input")
	return g.perPackage(ctx, "defaulter-gen", dirs, "zz_generated.defaults.go")
}

func (g *generation) conversion(ctx context.Context) error {
	dirs := g.affected(g.with("conversion-gen"), g.changed, "conversion-gen", "conversion-gen-external-types")
	return g.perPackage(ctx, "conversion-gen", dirs, "zz_generated.conversion.go",
		"--extra-peer-dirs=k8s.io/kubernetes/pkg/apis/core",
		"--extra-peer-dirs=k8s.io/kubernetes/pkg/apis/core/v1",
		"--extra-peer-dirs=k8s.io/api/core/v1")
}

// validation runs over all packages if one is affected. The generator refuses custom
// validations that no type of its packages uses, and its tests cover all versions of a
// kind. Only the generator's own test cases are left out.
func (g *generation) validation(ctx context.Context) error {
	dirs := slices.DeleteFunc(g.with("validation-gen"), func(dir string) bool {
		return strings.HasPrefix(dir, staging+"k8s.io/code-generator/")
	})
	if len(g.affected(dirs, g.changed, "validation-gen-input")) == 0 {
		return nil
	}
	const prefix = "zz_generated.validations."
	return g.perPackage(ctx, "validation-gen", dirs, prefix+"go",
		"--test-output-root=test/declarative_validation",
		"--test-output-file-prefix="+prefix,
		"--test-allowlist="+allowlist,
		"--readonly-pkg=k8s.io/apimachinery/pkg/api/resource",
		"--readonly-pkg=k8s.io/apimachinery/pkg/runtime",
		"--readonly-pkg=k8s.io/apimachinery/pkg/types",
		"--readonly-pkg=k8s.io/apimachinery/pkg/util/intstr",
		"--readonly-pkg=time")
}

// swaggerPreamble goes between the package clause and the functions.
const swaggerPreamble = `
// This file contains a collection of methods that can be used from go-restful to
// generate Swagger API documentation for its models. Please read this PR for more
// information on the implementation: https://github.com/emicklei/go-restful/pull/215
//
// TODOs are ignored from the parser (e.g. TODO(andronat):... || TODO:...) if and only if
// they are on one line! For multiple line or blocks that you want to ignore use ---.
// Any context after a --- is ignored.
//
// Those methods can be generated by using hack/update-codegen.sh

// AUTO-GENERATED FUNCTIONS START HERE. DO NOT EDIT.
`

func (g *generation) swaggerDocs(ctx context.Context) error {
	all, _, err := g.groupVersions()
	if err != nil {
		return err
	}
	dirs := []string{metaV1, path.Dir(metaV1) + "/v1beta1"}
	for _, dir := range all {
		dirs = append(dirs, api+dir)
	}
	dirs = g.affected(dirs, g.changed)
	if len(dirs) == 0 {
		return nil
	}
	return g.step("genswaggertypedocs", len(dirs), func() error {
		for _, dir := range dirs {
			header, err := g.read(boilerplate)
			if err != nil {
				return err
			}
			functions, err := output(ctx, g.dir, nil, "genswaggertypedocs", "-s", dir+"/types.go", "-f", "-")
			if err != nil {
				return err
			}
			name := dir + "/types_swagger_doc_generated.go"
			text := fmt.Sprintf("%s\npackage %s\n%s%s// AUTO-GENERATED FUNCTIONS END HERE\n", header, path.Base(dir), swaggerPreamble, functions)
			if err := g.write(name, []byte(text)); err != nil {
				return err
			}
			if err := g.do(ctx, "gofmt", "-s", "-w", name); err != nil {
				return err
			}
		}
		return nil
	})
}

// project is a module that has its own OpenAPI description and apply configurations, besides
// those of the main module. Both also describe ObjectMeta.
type project struct {
	dir    string
	types  string   // folder below dir with the types
	extra  []string // further packages
	report string   // known violations of API rules
}

// projects are those that kube-apiserver serves. Samples and examples keep their files.
var projects = []project{
	{
		dir:    staging + "k8s.io/kube-aggregator",
		types:  "pkg/apis",
		report: apiRules + "aggregator_violation_exceptions.list",
	},
	{
		dir:    staging + "k8s.io/apiextensions-apiserver",
		types:  "pkg",
		extra:  []string{"k8s.io/api/autoscaling/v1"}, // for Scale
		report: apiRules + "apiextensions_violation_exceptions.list",
	},
}

// below returns the dirs that lie in the folder.
func below(dirs []string, folder string) []string {
	return slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool { return !strings.HasPrefix(dir+"/", folder+"/") })
}

// openAPIInputs returns the packages whose types the project describes.
func (g *generation) openAPIInputs(p project) []string {
	pkgs := append([]string{
		"k8s.io/apimachinery/pkg/apis/meta/v1",
		"k8s.io/apimachinery/pkg/runtime",
		"k8s.io/apimachinery/pkg/version",
		"k8s.io/apimachinery/pkg/api/resource",
	}, p.extra...)
	return append(pkgs, importPaths(below(g.withOpenAPI(), p.dir+"/"+p.types))...)
}

// withOpenAPI returns the folders of packages with a tag that begins with openapi.
func (g *generation) withOpenAPI() []string {
	var dirs []string
	for dir, tags := range g.packages {
		for tag := range maps.Keys(tags) {
			if strings.HasPrefix(tag, "openapi") {
				dirs = append(dirs, dir)
				break
			}
		}
	}
	slices.Sort(dirs)
	return dirs
}

// mainOpenAPI returns the folders whose types the main module describes.
func (g *generation) mainOpenAPI() []string {
	return slices.DeleteFunc(g.withOpenAPI(), func(dir string) bool {
		return strings.HasPrefix(dir, staging+"k8s.io/code-generator/") ||
			strings.HasPrefix(dir, staging+"k8s.io/sample-apiserver/") ||
			strings.HasPrefix(dir, staging+"k8s.io/sample-controller/")
	})
}

func (g *generation) anyChanged(pkgs []string) bool {
	return slices.ContainsFunc(pkgs, func(pkg string) bool { return g.changed[dirOf(pkg)] })
}

func (g *generation) openAPI(ctx context.Context) error {
	pkgs := importPaths(g.mainOpenAPI())
	if g.anyChanged(pkgs) {
		if err := g.openAPIGen(ctx, "", boilerplate, apiRules+"violation_exceptions.list", pkgs); err != nil {
			return err
		}
	}
	for _, p := range projects {
		pkgs := g.openAPIInputs(p)
		if !g.anyChanged(pkgs) {
			continue
		}
		if err := g.openAPIGen(ctx, p.dir+"/", p.dir+"/hack/boilerplate.go.txt", p.report, pkgs,
			"--readonly-pkg=k8s.io/apimachinery/pkg/apis/meta/v1",
			"--readonly-pkg=k8s.io/apimachinery/pkg/api/resource",
			"--readonly-pkg=k8s.io/apimachinery/pkg/runtime",
			"--readonly-pkg=k8s.io/apimachinery/pkg/types",
			"--readonly-pkg=k8s.io/apimachinery/pkg/util/intstr",
			"--readonly-pkg=k8s.io/apimachinery/pkg/version",
			"--readonly-pkg=time",
		); err != nil {
			return err
		}
	}
	return nil
}

// openAPIGen writes pkg/generated/openapi of the project at dir, which is "" for the main
// module.
func (g *generation) openAPIGen(ctx context.Context, dir, header, known string, pkgs []string, flags ...string) error {
	return g.step("openapi-gen"+suffix(dir), len(pkgs), func() error {
		out := dir + "pkg/generated/openapi"
		for _, file := range []string{"zz_generated.openapi.go", "zz_generated.model_name.go"} {
			if err := g.write(path.Join(out, file), nil); err != nil {
				return err
			}
		}
		report := scratch + "/violations"
		args := append([]string{
			"--go-header-file=" + header,
			"--output-file=zz_generated.openapi.go",
			"--output-dir=" + out,
			"--output-pkg=" + importPath(out),
			"--report-filename=" + report,
			"--output-model-name-file=zz_generated.model_name.go",
		}, flags...)
		if err := g.do(ctx, "openapi-gen", append(args, pkgs...)...); err != nil {
			return err
		}
		want, err := g.read(known)
		if err != nil {
			return err
		}
		got, err := g.read(report)
		if err != nil {
			return err
		}
		return compareViolations(known, want, got)
	})
}

// compareViolations returns an error that lists the new violations of API rules, and those
// that are gone.
func compareViolations(known string, want, got []byte) error {
	if bytes.Equal(want, got) {
		return nil
	}
	wanted, found := strings.Split(string(want), "\n"), strings.Split(string(got), "\n")
	var diff strings.Builder
	for _, line := range found {
		if !slices.Contains(wanted, line) {
			fmt.Fprintf(&diff, "new:  %s\n", line)
		}
	}
	for _, line := range wanted {
		if !slices.Contains(found, line) {
			fmt.Fprintf(&diff, "gone: %s\n", line)
		}
	}
	return fmt.Errorf("violations of API rules differ from %s; mend the types (see %sREADME.md):\n%s", known, apiRules, &diff)
}

func (g *generation) applyConfigurations(ctx context.Context) error {
	// They include the schema, which has every type and rule of the description.
	if g.anyChanged(importPaths(g.mainOpenAPI())) {
		dirs, err := g.apiDirs()
		if err != nil {
			return err
		}
		if err := g.applyConfigurationGen(ctx, "", boilerplate, clientGo+"/applyconfigurations", importPaths(append(dirs, metaV1))); err != nil {
			return err
		}
	}
	for _, p := range projects {
		if !g.anyChanged(g.openAPIInputs(p)) {
			continue
		}
		dirs := slices.DeleteFunc(below(g.with("genclient"), p.dir+"/pkg/apis"), func(dir string) bool { return !version.MatchString(path.Base(dir)) })
		if err := g.applyConfigurationGen(ctx, p.dir+"/", p.dir+"/hack/boilerplate.go.txt", p.dir+"/pkg/client/applyconfiguration", importPaths(dirs)); err != nil {
			return err
		}
	}
	return nil
}

var version = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)

// applyConfigurationGen writes the apply configurations of the project at dir, which is ""
// for the main module, into the folder out.
func (g *generation) applyConfigurationGen(ctx context.Context, dir, header, out string, pkgs []string) error {
	return g.step("applyconfiguration-gen"+suffix(dir), len(pkgs), func() error {
		schema, err := output(ctx, g.dir, nil, "go", "run", importPath(dir+"pkg/generated/openapi/cmd/models-schema"))
		if err != nil {
			return err
		}
		schemaFile := scratch + "/models-schema.json"
		if err := g.write(schemaFile, schema); err != nil {
			return err
		}
		if err := g.removeMadeBy("applyconfiguration-gen", out); err != nil {
			return err
		}
		return g.do(ctx, "applyconfiguration-gen", append([]string{
			"--go-header-file=" + header,
			"--output-dir=" + out,
			"--output-pkg=" + importPath(out),
			"--openapi-schema=" + schemaFile,
		}, pkgs...)...)
	})
}

// clients makes client-go's clientset, listers and informers.
func (g *generation) clients(ctx context.Context) error {
	dirs, err := g.apiDirs()
	if err != nil {
		return err
	}
	_, served, err := g.groupVersions()
	if err != nil {
		return err
	}
	if !g.groups && len(g.affected(dirs, g.changed)) == 0 {
		return nil
	}
	const plurals = "--plural-exceptions=Endpoints:Endpoints"
	flags := []string{
		"--output-dir=" + clientGo,
		"--output-pkg=k8s.io/client-go",
		"--clientset-name=kubernetes",
		"--input-base=k8s.io/api",
		"--apply-configuration-package=k8s.io/client-go/applyconfigurations",
		"--prefers-protobuf",
		plurals,
	}
	for _, dir := range served {
		flags = append(flags, "--input="+dir)
	}
	if err := g.clientGoGen(ctx, "client-gen", len(served), flags); err != nil {
		return err
	}
	if err := g.clientGoGen(ctx, "lister-gen", len(dirs), append([]string{
		"--output-dir=" + clientGo + "/listers",
		"--output-pkg=k8s.io/client-go/listers",
		plurals,
	}, importPaths(dirs)...)); err != nil {
		return err
	}
	return g.clientGoGen(ctx, "informer-gen", len(dirs), append([]string{
		"--output-dir=" + clientGo + "/informers",
		"--output-pkg=k8s.io/client-go/informers",
		"--single-directory",
		"--versioned-clientset-package=k8s.io/client-go/kubernetes",
		"--listers-package=k8s.io/client-go/listers",
		plurals,
	}, importPaths(dirs)...))
}

func (g *generation) clientGoGen(ctx context.Context, tool string, n int, args []string) error {
	return g.step(tool, n, func() error {
		if err := g.removeMadeBy(tool, clientGo); err != nil {
			return err
		}
		return g.do(ctx, tool, append([]string{"--go-header-file=" + boilerplate}, args...)...)
	})
}

func (g *generation) groupVersions() (all, served []string, err error) {
	script, err := g.read(groupsScript)
	if err != nil {
		return nil, nil, err
	}
	return groupVersions(script, func(dir string) bool {
		_, err := os.Stat(filepath.Join(g.dir, api, dir, "types.go"))
		return err == nil
	})
}

// apiDirs returns the folders of k8s.io/api that hold types.
func (g *generation) apiDirs() ([]string, error) {
	var dirs []string
	err := filepath.WalkDir(filepath.Join(g.dir, api), func(file string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == "types.go" {
			var dir string
			if dir, err = filepath.Rel(g.dir, filepath.Dir(file)); err == nil {
				dirs = append(dirs, filepath.ToSlash(dir))
			}
		}
		return err
	})
	return dirs, err
}

// removeMadeBy removes the generator's files below the folder, so none is left of a type
// that is gone.
func (g *generation) removeMadeBy(generator, dir string) error {
	mark := []byte("// Code generated by " + generator + ". DO NOT EDIT.\n")
	return filepath.WalkDir(filepath.Join(g.dir, dir), func(file string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(file) != ".go" {
			return err
		}
		data, err := os.ReadFile(file)
		if err == nil && bytes.Contains(data, mark) {
			err = os.Remove(file)
		}
		return err
	})
}

// suffix distinguishes the projects in the progress output.
func suffix(project string) string {
	if project == "" {
		return ""
	}
	return " for " + path.Base(project)
}

// step runs one generator and prints its progress.
func (g *generation) step(name string, n int, run func() error) error {
	return g.log.step(fmt.Sprintf("%s, packages: %d", name, n), run)
}

// seldomCollect saves a quarter of the generators' time: they keep most of what they load, so
// there is little garbage to find. The largest takes 2 GB so, as the linker does.
const seldomCollect = "GOGC=400"

// do runs a generator in the workspace.
func (g *generation) do(ctx context.Context, name string, args ...string) error {
	_, err := output(ctx, g.dir, []string{seldomCollect}, name, args...)
	return err
}

// link makes a symbolic link in the workspace.
func (g *generation) link(name, target string) error {
	path := filepath.Join(g.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return os.Symlink(target, path)
}
