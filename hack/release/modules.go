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
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const (
	modulesDir = "modules"
	// staging has the modules that others depend on, below the source.
	staging = "staging/src/k8s.io"
)

// stagingVersion is the version of those modules: upstream's v1.37.2 is their v0.37.2. What follows
// makes it another one, which is older in the order of versions; so it is for a replace.
func (r *release) stagingVersion() string {
	return "v0" + strings.Replace(strings.TrimPrefix(r.Version, "v1"), "+", "-", 1)
}

// packModules writes the modules of staging as a module proxy serves them (go help goproxy), and
// the lines of a go.mod that replace upstream's by them.
func (r *release) packModules() error {
	r.say("packing the modules")
	source := filepath.Join(r.static, "source", staging)
	entries, err := os.ReadDir(source)
	if err != nil {
		return err
	}
	var replaces strings.Builder
	replaces.WriteString("replace (\n")
	for _, entry := range entries {
		m := module.Version{Path: path.Join("k8s.io", entry.Name()), Version: r.stagingVersion()}
		if err := r.packModule(m, filepath.Join(source, entry.Name())); err != nil {
			return fmt.Errorf("module %s: %w", m.Path, err)
		}
		fmt.Fprintf(&replaces, "\t%s => %s %s\n", m.Path, m.Path, m.Version)
	}
	replaces.WriteString(")\n")
	return writeFile(filepath.Join(r.out, modulesDir, "replace.txt"), []byte(replaces.String()))
}

func (r *release) packModule(m module.Version, source string) error {
	mod, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return err
	}
	// Files only, so no times and no owners are in it.
	var packed bytes.Buffer
	if err := zip.CreateFromDir(&packed, m, source); err != nil {
		return err
	}
	info := fmt.Sprintf("{\"Version\":%q,\"Time\":%q}\n", m.Version, r.Date.Format(time.RFC3339))
	at := filepath.Join(r.out, modulesDir, m.Path, "@v")
	for name, data := range map[string][]byte{
		"list":              []byte(m.Version + "\n"),
		m.Version + ".info": []byte(info),
		m.Version + ".mod":  mod,
		m.Version + ".zip":  packed.Bytes(),
	} {
		if err := writeFile(filepath.Join(at, name), data); err != nil {
			return err
		}
	}
	return nil
}
