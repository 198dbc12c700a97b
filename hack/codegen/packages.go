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
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"ringmaster/hack/generated"
)

const (
	staging      = "staging/src/"
	api          = staging + "k8s.io/api/"
	metaV1       = staging + "k8s.io/apimachinery/pkg/apis/meta/v1"
	groupsScript = "hack/lib/init.sh" // lists the groups that get clients
)

// tags are the generator tags of one package: the values by name, without "+k8s:".
// "genclient" stands for types that need clients.
type tags map[string][]string

// packages are the packages that have generator tags, by folder.
type packages map[string]tags

// scan returns the tagged packages in and below the folder dir of the tree at root.
func scan(root, dir string) (packages, error) {
	found := packages{}
	err := filepath.WalkDir(filepath.Join(root, dir), func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if entry.IsDir() {
			if base := path.Base(name); name == "vendor" || name == "_output" || base == ".git" || base == "testdata" || base == "_codegenignore" {
				return fs.SkipDir
			}
			return nil
		}
		return found.addFile(root, name)
	})
	return found, err
}

// scanDirs is like scan, but for single folders. Missing ones have no tags.
func scanDirs(root string, dirs map[string]bool) (packages, error) {
	found := packages{}
	for dir := range dirs {
		entries, err := os.ReadDir(filepath.Join(root, dir))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			if !entry.Type().IsRegular() {
				continue
			}
			if err := found.addFile(root, path.Join(dir, entry.Name())); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// The generators read tags only in comments that begin a line.
var tagLine = regexp.MustCompile(`(?m)^// *\+(?:k8s:([\w-]+)(?:=(\S+))?|(genclient)\b)`)

func (p packages) addFile(root, name string) error {
	if !strings.HasSuffix(name, ".go") {
		return nil
	}
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil || !bytes.Contains(data, []byte("+")) {
		return err
	}
	dir := path.Dir(name)
	for _, m := range tagLine.FindAllSubmatch(data, -1) {
		if p[dir] == nil {
			p[dir] = tags{}
		}
		tag := string(m[1]) + string(m[3])
		p[dir][tag] = append(p[dir][tag], string(m[2]))
	}
	return nil
}

// with returns the sorted folders of the packages that have the tag. If values are given,
// the tag must have one of them.
func (p packages) with(tag string, values ...string) []string {
	var dirs []string
	for dir, tags := range p {
		got, ok := tags[tag]
		if ok && (len(values) == 0 || slices.ContainsFunc(got, func(v string) bool { return slices.Contains(values, v) })) {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return dirs
}

// affected returns the dirs that changed, and those whose tags named by inputs refer to a
// changed package.
func (p packages) affected(dirs []string, changed map[string]bool, inputs ...string) []string {
	return slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool {
		if changed[dir] {
			return false
		}
		for _, input := range inputs {
			for _, pkg := range p[dir][input] {
				if changed[dirOf(pkg)] {
					return false
				}
			}
		}
		return true
	})
}

// sourceDirs returns the folders of the Go sources among the files.
func sourceDirs(files []string) map[string]bool {
	dirs := map[string]bool{}
	for _, file := range files {
		if isSource(file) {
			dirs[path.Dir(file)] = true
		}
	}
	return dirs
}

func isSource(file string) bool {
	return strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go") && !generated.Is(file)
}

// inputs returns the files that determine what is generated: sources of tagged packages,
// and the settings of the generators.
func inputs(files []string, tagged packages) []string {
	var in []string
	for _, file := range files {
		_, ok := tagged[path.Dir(file)]
		if ok && isSource(file) || file == groupsScript || file == allowlist || strings.HasPrefix(file, apiRules) {
			in = append(in, file)
		}
	}
	return in
}

// dirOf returns the folder of a package of the tree, and importPath the package of a folder.
func dirOf(importPath string) string {
	if dir, ok := strings.CutPrefix(importPath, "k8s.io/kubernetes/"); ok {
		return dir
	}
	return staging + importPath
}

func importPath(dir string) string {
	if pkg, ok := strings.CutPrefix(dir, staging); ok {
		return pkg
	}
	return "k8s.io/kubernetes/" + dir
}

func importPaths(dirs []string) []string {
	pkgs := make([]string, len(dirs))
	for i, dir := range dirs {
		pkgs[i] = importPath(dir)
	}
	return pkgs
}

// relative returns the folders in the form that the go command accepts as packages.
func relative(dirs []string) []string {
	pkgs := make([]string, len(dirs))
	for i, dir := range dirs {
		pkgs[i] = "./" + dir
	}
	return pkgs
}

// groupVersions returns the folders below api/ of the group versions that hack/lib/init.sh
// lists, in its order: all of them, and those that the server serves.
func groupVersions(script []byte, exists func(dir string) bool) (all, served []string, err error) {
	available, err := shellList(script, "KUBE_AVAILABLE_GROUP_VERSIONS")
	if err != nil {
		return nil, nil, err
	}
	notServed, err := shellList(script, "KUBE_NONSERVER_GROUP_VERSIONS")
	if err != nil {
		return nil, nil, err
	}
	for _, gv := range available {
		dir := groupSuffix.ReplaceAllString(gv, "")
		switch gv {
		case "v1":
			dir = "core/v1"
		case "internal.apiserver.k8s.io/v1alpha1":
			dir = "apiserverinternal/v1alpha1"
		}
		if !exists(dir) {
			return nil, nil, errors.New(groupsScript + " lists " + gv + ", but " + api + dir + " does not exist")
		}
		all = append(all, dir)
		if !slices.Contains(notServed, gv) {
			served = append(served, dir)
		}
	}
	return all, served, nil
}

var groupSuffix = regexp.MustCompile(`\..*k8s\.io`)

// shellList returns the words that a shell script assigns to a variable, or gives it as the
// default.
func shellList(script []byte, variable string) ([]string, error) {
	m := regexp.MustCompile(`(?m)^` + variable + `="(?:\$\{` + variable + `:-)?([^"}]*)\}?"$`).FindSubmatch(script)
	if m == nil {
		return nil, errors.New(groupsScript + " does not set " + variable)
	}
	return strings.Fields(strings.ReplaceAll(string(m[1]), "\\", " ")), nil
}
