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
	"go/build"
	"path"
	"path/filepath"
)

// gateOff puts a copy of the file that reads CONTROLLER_RING beside the tests of packages.
func gateOff(o *overlay, packages []string) ([]string, error) {
	const file = "test/integration/replicaset/controller_ring_test.go"
	var folders []string
	for _, p := range packages {
		folder := path.Clean(p)
		pkg, err := build.ImportDir(filepath.Join(o.tree, folder), 0)
		if err != nil {
			return nil, err
		}
		s, err := readSource(o.tree, file)
		if err != nil {
			return nil, err
		}
		s.path = path.Join(folder, path.Base(file))
		s.replace("package", s.Name, pkg.Name)
		o.edit(s)
		folders = append(folders, folder)
	}
	return folders, nil
}
