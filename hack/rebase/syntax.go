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
	"bytes"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
)

// source is a parsed file.
type source struct {
	*ast.File
	path string
	fset *token.FileSet
}

// parse reads Go code. Data of nil is an empty file.
func parse(name string, data []byte) (*source, error) {
	s := &source{path: name, fset: token.NewFileSet()}
	if data == nil {
		data = []byte("package none\n")
	}
	var err error
	s.File, err = parser.ParseFile(s.fset, name, data, parser.SkipObjectResolution|parser.ParseComments)
	return s, err
}

// parseFolder reads the code of the package in a folder, without its tests. There is none if the
// folder is not there.
func parseFolder(files fs.FS, folder string) ([]*source, error) {
	names, err := fs.Glob(files, path.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	var all []*source
	for _, name := range names {
		if !isSource(name) {
			continue
		}
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		s, err := parse(name, data)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// line returns the line of a position.
func (s *source) line(pos token.Pos) int { return s.fset.Position(pos).Line }

// text returns code as gofmt prints it, on one line if it has one.
func (s *source) text(node ast.Node) string {
	var b bytes.Buffer
	if err := format.Node(&b, s.fset, node); err != nil {
		return err.Error()
	}
	return b.String()
}

// imports returns the import paths by the names that the file has for them. Of an import without a
// name it takes the last element of the path, or the one before a version such as /v2.
func (s *source) imports() map[string]string {
	all := map[string]string{}
	for _, spec := range s.Imports {
		to, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		name := path.Base(to)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		all[name] = to
	}
	return all
}

// stringConstants returns the values of a package's constants that are string literals.
func stringConstants(files []*source) map[string]string {
	all := map[string]string{}
	for _, s := range files {
		for _, decl := range s.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			for _, spec := range group.Specs {
				spec := spec.(*ast.ValueSpec)
				for i, name := range spec.Names {
					if i < len(spec.Values) {
						if value, ok := stringOf(spec.Values[i]); ok {
							all[name.Name] = value
						}
					}
				}
			}
		}
	}
	return all
}

// stringOf returns the value of a string literal.
func stringOf(expr ast.Expr) (string, bool) {
	literal, ok := expr.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	value, err := strconv.Unquote(literal.Value)
	return value, err == nil
}

// lastName returns C of a.b.C, of C, and of *a.C; or "".
func lastName(expr ast.Expr) string {
	switch expr := expr.(type) {
	case *ast.Ident:
		return expr.Name
	case *ast.SelectorExpr:
		return expr.Sel.Name
	case *ast.StarExpr:
		return lastName(expr.X)
	case *ast.IndexExpr:
		return lastName(expr.X)
	case *ast.IndexListExpr:
		return lastName(expr.X)
	case *ast.ParenExpr:
		return lastName(expr.X)
	}
	return ""
}

// functionsIn returns the functions and methods of files.
func functionsIn(files []*source) map[string]*function {
	all := map[string]*function{}
	for _, s := range files {
		for _, decl := range s.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok {
				all[nameOf(f)] = &function{s, f}
			}
		}
	}
	return all
}

type function struct {
	in   *source
	decl *ast.FuncDecl
}

// nameOf returns the name of a function, with its receiver's type if it is a method.
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil || len(f.Recv.List) == 0 {
		return f.Name.Name
	}
	return lastName(f.Recv.List[0].Type) + "." + f.Name.Name
}

// field returns the value of a field in a composite literal, or nil.
func field(literal *ast.CompositeLit, name string) ast.Expr {
	at := slices.IndexFunc(literal.Elts, func(e ast.Expr) bool {
		entry, ok := e.(*ast.KeyValueExpr)
		return ok && lastName(entry.Key) == name
	})
	if at < 0 {
		return nil
	}
	return literal.Elts[at].(*ast.KeyValueExpr).Value
}
