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
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// runCodegen makes the generated files of a tree whose other files are in place.
func runCodegen(root, tree string) error {
	cmd := exec.Command("go", "run", "./hack/codegen", "-tree", tree)
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, os.Stdout, os.Stderr
	return cmd.Run()
}

// codegenKey changes when the code generation set-up does: its source, and the versions of what it is built from.
func codegenKey(root string) (string, error) {
	sum := sha256.New()
	add := func(path string) error {
		f, err := readFile(path)
		if f != nil {
			fmt.Fprintln(sum, strings.TrimPrefix(path, root), blobID(f))
		}
		return err
	}
	if err := add(filepath.Join(root, "go.sum")); err != nil {
		return "", err
	}
	for _, dir := range []string{"codegen", "generated"} {
		err := filepath.WalkDir(filepath.Join(root, "hack", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
				return err
			}
			return add(path)
		})
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
