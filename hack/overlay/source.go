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
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// source is a parsed file, with what is to be changed in it. Changes are made to its text, so
// comments stay where they are. None adds a line: what fails is reported with upstream's lines.
type source struct {
	*ast.File
	path    string // in the tree
	text    []byte
	fset    *token.FileSet
	changes []change
}

// change puts with in place of the text between two positions.
type change struct {
	edit     string
	from, to token.Pos
	with     string
}

func parse(path string, text []byte) (*source, error) {
	s := &source{path: path, text: text, fset: token.NewFileSet()}
	var err error
	s.File, err = parser.ParseFile(s.fset, path, text, parser.SkipObjectResolution)
	return s, err
}

func readSource(tree, path string) (*source, error) {
	text, err := os.ReadFile(filepath.Join(tree, path))
	if err != nil {
		return nil, err
	}
	return parse(path, text)
}

// readPackage reads all files of a package, its tests too.
func readPackage(tree, folder string) ([]*source, error) {
	names, err := filepath.Glob(filepath.Join(tree, folder, "*.go"))
	if err != nil {
		return nil, err
	}
	var all []*source
	for _, name := range names {
		s, err := readSource(tree, filepath.Join(folder, filepath.Base(name)))
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func (s *source) replace(edit string, node ast.Node, with string) {
	s.changes = append(s.changes, change{edit, node.Pos(), node.End(), with})
}

func (s *source) insert(edit string, at token.Pos, with string) {
	s.changes = append(s.changes, change{edit, at, at, with})
}

// walk visits all nodes, with those that they are in, the outermost first.
func (s *source) walk(visit func(node ast.Node, in []ast.Node)) {
	ast.PreorderStack(s.File, nil, func(node ast.Node, in []ast.Node) bool {
		visit(node, in)
		return true
	})
}

// at says where a node is.
func (s *source) at(node ast.Node) string {
	return fmt.Sprintf("%s:%d", s.path, s.fset.Position(node.Pos()).Line)
}

// code returns a node as it is written.
func (s *source) code(node ast.Node) string {
	return string(s.text[s.offset(node.Pos()):s.offset(node.End())])
}

func (s *source) offset(at token.Pos) int { return s.fset.Position(at).Offset }

// changed returns the text with all changes made.
func (s *source) changed() []byte {
	slices.SortStableFunc(s.changes, func(a, b change) int { return cmp.Compare(a.from, b.from) })
	var b strings.Builder
	done := 0
	for _, c := range s.changes {
		b.Write(s.text[done:s.offset(c.from)])
		b.WriteString(c.with)
		done = s.offset(c.to)
	}
	b.Write(s.text[done:])
	return []byte(b.String())
}

// times returns how often each edit changes a source.
func (s *source) times() map[string]int {
	n := map[string]int{}
	for _, c := range s.changes {
		n[c.edit]++
	}
	return n
}

// expect fails unless each edit changes one of these sources.
func expect(where string, sources []*source, edits ...string) error {
	for _, edit := range edits {
		if !slices.ContainsFunc(sources, func(s *source) bool { return s.times()[edit] > 0 }) {
			return fmt.Errorf("%s: the edit %q finds no place", where, edit)
		}
	}
	return nil
}

// lastName returns C of a.b.C and of C, or "".
func lastName(node ast.Node) string {
	switch node := node.(type) {
	case *ast.Ident:
		return node.Name
	case *ast.SelectorExpr:
		return node.Sel.Name
	}
	return ""
}
