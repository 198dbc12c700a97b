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

// Package docs holds tables of docs/ against the sources that they are about.
package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

const (
	keyPathsSource = "../../staging/src/k8s.io/apimachinery/pkg/sharding/hash_key_path.go"
	keyPathsDoc    = "../../docs/design.md"
)

// keyPath is what a row of either table says that both have.
type keyPath struct {
	fieldPath, governs string
	optional           bool
}

func TestTheTableOfKeyPathsIsThatOfTheSource(t *testing.T) {
	want := sourceOfKeyPaths(t)
	text, err := os.ReadFile(keyPathsDoc)
	if err != nil {
		t.Fatal(err)
	}
	var got []keyPath
	for _, row := range regexp.MustCompile("(?m)^\\| `(object\\..+)` \\| `(.+)` \\| .+ \\| (.+) \\|$").FindAllStringSubmatch(string(text), -1) {
		got = append(got, keyPath{row[1], row[2], row[3] != "none"})
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s has the key paths %+v, want those of %s: %+v", keyPathsDoc, got, keyPathsSource, want)
	}
}

// sourceOfKeyPaths returns the rows of the variable keyPaths.
func sourceOfKeyPaths(t *testing.T) []keyPath {
	file, err := parser.ParseFile(token.NewFileSet(), keyPathsSource, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	constants := map[string]string{}
	text := func(expr ast.Expr) string {
		if name, ok := expr.(*ast.Ident); ok {
			return constants[name.Name]
		}
		literal, ok := expr.(*ast.BasicLit)
		if !ok {
			return ""
		}
		value, _ := strconv.Unquote(literal.Value)
		return value
	}
	var rows []keyPath
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		table, ok := spec.Values[0].(*ast.CompositeLit)
		if !ok || spec.Names[0].Name != "keyPaths" {
			constants[spec.Names[0].Name] = text(spec.Values[0])
			return true
		}
		for _, element := range table.Elts {
			var row keyPath
			for _, field := range element.(*ast.KeyValueExpr).Value.(*ast.CompositeLit).Elts {
				switch field := field.(*ast.KeyValueExpr); field.Key.(*ast.Ident).Name {
				case "fieldPath":
					row.fieldPath = text(field.Value)
				case "governs":
					row.governs = text(field.Value)
				case "optional":
					row.optional = true
				}
			}
			rows = append(rows, row)
		}
		return false
	})
	if len(rows) == 0 {
		t.Fatalf("%s has no rows of keyPaths", keyPathsSource)
	}
	return rows
}
