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

// Command imports prints which of our packages import which, and fails where an import
// breaks the order of layers. Our packages are those in a folder with a new file of
// ours and no file of upstream's. Tests' imports are left out. A circle fails too:
// go list refuses it.
//
//	go run ./hack/imports -tree _output/kubernetes
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"ringmaster/hack/generated"
)

// layers are the import paths that have a place in the order, the lowest first. Each
// covers what lies below it, as long as no longer one does. A package imports nothing
// from a higher layer.
var layers = []string{
	"k8s.io/apimachinery/pkg/hashkey",
	"k8s.io/client-go/tools/ring",
	"k8s.io/client-go/tools/ring/balance",
	"k8s.io/client-go/tools/ring/fence",
	"k8s.io/client-go/tools/ring/guard",
	"k8s.io/client-go/tools/ring/member",
	"k8s.io/client-go/tools/rangewatch/follower",
	"k8s.io/client-go/tools/rangewatch",
	"k8s.io/client-go/tools/ring/host",
	"k8s.io/component-base",
	"k8s.io/apiserver",
	"k8s.io/kubernetes/pkg/apis",
	"k8s.io/kubernetes/pkg/controller/ring/catalogue",
	"k8s.io/kubernetes/plugin",
	"k8s.io/kubernetes/pkg/registry",
	"k8s.io/kubernetes/pkg/controller",
	"k8s.io/kubernetes/pkg/localcluster",
	"k8s.io/kubernetes/pkg/ringtable",
	commands,
	"k8s.io/kubernetes/test/harness",
	"k8s.io/kubernetes/test",
}

const commands = "k8s.io/kubernetes/cmd"

// graph has the imports of each package.
type graph map[string][]string

func main() {
	tree := flag.String("tree", "_output/kubernetes", "the patched tree")
	flag.Parse()
	g, err := read(*tree)
	if err != nil {
		fmt.Fprintln(os.Stderr, "imports:", err)
		os.Exit(1)
	}
	fmt.Print(g)
	if broken := g.broken(); len(broken) > 0 {
		fmt.Fprintf(os.Stderr, "imports: against the order of layers:\n  %s\n", strings.Join(broken, "\n  "))
		os.Exit(1)
	}
}

// read returns the imports between our packages in the tree.
func read(tree string) (graph, error) {
	dirs, err := ourDirs(tree)
	if err != nil {
		return nil, err
	}
	args := []string{"list", "-f", `{{.ImportPath}} {{join .Imports " "}}`}
	for _, dir := range dirs {
		args = append(args, "./"+dir)
	}
	lines, err := output(tree, "go", args...)
	if err != nil {
		return nil, err
	}
	g := graph{}
	for _, line := range lines {
		fields := strings.Fields(line)
		g[fields[0]] = fields[1:]
	}
	for pkg := range g {
		g[pkg] = slices.DeleteFunc(g[pkg], func(imported string) bool {
			_, ours := g[imported]
			return !ours
		})
	}
	return g, nil
}

// ourDirs returns the folders of our packages.
func ourDirs(tree string) ([]string, error) {
	upstream, err := output(tree, "git", "ls-tree", "-r", "--name-only", "upstream")
	if err != nil {
		return nil, err
	}
	theirs := map[string]bool{}
	for _, file := range upstream {
		theirs[path.Dir(file)] = true
	}
	files, err := output(tree, "git", "ls-files", "--cached", "--others", "--exclude-standard", "*.go")
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, file := range files {
		if theirs[path.Dir(file)] || generated.Is(file) {
			continue
		}
		// git lists tracked files that were deleted, too.
		if _, err := os.Stat(filepath.Join(tree, file)); err == nil {
			dirs = append(dirs, path.Dir(file))
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs), nil
}

// output returns the lines that a command prints.
func output(dir, name string, args ...string) ([]string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s in %s: %w", name, args[0], dir, err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n"), nil
}

// String returns each package with its imports below it.
func (g graph) String() string {
	var b strings.Builder
	for _, pkg := range g.packages() {
		b.WriteString(pkg + "\n")
		for _, imported := range g[pkg] {
			b.WriteString("    -> " + imported + "\n")
		}
	}
	return b.String()
}

func (g graph) packages() []string {
	var all []string
	for pkg := range g {
		all = append(all, pkg)
	}
	slices.Sort(all)
	return all
}

// broken returns the imports of a higher layer, and those of another command.
func (g graph) broken() []string {
	var all []string
	for _, pkg := range g.packages() {
		from := layerOf(pkg)
		if from < 0 {
			// A package without a place may import all but commands and tests.
			from = slices.Index(layers, commands) - 1
		}
		for _, imported := range g[pkg] {
			switch {
			case layerOf(imported) > from:
				all = append(all, fmt.Sprintf("%s -> %s: a higher layer", pkg, imported))
			case layers[from] == commands && layerOf(imported) == from && command(pkg) != command(imported):
				all = append(all, fmt.Sprintf("%s -> %s: another command", pkg, imported))
			}
		}
	}
	return all
}

// layerOf returns the place of the package in layers, -1 if it has none.
func layerOf(pkg string) int {
	longest := -1
	for i, layer := range layers {
		if (pkg == layer || strings.HasPrefix(pkg, layer+"/")) && (longest < 0 || len(layer) > len(layers[longest])) {
			longest = i
		}
	}
	return longest
}

// command returns the name of the command that the package belongs to.
func command(pkg string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(pkg, commands+"/"), "/")
	return name
}
