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

// Command podreads finds what the controllers behind the leader's lease read of cached pods, prints
// it, and fails where it is not what package podtrim declares: with a field missing there a
// controller would find it empty, and one too many costs memory for nothing.
//
//	go run ./hack/podreads -tree _output/kubernetes
//
// It looks at all functions in a controller's packages and at those that they call or mention, as
// far as they are among the packages that it knows. A pod that is given to any other function is
// reported, too, unless that function is known to need no more than metadata. Of Nodes, Secrets and
// ConfigMaps it looks for what podtrim drops of them all, in all packages of controllers.
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	tree := flag.String("tree", "_output/kubernetes", "the patched tree")
	verbose := flag.Bool("v", false, "print the functions that read, too")
	flag.Parse()
	faults, err := check(*tree, *verbose)
	if err != nil {
		fmt.Fprintln(os.Stderr, "podreads:", err)
		os.Exit(1)
	}
	if len(faults) > 0 {
		fmt.Fprintf(os.Stderr, "podreads: pkg/controller/podtrim and the controllers differ:\n  %s\n", strings.Join(faults, "\n  "))
		os.Exit(1)
	}
}

// check prints what each controller reads, and returns what is wrong with what is declared.
func check(tree string, verbose bool) (faults []string, err error) {
	patterns := append([]string{constructors, catalogue, podtrim}, helpers...)
	for _, of := range controllerPackages {
		patterns = append(patterns, of...)
	}
	slices.Sort(patterns)
	fmt.Println("loading the controllers with their types")
	pkgs, err := packages.Load(&packages.Config{Mode: packages.LoadSyntax, Dir: tree}, slices.Compact(patterns)...)
	if err != nil {
		return nil, err
	}
	byPath := map[string]*packages.Package{}
	for _, p := range pkgs {
		for _, err := range p.Errors {
			return nil, err
		}
		byPath[p.PkgPath] = p
	}
	declarations, err := declared(byPath[podtrim])
	if err != nil {
		return nil, err
	}
	onRing := ringControllers(byPath[catalogue])
	for name, uses := range users(byPath[constructors]) {
		of, known := declarations[name]
		switch {
		case !known && !onRing[name]:
			faults = append(faults, name+": is not declared")
		case uses && known && controllerPackages[name] == nil && !slices.Contains(of, all) && elsewhere[name] == "":
			faults = append(faults, name+": gets pods, and hack/podreads does not know its packages")
		}
	}
	c := newCensus(pkgs, tracked, carriers, live)
	for _, name := range slices.Sorted(maps.Keys(controllerPackages)) {
		in := map[string]bool{}
		var roots []function
		for _, path := range controllerPackages[name] {
			in[path] = true
			roots = append(roots, c.rootsOf(byPath[path])...)
		}
		for _, path := range helpers {
			in[path] = true
		}
		reads := c.read(roots, in)
		fmt.Printf("%-45s %s\n", name, strings.Join(declarations[name], ", "))
		for _, what := range slices.Sorted(maps.Keys(reads)) {
			if verbose {
				fmt.Printf("  %s: %s\n", what, strings.Join(slices.Sorted(maps.Keys(reads[what])), ", "))
			}
		}
		for _, fault := range compare(reads, declarations[name], allowed) {
			faults = append(faults, name+": "+fault)
		}
	}
	for name := range live {
		if !c.met[name] {
			faults = append(faults, "nobody uses "+name+" any more, which hack/podreads does not look into")
		}
	}
	more, err := unreadFaults(tree, verbose)
	if err != nil {
		return nil, err
	}
	faults = append(faults, more...)
	slices.Sort(faults)
	return faults, nil
}
