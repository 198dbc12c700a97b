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
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
)

// The edits of tests that start controllers.
const (
	// server has a ring use the API server that is started, and end before it.
	server = "server"
	// start has a ring in place of a controller.
	start = "start"
	// parameter hands the test to a function that starts a controller.
	parameter = "parameter"
	// informers has those that are only waited for run with the controller alone.
	informers = "informers"
	// leave, with the name of a variable or of a function, has what is started run as it is.
	leave = "leave "
)

// suites are the packages of test/integration that start controllers of the catalogue, with the
// edits that have a place there besides server and start, which have one in all.
var suites = map[string][]string{
	"cronjob": {},
	// The scheduler.
	"daemonset":  {leave + "sched"},
	"deployment": {},
	"disruption": {},
	"endpoints":  {},
	// The controller that mirrors Endpoints is on no ring.
	"endpointslice": {leave + "epsmController"},
	"evictions":     {},
	// That test holds back a request of its own controller.
	"job":                   {informers, leave + "testJobRecreationClearsPodExpectations"},
	"replicaset":            {},
	"replicationcontroller": {},
	"statefulset":           {parameter},
}

// onRing has tests run with three members of a ring in place of the controllers that they start.
func onRing(o *overlay, packages []string) ([]string, error) {
	// A process registers the name of its informers once.
	name := func(node ast.Node) (from, to token.Pos, with string) {
		if call, ok := node.(*ast.CallExpr); ok && lastName(call.Fun) == "NewInformerName" {
			return call.Args[0].Pos(), call.Args[0].End(), `fmt.Sprintf("kube-controller-manager-%p", s)`
		}
		return
	}
	// A test gives its controller this timeout.
	timeout := func(node ast.Node) (from, to token.Pos, with string) {
		if spec, ok := node.(*ast.ValueSpec); ok && spec.Names[0].Name == "stalePodDisruptionTimeout" {
			return spec.Values[0].Pos(), spec.Values[0].End(), "3 * time.Second"
		}
		return
	}
	errs := []error{
		o.editFile("cmd/kube-controller-manager/app/controllermanager.go", "name of informers", name),
		o.editFile("pkg/controller/disruption/disruption.go", "timeout", timeout),
	}
	chosen, err := choose(suites, packages)
	errs = append(errs, err)
	var folders []string
	for _, name := range chosen {
		folder := path.Join("test/integration", name)
		sources, err := readPackage(o.tree, folder)
		if err == nil {
			err = putOnRing(folder, sources, suites[name])
		}
		errs = append(errs, err)
		o.edit(sources...)
		folders = append(folders, folder)
	}
	return folders, errors.Join(errs...)
}

// putOnRing edits the tests in a folder.
func putOnRing(folder string, sources []*source, edits []string) error {
	needy := map[string]bool{}
	for _, s := range sources {
		s.useServers()
		s.startRings(edits, needy)
	}
	var errs []error
	for _, s := range sources {
		errs = append(errs, s.handTests(needy), s.unknownStarts())
		s.importHelpers()
	}
	return errors.Join(append(errs, expect(folder, sources, append([]string{server, start}, edits...)...))...)
}

func (s *source) useServers() {
	s.walk(func(node ast.Node, _ []ast.Node) {
		call, ok := node.(*ast.CallExpr)
		switch {
		case !ok:
		case s.code(call.Fun) == "framework.StartTestServer":
			s.replace(server, call.Fun, "controllermanager.StartTestServer")
		case lastName(call.Fun) == "StartTestServerOrDie":
			s.replace(server, call, "controllermanager.Use("+s.code(call)+")")
		}
	})
}

// startRings looks for "go controller.Run(ctx, workers)". A function that has no test to give to a
// ring gets one, and is needy.
func (s *source) startRings(edits []string, needy map[string]bool) {
	s.walk(func(node ast.Node, in []ast.Node) {
		statement, ok := node.(*ast.GoStmt)
		if !ok {
			return
		}
		run, ok := statement.Call.Fun.(*ast.SelectorExpr)
		if !ok || run.Sel.Name != "Run" {
			return
		}
		f, ok := in[1].(*ast.FuncDecl)
		if !ok {
			return
		}
		for _, name := range []string{f.Name.Name, s.code(run.X)} {
			if slices.Contains(edits, leave+name) {
				s.replace(leave+name, statement, s.code(statement))
				return
			}
		}
		args := statement.Call.Args
		if len(args) != 2 {
			return
		}
		test := "t"
		if tests := s.tests(in); len(tests) > 0 {
			test = tests[0]
		} else if !needy[f.Name.Name] {
			needy[f.Name.Name] = true
			s.insert(parameter, f.Type.Params.Opening+1, "t *testing.T, ")
		}
		s.replace(start, statement, fmt.Sprintf("controllermanager.InsteadOf(%s, %s, %s)", test, s.code(args[0]), s.code(run)))
		s.holdInformers(statement, in[len(in)-1])
	})
}

// holdInformers looks for informers that are started right before a controller, and waited for
// right after it. Handlers of a controller that never works would count in the metrics of those
// that do.
func (s *source) holdInformers(controller *ast.GoStmt, in ast.Node) {
	block, ok := in.(*ast.BlockStmt)
	if !ok {
		return
	}
	i := slices.Index(block.List, ast.Stmt(controller))
	if i == 0 || i+1 == len(block.List) {
		return
	}
	before, after := s.code(block.List[i-1]), s.code(block.List[i+1])
	if of, _, ok := strings.Cut(before, ".Start("); ok && strings.HasPrefix(after, of+".WaitForCacheSync(") {
		s.replace(informers, block.List[i-1], "controllermanager.WithoutRing(func() { "+before+" })")
	}
}

// handTests gives the test to functions that need it.
func (s *source) handTests(needy map[string]bool) error {
	var errs []error
	s.walk(func(node ast.Node, in []ast.Node) {
		call, ok := node.(*ast.CallExpr)
		if !ok || !needy[lastName(call.Fun)] {
			return
		}
		if tests := s.tests(in); len(tests) > 0 {
			s.insert(parameter, call.Lparen+1, tests[0]+", ")
		} else {
			errs = append(errs, fmt.Errorf("%s: there is no test to give to %s, which starts a controller", s.at(call), s.code(call.Fun)))
		}
	})
	return errors.Join(errs...)
}

// unknownStarts fails if anything runs that no edit is about, other than tests.
func (s *source) unknownStarts() error {
	var errs []error
	s.walk(func(node ast.Node, in []ast.Node) {
		run, ok := node.(*ast.SelectorExpr)
		if !ok || run.Sel.Name != "Run" || slices.Contains(s.tests(in), s.code(run.X)) {
			return
		}
		if !slices.ContainsFunc(s.changes, func(c change) bool { return c.from < run.Pos() && run.End() < c.to }) {
			errs = append(errs, fmt.Errorf("%s: hack/overlay does not know this way to start a controller: %s", s.at(run), s.code(run)))
		}
	})
	return errors.Join(errs...)
}

// tests returns the names of the testing.T and the like that the functions among these nodes have
// as parameters, those of the innermost function first.
func (s *source) tests(in []ast.Node) []string {
	var names []string
	for _, node := range slices.Backward(in) {
		var params []*ast.Field
		switch f := node.(type) {
		case *ast.FuncDecl:
			params = f.Type.Params.List
		case *ast.FuncLit:
			params = f.Type.Params.List
		}
		for _, p := range params {
			if strings.HasPrefix(strings.TrimPrefix(s.code(p.Type), "*"), "testing.") {
				for _, name := range p.Names {
					names = append(names, name.Name)
				}
			}
		}
	}
	return names
}

func (s *source) importHelpers() {
	if slices.ContainsFunc(s.changes, func(c change) bool { return strings.HasPrefix(c.with, "controllermanager.") }) {
		s.insert("import", s.Name.End(), `; import "k8s.io/kubernetes/test/utils/controllermanager"`)
	}
}
