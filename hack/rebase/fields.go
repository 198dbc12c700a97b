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
	"io/fs"
	"path"
	"slices"
	"strings"
)

const metaPackage = "k8s.io/apimachinery/pkg/apis/meta/v1"

// metadata are the types that our code copies field by field, or adds fields to, with where it
// does.
var metadata = map[string]string{
	"ObjectMeta":            "we add a field of our own, and code of ours has to set, keep or strip it wherever upstream copies metadata field by field",
	"OwnerReference":        "we add a field of our own, and keep it through updates and adoptions",
	"ListMeta":              "lists of ranges fill it",
	"ListOptions":           "informers of ranges set it, and the watch cache asks for it",
	"PartialObjectMetadata": "informers of metadata hold it",
	"ShardInfo":             "lists of ranges fill it",
}

// Fields returns the new, changed and gone fields of what our code trims, shares or caches by
// range.
func (c *Comparison) Fields() (*Section, error) {
	s := &Section{
		Title: "fields of objects that we trim, share or hold by range",
		Do:    "A field of a type that is built anew is lost until somebody keeps it: see whether a controller reads it (`make podreads` after `make tree`). The memory of a shared object must not be written in place.",
	}
	if !slices.ContainsFunc(c.Changes, func(change Change) bool { return isSource(change.Path) && isAPI(path.Dir(change.Path)) }) {
		return s, nil
	}
	roots, anew, err := c.objectsOfOurs()
	if err != nil {
		return nil, err
	}
	old, new := &schema{u: c.Old}, &schema{u: c.New}
	why := map[typeName]string{}
	inOrder := sortedTypes(roots)
	slices.SortStableFunc(inOrder, func(a, b typeName) int { return roots[a].rank - roots[b].rank })
	for _, root := range inOrder {
		for _, sch := range []*schema{old, new} {
			if err := sch.visit(root, roots[root].text, why, map[typeName]bool{}); err != nil {
				return nil, err
			}
		}
	}
	var lost, others []Finding
	for _, t := range sortedTypes(why) {
		before, err := old.fieldsOf(t)
		if err != nil {
			return nil, err
		}
		after, err := new.fieldsOf(t)
		if err != nil {
			return nil, err
		}
		if before == nil || after == nil {
			continue // the field that leads to the type is a finding
		}
		for _, name := range sortedKeys(merge(before, after)) {
			was, there := before[name]
			is, still := after[name]
			var text string
			switch {
			case !there:
				text = fmt.Sprintf("new: `%s.%s %s`", t, name, is.text)
			case !still:
				text = fmt.Sprintf("gone: `%s.%s %s`", t, name, was.text)
			case was.text != is.text:
				text = fmt.Sprintf("`%s.%s` is `%s`, was `%s`", t, name, is.text, was.text)
			default:
				continue
			}
			if where := anew[t]; where != "" {
				lost = append(lost, Finding{Text: text + "; **built anew** by " + where + ", so it is dropped"})
			} else {
				others = append(others, Finding{Text: text + "; " + why[t]})
			}
		}
	}
	s.Findings = append(lost, others...)
	return s, nil
}

// isAPI reports whether a folder may hold API types.
func isAPI(folder string) bool {
	return strings.HasPrefix(folder, staging+"k8s.io/api/") || folder == staging+metaPackage
}

// typeName is a type and the import path of its package.
type typeName struct{ pkg, name string }

func (t typeName) String() string {
	return strings.TrimPrefix(strings.TrimPrefix(t.pkg, "k8s.io/api/"), "k8s.io/apimachinery/pkg/apis/") + "." + t.name
}

func sortedTypes[V any](m map[typeName]V) []typeName {
	all := make([]typeName, 0, len(m))
	for t := range m {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b typeName) int { return strings.Compare(a.pkg+" "+a.name, b.pkg+" "+b.name) })
	return all
}

// reason is why a type matters. Where there are several, the one with the lowest rank counts.
type reason struct {
	rank int
	text string
}

// objectsOfOurs returns the API types that code of ours names where it trims, shares or caches,
// with the reason, and those that it builds anew, with the function that does.
func (c *Comparison) objectsOfOurs() (roots map[typeName]reason, anew map[typeName]string, err error) {
	roots, anew = map[typeName]reason{}, map[typeName]string{}
	for name, does := range metadata {
		roots[typeName{metaPackage, name}] = reason{0, does}
	}
	for _, name := range sortedKeys(c.Ours) {
		folder := path.Dir(name)
		holds := reason{2, "held by range, as "}
		switch folder {
		case podtrimFolder:
			holds = reason{1, "trimmed by podtrim, as "}
		case path.Dir(catalogueFolder):
		default:
			continue
		}
		if !isSource(name) {
			continue
		}
		s, err := parse(name, c.Ours[name])
		if err != nil {
			return nil, nil, err
		}
		imports := s.imports()
		apiType := func(expr ast.Expr) (typeName, bool) {
			selector, ok := expr.(*ast.SelectorExpr)
			if !ok {
				return typeName{}, false
			}
			t := typeName{imports[lastName(selector.X)], selector.Sel.Name}
			return t, strings.HasPrefix(t.pkg, "k8s.io/api/")
		}
		for _, decl := range s.Decls {
			f, _ := decl.(*ast.FuncDecl)
			trims := f != nil && (folder == podtrimFolder || strings.HasPrefix(strings.ToLower(f.Name.Name), "trim"))
			ast.Inspect(decl, func(n ast.Node) bool {
				if expr, ok := n.(ast.Expr); ok {
					if t, ok := apiType(expr); ok && (roots[t].text == "" || holds.rank < roots[t].rank) {
						roots[t] = reason{holds.rank, holds.text + t.String()}
					}
				}
				if !trims {
					return true
				}
				var built ast.Expr
				switch n := n.(type) {
				case *ast.CompositeLit:
					built = n.Type
				case *ast.ValueSpec:
					built = n.Type
				case *ast.FuncType:
					if n.Results != nil {
						for _, result := range n.Results.List {
							if t, ok := apiType(result.Type); ok {
								anew[t] = fmt.Sprintf("`%s` in `%s`", f.Name.Name, name)
							}
						}
					}
				}
				if t, ok := apiType(built); ok {
					anew[t] = fmt.Sprintf("`%s` in `%s`", f.Name.Name, name)
				}
				return true
			})
		}
	}
	return roots, anew, nil
}

// schema has the structs of a version of upstream.
type schema struct {
	u      *Upstream
	loaded map[string]map[string]map[string]structField // by package, type and field
}

type structField struct {
	text string // its type, as in the source
	refs []typeName
}

// fieldsOf returns the fields of a struct, or nil if there is no struct of that name.
func (s *schema) fieldsOf(t typeName) (map[string]structField, error) {
	if !isAPI(folderOf(t.pkg)) {
		return nil, nil
	}
	if structs, ok := s.loaded[t.pkg]; ok {
		return structs[t.name], nil
	}
	if s.loaded == nil {
		s.loaded = map[string]map[string]map[string]structField{}
	}
	structs := map[string]map[string]structField{}
	s.loaded[t.pkg] = structs
	if _, err := fs.Stat(s.u.Files, folderOf(t.pkg)); err != nil {
		return nil, nil
	}
	files, err := parseFolder(s.u.Files, folderOf(t.pkg))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		imports := file.imports()
		ast.Inspect(file.File, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			body, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			fields := map[string]structField{}
			for _, f := range body.Fields.List {
				made := structField{text: file.text(f.Type), refs: refs(f.Type, t.pkg, imports)}
				names := f.Names
				if len(names) == 0 {
					names = []*ast.Ident{{Name: lastName(f.Type)}}
				}
				for _, name := range names {
					fields[name.Name] = made
				}
			}
			structs[spec.Name.Name] = fields
			return false
		})
	}
	return structs[t.name], nil
}

// refs returns the named types in a type.
func refs(expr ast.Expr, pkg string, imports map[string]string) (all []typeName) {
	ast.Inspect(expr, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			all = append(all, typeName{imports[lastName(n.X)], n.Sel.Name})
			return false
		case *ast.Ident:
			all = append(all, typeName{pkg, n.Name})
		}
		return true
	})
	return all
}

// visit notes why all structs matter that a type leads to.
func (s *schema) visit(t typeName, because string, why map[typeName]string, seen map[typeName]bool) error {
	fields, err := s.fieldsOf(t)
	if err != nil || fields == nil || seen[t] {
		return err
	}
	seen[t] = true
	if why[t] == "" {
		why[t] = because
	}
	for _, f := range fields {
		for _, ref := range f.refs {
			if err := s.visit(ref, because, why, seen); err != nil {
				return err
			}
		}
	}
	return nil
}
