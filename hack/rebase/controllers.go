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

// Where upstream has its controllers, and where we say what we know of them.
const (
	controllersFolder = "cmd/kube-controller-manager/app"
	namesFolder       = "cmd/kube-controller-manager/names"
	podtrimFolder     = "pkg/controller/podtrim"
	catalogueFolder   = "pkg/controller/ring/catalogue"
	controllersDoc    = "docs/reference/controllers.md"
)

// descriptor is what kube-controller-manager says of a controller.
type descriptor struct {
	literal string
	// constructor is the source of the function that makes it.
	constructor string
}

// Controllers returns how the list of controllers changed.
func (c *Comparison) Controllers() (*Section, error) {
	s := &Section{
		Title: "controllers",
		Do:    "Decide where each new one runs, and declare what it reads of pods (CONTRIBUTING.md). Mend `OnRing` where a constructor changed.",
	}
	if !c.changedIn(controllersFolder) && !c.changedIn(namesFolder) {
		return s, nil
	}
	old, err := descriptors(c.Old)
	if err != nil {
		return nil, err
	}
	new, err := descriptors(c.New)
	if err != nil {
		return nil, err
	}
	places, err := c.controllersOfOurs()
	if err != nil {
		return nil, err
	}
	for _, name := range sortedKeys(new) {
		before, there := old[name]
		after := new[name]
		switch {
		case !there:
			var lack []string
			for place, names := range places {
				if place != catalogueFolder && !slices.Contains(names, name) {
					lack = append(lack, place)
				}
			}
			slices.Sort(lack)
			text := fmt.Sprintf("**new:** `%s`", name)
			if len(lack) > 0 {
				text += ", which is not in " + strings.Join(lack, " nor ") + ": as long as podtrim does not know it, the leader keeps whole pods"
			}
			s.Findings = append(s.Findings, Finding{Text: text, Detail: after.literal + "\n", Language: "go"})
		case before.literal != after.literal || slices.Contains(places[catalogueFolder], name) && before.constructor != after.constructor:
			what := "its descriptor changed"
			if before.literal == after.literal {
				what = "its constructor changed, and `OnRing` does what that does"
			}
			hunks, err := diff([]byte(before.literal+"\n"+before.constructor+"\n"), []byte(after.literal+"\n"+after.constructor+"\n"))
			if err != nil {
				return nil, err
			}
			s.Findings = append(s.Findings, Finding{Text: fmt.Sprintf("`%s`: %s", name, what), Detail: join(hunks), Language: "diff"})
		}
	}
	for _, name := range sortedKeys(old) {
		if _, there := new[name]; there {
			continue
		}
		var in []string
		for place, names := range places {
			if slices.Contains(names, name) {
				in = append(in, "`"+place+"`")
			}
		}
		slices.Sort(in)
		s.Findings = append(s.Findings, Finding{Text: fmt.Sprintf("**gone:** `%s`, which is in %s", name, strings.Join(in, ", "))})
	}
	return s, nil
}

func join(hunks []hunk) string {
	var b strings.Builder
	for _, h := range hunks {
		b.WriteString(h.text)
	}
	return b.String()
}

// descriptors returns upstream's controllers by name.
func descriptors(u *Upstream) (map[string]descriptor, error) {
	named, err := parseFolder(u.Files, namesFolder)
	if err != nil {
		return nil, err
	}
	files, err := parseFolder(u.Files, controllersFolder)
	if err != nil {
		return nil, err
	}
	names, functions := stringConstants(named), functionsIn(files)
	all := map[string]descriptor{}
	for _, file := range files {
		ast.Inspect(file.File, func(n ast.Node) bool {
			literal, ok := n.(*ast.CompositeLit)
			if !ok || lastName(literal.Type) != "ControllerDescriptor" {
				return true
			}
			name, known := names[lastName(field(literal, "name"))]
			if !known {
				return true
			}
			d := descriptor{literal: file.text(literal)}
			if f := functions[lastName(field(literal, "constructor"))]; f != nil {
				d.constructor = f.in.text(f.decl)
			}
			all[name] = d
			return true
		})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("upstream %s has no controllers in %s: find where they are, and mend hack/rebase", u.Version, controllersFolder)
	}
	return all, nil
}

// controllersOfOurs returns the controllers that we know, by the place where we say something of
// them.
func (c *Comparison) controllersOfOurs() (map[string][]string, error) {
	known := map[string][]string{podtrimFolder: nil, catalogueFolder: nil, controllersDoc: nil}
	named, err := parseFolder(c.Old.Files, namesFolder)
	if err != nil {
		return nil, err
	}
	names := stringConstants(named)
	for name, data := range c.Ours {
		folder := path.Dir(name)
		if folder != podtrimFolder && folder != catalogueFolder || !isSource(name) {
			continue
		}
		s, err := parse(name, data)
		if err != nil {
			return nil, err
		}
		if folder == catalogueFolder {
			for constant, value := range stringConstants([]*source{s}) {
				if strings.HasSuffix(constant, "Controller") {
					known[folder] = append(known[folder], value)
				}
			}
			continue
		}
		ast.Inspect(s.File, func(n ast.Node) bool {
			if selector, ok := n.(*ast.SelectorExpr); ok && lastName(selector.X) == "names" {
				// A controller that is new upstream has its constant there only.
				if value, ok := names[selector.Sel.Name]; ok {
					known[folder] = append(known[folder], value)
				}
			}
			return true
		})
	}
	for _, name := range names {
		if strings.Contains(string(c.Ours[controllersDoc]), "`"+name+"`") {
			known[controllersDoc] = append(known[controllersDoc], name)
		}
	}
	return known, nil
}
