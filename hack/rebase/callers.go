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
	"path"
	"slices"
	"strings"
)

// hooked is a function of upstream's that a patch changes, or whose calls a patch replaces or
// wraps.
type hooked struct {
	folder string // of its package in the tree
	name   string // with the receiver's type, if that is known
	method bool
	// exported says of a method that other packages can have its type.
	exported bool
	why      string
}

// Callers returns the new calls of functions that our patches hook into, replace or wrap.
func (c *Comparison) Callers() (*Section, error) {
	s := &Section{
		Title: "new callers of what our patches hook into",
		Do:    "Does the new caller want what the patch does? A patch that replaces or wraps calls does not have the new ones. Methods are told by their names and by what the file imports, not by types: another type may have one of that name.",
	}
	all, err := c.hookedByPatches()
	if err != nil {
		return nil, err
	}
	type call struct{ where, text string }
	calls := map[string][]call{}
	for i := range c.Changes {
		change := &c.Changes[i]
		if !isSource(change.Path) || strings.HasPrefix(change.Path, "test/") || change.New == nil {
			continue
		}
		before, err := parse(change.Path, change.Old)
		if err != nil {
			return nil, err
		}
		after, err := parse(change.Path, change.New)
		if err != nil {
			return nil, err
		}
		old, new := callsOf(before, all), callsOf(after, all)
		for _, h := range sortedKeys(new) {
			known := map[string]int{}
			for _, site := range old[h] {
				known[site.text]++
			}
			for _, site := range new[h] {
				if known[site.text] > 0 {
					known[site.text]--
					continue
				}
				calls[h] = append(calls[h], call{fmt.Sprintf("%s:%d in %s", change.Path, site.line, site.in), site.text})
			}
		}
	}
	for _, h := range sortedKeys(calls) {
		var lines []string
		for _, call := range calls[h] {
			lines = append(lines, call.where+": "+call.text)
		}
		s.Findings = append(s.Findings, Finding{Text: fmt.Sprintf("`%s` (%s)", h, all[h].why), Detail: strings.Join(lines, "\n") + "\n"})
	}
	return s, nil
}

// hookedByPatches returns the functions by their import path and name.
func (c *Comparison) hookedByPatches() (map[string]hooked, error) {
	all := map[string]hooked{}
	add := func(folder, name, why string) {
		at := strings.LastIndexByte(name, '.')
		key := importPath(folder) + "." + name
		if _, there := all[key]; !there {
			all[key] = hooked{folder: folder, name: name[at+1:], method: at >= 0, exported: ast.IsExported(name), why: why}
		}
	}
	for _, name := range sortedKeys(c.Patches) {
		if !isSource(name) {
			continue
		}
		data, err := c.Old.must(name)
		if err != nil {
			return nil, err
		}
		s, err := parse(name, data)
		if err != nil {
			return nil, err
		}
		folder, imports := path.Dir(name), s.imports()
		functions := functionsIn([]*source{s})
		for _, h := range c.Patches[name].Hunks {
			for _, f := range sortedKeys(functions) {
				decl := functions[f].decl
				first, last := s.line(decl.Pos()), s.line(decl.End())
				if h.To >= h.From && (h.From > last || h.To < first) || h.To < h.From && (h.From <= first || h.From > last) {
					continue
				}
				add(folder, f, "hooked into by `"+name+".patch`")
				ast.Inspect(decl, func(n ast.Node) bool {
					call, ok := n.(*ast.CallExpr)
					if !ok || s.line(call.Pos()) < h.From || s.line(call.Pos()) > h.To {
						return true
					}
					why := "a call of it is replaced or wrapped by `" + name + ".patch`"
					switch fun := call.Fun.(type) {
					case *ast.Ident:
						if !builtin[fun.Name] {
							add(folder, fun.Name, why)
						}
					case *ast.SelectorExpr:
						to := imports[lastName(fun.X)]
						if strings.HasPrefix(to, "k8s.io/") {
							add(folderOf(to), fun.Sel.Name, why)
						}
					}
					return true
				})
			}
		}
	}
	return all, nil
}

var builtin = map[string]bool{
	"append": true, "cap": true, "clear": true, "close": true, "copy": true, "delete": true, "len": true, "make": true, "max": true,
	"min": true, "new": true, "panic": true, "string": true, "int": true, "int32": true, "int64": true, "float64": true,
}

// site is a call.
type site struct {
	line     int
	in, text string
}

// callsOf returns the calls of hooked functions in a file.
func callsOf(s *source, all map[string]hooked) map[string][]site {
	folder, imports := path.Dir(s.path), s.imports()
	byName := map[string][]string{}
	for key, h := range all {
		byName[h.name] = append(byName[h.name], key)
	}
	found := map[string][]site{}
	for _, decl := range s.Decls {
		in := "a variable"
		if f, ok := decl.(*ast.FuncDecl); ok {
			in = nameOf(f)
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			selector, selected := call.Fun.(*ast.SelectorExpr)
			for _, key := range byName[lastName(call.Fun)] {
				h := all[key]
				of := importPath(h.folder)
				from, qualified := "", false
				if selected {
					from, qualified = imports[lastName(selector.X)]
					_, plain := selector.X.(*ast.Ident)
					qualified = qualified && plain
				}
				var is bool
				switch {
				case h.method:
					is = selected && !qualified && (h.folder == folder || h.exported && slices.Contains(sortedValues(imports), of))
				case selected:
					is = qualified && from == of
				default:
					is = h.folder == folder
				}
				if is {
					text, _, _ := strings.Cut(s.text(call), "\n")
					found[key] = append(found[key], site{s.line(call.Pos()), in, text})
				}
			}
			return true
		})
	}
	return found
}

func sortedValues(m map[string]string) []string {
	var all []string
	for _, key := range sortedKeys(m) {
		all = append(all, m[key])
	}
	return all
}
