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
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
)

// verify checks the round trip: it makes a scratch tree, saves it into an empty repository,
// and compares that with this one.
func (h *house) verify() error {
	temp, err := os.MkdirTemp("", "forktree-verify-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	other := *h
	other.root, other.tree = filepath.Join(temp, "repository"), &tree{dir: filepath.Join(temp, "tree")}
	other.codegen = func(string) error { return nil } // generated code is not saved
	if err := os.Mkdir(other.root, 0o755); err != nil {
		return err
	}
	if _, err := (git{other.root}).run("init", "-q"); err != nil {
		return err
	}
	want, err := h.sources()
	if err != nil {
		return err
	}
	for path, f := range want {
		if err := other.write(path, f); err != nil {
			return err
		}
	}
	if err := other.make(); err != nil {
		return err
	}
	// Now the tree looks like one that was edited by hand and never saved.
	c, err := other.tree.commits()
	if err != nil {
		return err
	}
	if err := other.tree.record(&commits{c.upstream, c.upstream, c.upstream}); err != nil {
		return err
	}
	for path := range want {
		if err := other.write(path, nil); err != nil {
			return err
		}
	}
	if err := other.save(); err != nil {
		return err
	}
	got, err := other.sources()
	if err != nil {
		return err
	}
	all := maps.Clone(want)
	maps.Copy(all, got)
	var problems []error
	for _, path := range sorted(all) {
		if !want[path].equal(got[path]) {
			problems = append(problems, fmt.Errorf("%s is not as save writes it: make the tree and save it", path))
		}
	}
	if len(problems) > 0 {
		return errors.Join(problems...)
	}
	h.say("making and saving the tree changes none of %d files", len(want))
	return nil
}
