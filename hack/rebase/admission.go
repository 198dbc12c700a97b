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
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// Admission returns the admission plugins that are new, are gone, have moved in the order or are on
// or off by default otherwise than before.
func (c *Comparison) Admission() (*Section, error) {
	s := &Section{
		Title: "admission plugins",
		Do:    "See whether `ControllerRing` still has its place in the order, and what a new plugin does to ControllerInstances and to pods that controllers on rings create.",
	}
	const file = "pkg/kubeapiserver/options/plugins.go"
	change := c.change(file)
	if change == nil {
		return s, nil
	}
	old, err := pluginsIn(file, change.Old)
	if err != nil {
		return nil, err
	}
	new, err := pluginsIn(file, change.New)
	if err != nil {
		return nil, err
	}
	state := func(on bool) string { return map[bool]string{true: "on", false: "off"}[on] }
	for i, plugin := range new.order {
		switch {
		case !slices.Contains(old.order, plugin):
			after := "first"
			if i > 0 {
				after = "after `" + new.order[i-1] + "`"
			}
			s.Findings = append(s.Findings, Finding{Text: fmt.Sprintf("new: `%s`, %s by default, %s in the order", plugin, state(new.on[plugin]), after)})
		case old.on[plugin] != new.on[plugin]:
			s.Findings = append(s.Findings, Finding{Text: fmt.Sprintf("`%s` is %s by default, was %s", plugin, state(new.on[plugin]), state(old.on[plugin]))})
		}
	}
	for _, plugin := range old.order {
		if !slices.Contains(new.order, plugin) {
			s.Findings = append(s.Findings, Finding{Text: fmt.Sprintf("gone: `%s`", plugin)})
		}
	}
	both := func(order, other []string) []string {
		return slices.DeleteFunc(slices.Clone(order), func(plugin string) bool { return !slices.Contains(other, plugin) })
	}
	before, after := both(old.order, new.order), both(new.order, old.order)
	if !slices.Equal(before, after) {
		hunks, err := diff([]byte(strings.Join(before, "\n")+"\n"), []byte(strings.Join(after, "\n")+"\n"))
		if err != nil {
			return nil, err
		}
		s.Findings = append(s.Findings, Finding{Text: "the order of those that were there before changed:", Detail: join(hunks), Language: "diff"})
	}
	return s, nil
}

// plugins are admission plugins by their packages.
type plugins struct {
	order []string
	on    map[string]bool // by default
}

func pluginsIn(name string, data []byte) (*plugins, error) {
	s, err := parse(name, data)
	if err != nil {
		return nil, err
	}
	imports := s.imports()
	p := &plugins{on: map[string]bool{}}
	packages := func(list []ast.Expr) (all []string) {
		for _, e := range list {
			if selector, ok := e.(*ast.SelectorExpr); ok {
				all = append(all, strings.TrimPrefix(imports[lastName(selector.X)], "k8s.io/kubernetes/plugin/pkg/admission/"))
			}
		}
		return all
	}
	ast.Inspect(s.File, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			if literal, ok := first(n.Values).(*ast.CompositeLit); ok && n.Names[0].Name == "AllOrderedPlugins" {
				p.order = packages(literal.Elts)
			}
		case *ast.AssignStmt:
			if call, ok := first(n.Rhs).(*ast.CallExpr); ok && lastName(n.Lhs[0]) == "defaultOnPlugins" {
				for _, plugin := range packages(call.Args) {
					p.on[plugin] = true
				}
			}
		}
		return true
	})
	if len(p.order) == 0 && data != nil {
		return nil, fmt.Errorf("%s has no AllOrderedPlugins: find where the order of admission plugins is, and mend hack/rebase", name)
	}
	return p, nil
}

func first(all []ast.Expr) ast.Expr {
	if len(all) == 0 {
		return nil
	}
	return all[0]
}
