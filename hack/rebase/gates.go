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
	"strconv"
	"strings"
)

// gate is what a version of upstream says of a feature gate.
type gate struct {
	file string
	// stage is its stage and its default, such as "beta, on".
	stage string
}

// Gates returns the feature gates that are new, are gone or have another stage or default.
func (c *Comparison) Gates() (*Section, error) {
	s := &Section{
		Title: "feature gates",
		Do:    "A gate that is on now changes what our code meets. Those that our files name come first: look at each place. Of the others, see whether one touches controllers on rings, informers, lists and watches, or the watch cache.",
	}
	old, err := gates(c, c.Old, func(change *Change) []byte { return change.Old })
	if err != nil {
		return nil, err
	}
	new, err := gates(c, c.New, func(change *Change) []byte { return change.New })
	if err != nil {
		return nil, err
	}
	var ours, others []Finding
	for _, name := range sortedKeys(merge(old, new)) {
		before, was := old[name]
		after, is := new[name]
		var text string
		switch {
		case !was:
			text = fmt.Sprintf("new: `%s`, %s (`%s`)", name, after.stage, path.Dir(after.file))
		case !is:
			text = fmt.Sprintf("gone: `%s`, which was %s (`%s`)", name, before.stage, path.Dir(before.file))
		case before.stage != after.stage:
			text = fmt.Sprintf("`%s`: %s, was %s (`%s`)", name, after.stage, before.stage, path.Dir(after.file))
		default:
			continue
		}
		if by := c.index().words[name]; len(by) > 0 {
			ours = append(ours, Finding{Text: text + "; **named in** " + quoted(by)})
		} else {
			others = append(others, Finding{Text: text})
		}
	}
	s.Findings = append(ours, others...)
	return s, nil
}

func merge[V any](a, b map[string]V) map[string]V {
	all := map[string]V{}
	for _, m := range []map[string]V{a, b} {
		for key, value := range m {
			all[key] = value
		}
	}
	return all
}

// gates returns the feature gates in files that changed.
func gates(c *Comparison, u *Upstream, content func(*Change) []byte) (map[string]gate, error) {
	all := map[string]gate{}
	for i := range c.Changes {
		change := &c.Changes[i]
		data := content(change)
		if !isSource(change.Path) || strings.HasPrefix(change.Path, "test/") || !strings.Contains(string(data), "VersionedSpecs") {
			continue
		}
		s, err := parse(change.Path, data)
		if err != nil {
			return nil, err
		}
		ast.Inspect(s.File, func(n ast.Node) bool {
			literal, ok := n.(*ast.CompositeLit)
			if !ok {
				return true
			}
			if m, ok := literal.Type.(*ast.MapType); !ok || lastName(m.Value) != "VersionedSpecs" {
				return true
			}
			for _, e := range literal.Elts {
				entry, ok := e.(*ast.KeyValueExpr)
				if !ok {
					continue
				}
				specs, ok := entry.Value.(*ast.CompositeLit)
				if name := lastName(entry.Key); ok && name != "" {
					all[name] = gate{file: change.Path, stage: stageIn(s, specs, minorOf(u.Version))}
				}
			}
			return false
		})
	}
	return all, nil
}

// stageIn returns the stage and the default of a gate in a minor version, by the list of its
// versions.
func stageIn(s *source, specs *ast.CompositeLit, minor int) string {
	stage := "unknown"
	for _, e := range specs.Elts {
		spec, ok := e.(*ast.CompositeLit)
		if !ok {
			continue
		}
		if call, ok := field(spec, "Version").(*ast.CallExpr); ok && len(call.Args) == 1 {
			if text, ok := stringOf(call.Args[0]); ok && minorOf(text) > minor {
				continue
			}
		}
		stage = "alpha, "
		if of := lastName(field(spec, "PreRelease")); of != "" {
			stage = strings.ToLower(of) + ", "
		}
		switch value := field(spec, "Default").(type) {
		case nil:
			stage += "off"
		case *ast.Ident:
			stage += map[string]string{"true": "on", "false": "off"}[value.Name]
		default:
			stage += s.text(value)
		}
		if lastName(field(spec, "LockToDefault")) == "true" {
			stage += ", locked"
		}
	}
	return stage
}

// minorOf returns 38 of v1.38.0-beta.0 and of 1.38, and a large number of what is no version.
func minorOf(version string) int {
	parts := strings.Split(version, ".")
	if len(parts) >= 2 {
		if minor, err := strconv.Atoi(parts[1]); err == nil {
			return minor
		}
	}
	return 1 << 30
}
