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
	"os"
	"path/filepath"
)

// links are upstream's symbolic links with their targets. Modules leave links out.
var links = map[string]string{
	"CHANGELOG.md":       "CHANGELOG/README.md",
	"CLAUDE.md":          "AGENTS.md",
	"Makefile":           "build/root/Makefile",
	"cluster/gce/cos":    "gci",
	"cluster/gce/custom": "gci",
	"cluster/gce/ubuntu": "gci",
}

// linksIn returns the links whose targets are in a folder where nothing is in their places.
func linksIn(dir string) map[string]*file {
	found := map[string]*file{}
	for path, target := range links {
		at := filepath.Join(dir, path)
		if _, err := os.Lstat(at); err == nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(at), target)); err == nil {
			found[path] = &file{data: []byte(target), link: true}
		}
	}
	return found
}
