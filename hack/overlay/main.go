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

// Command overlay makes overlays for go build and go test: files that stand in place of the tree's,
// or beside them. It finds by syntax what it changes, says what that was, and fails where an edit
// finds no place.
//
//	go run ./hack/overlay [-tree FOLDER] [-out FOLDER] on-ring|trimmed|gate-off|older [PACKAGES]
//
// The overlay is overlay.json, in the folder of its name below that of -out. The packages whose
// tests are to be run with it are printed.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

const usage = `usage: go run ./hack/overlay [-tree FOLDER] [-out FOLDER] NAME [PACKAGES]

Makes one of these overlays for go build and go test, as FOLDER/NAME/overlay.json:
  on-ring   tests that start controllers have a ring in their place
  trimmed   tests of controllers on the leader have pods without what these do not read
  gate-off  tests have the feature gate ControllerRing off if CONTROLLER_RING=false
  older     the catalogue of rings has only the controllers of an older version
and prints the packages whose tests it is for: those that are named, or all.

`

// kinds make the overlays, and return the packages whose tests are to be run.
var kinds = map[string]func(o *overlay, packages []string) ([]string, error){
	"on-ring": onRing, "trimmed": trimmed, "gate-off": gateOff, "older": older,
}

func main() {
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	tree := flag.String("tree", "_output/kubernetes", "folder of the tree, made by make tree")
	out := flag.String("out", "_output/overlay", "folder for the overlays")
	flag.Parse()
	name := flag.Arg(0)
	kind, known := kinds[name]
	if !known {
		flag.Usage()
		os.Exit(2)
	}
	o := &overlay{tree: *tree, files: map[string][]byte{}}
	tested, err := kind(o, flag.Args()[1:])
	if err == nil {
		err = o.write(filepath.Join(*out, name))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "overlay: %s: %v\n", name, err)
		os.Exit(1)
	}
	o.print(os.Stderr)
	for _, p := range tested {
		fmt.Println("./" + p)
	}
}

// choose returns the packages that are named, or all that are known.
func choose[V any](known map[string]V, named []string) ([]string, error) {
	if len(named) == 0 {
		return slices.Sorted(maps.Keys(known)), nil
	}
	for _, p := range named {
		if _, ok := known[p]; !ok {
			return nil, fmt.Errorf("nothing is known of the package %q; known are %s", p, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
	return named, nil
}

// overlay has what stands in place of files of the tree, or beside them, by their path in it.
type overlay struct {
	tree   string
	files  map[string][]byte
	edited []*source
}

// edit has a source stand in its own place as it is with its changes. One without stays out.
func (o *overlay) edit(sources ...*source) {
	for _, s := range sources {
		if len(s.changes) > 0 {
			o.edited = append(o.edited, s)
			o.files[s.path] = s.changed()
		}
	}
}

// editFile has a file stand in its own place with an edit wherever find names a place.
func (o *overlay) editFile(path, edit string, find func(node ast.Node) (from, to token.Pos, with string)) error {
	s, err := readSource(o.tree, path)
	if err != nil {
		return err
	}
	s.walk(func(node ast.Node, _ []ast.Node) {
		if from, to, with := find(node); from.IsValid() {
			s.changes = append(s.changes, change{edit, from, to, with})
		}
	})
	o.edit(s)
	return expect(path, []*source{s}, edit)
}

// write writes the files to a folder, with the overlay.json that names them.
func (o *overlay) write(dir string) error {
	replace := map[string]string{}
	for path, text := range o.files {
		from, err := filepath.Abs(filepath.Join(o.tree, path))
		if err != nil {
			return err
		}
		to, err := filepath.Abs(filepath.Join(dir, path))
		if err != nil {
			return err
		}
		replace[from] = to
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, text, 0o644); err != nil {
			return err
		}
	}
	content, err := json.MarshalIndent(map[string]any{"Replace": replace}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "overlay.json"), content, 0o644)
}

// print says which files are changed, how, and how often, and which are added.
func (o *overlay) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer w.Flush()
	added := maps.Clone(o.files)
	fmt.Fprintln(w, "file\tedit\ttimes")
	for _, s := range o.edited {
		delete(added, s.path)
		times := s.times()
		for _, edit := range slices.Sorted(maps.Keys(times)) {
			fmt.Fprintf(w, "%s\t%s\t%d\n", s.path, edit, times[edit])
		}
	}
	for _, path := range slices.Sorted(maps.Keys(added)) {
		fmt.Fprintf(w, "%s\tadded\t\n", path)
	}
}
