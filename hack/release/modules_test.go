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
	"archive/zip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestModulesAreLaidOutAsAProxyServesThem(t *testing.T) {
	r := newRelease(t)
	if err := r.packModules(); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(r.out, "modules", "k8s.io", "api", "@v")
	for name, want := range map[string]string{
		"list":                      "v0.37.1-ringmaster.7\n",
		"v0.37.1-ringmaster.7.info": "{\"Version\":\"v0.37.1-ringmaster.7\",\"Time\":\"2026-01-02T03:04:05Z\"}\n",
		"v0.37.1-ringmaster.7.mod":  "module k8s.io/api\n",
		"../../../replace.txt":      "replace (\n\tk8s.io/api => k8s.io/api v0.37.1-ringmaster.7\n\tk8s.io/client-go => k8s.io/client-go v0.37.1-ringmaster.7\n)\n",
	} {
		if got, err := os.ReadFile(filepath.Join(at, name)); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v; want %q", name, got, err, want)
		}
	}
	packed := filepath.Join(at, "v0.37.1-ringmaster.7.zip")
	z, err := zip.OpenReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	var names []string
	for _, f := range z.File {
		names = append(names, strings.TrimPrefix(f.Name, "k8s.io/api@v0.37.1-ringmaster.7/"))
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"go.mod", "v1/types.go"}) {
		t.Errorf("it holds %q", names)
	}
	before, err := hashFile(packed)
	if err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(r.static, "source", staging, "api", "go.mod"), later, later); err != nil {
		t.Fatal(err)
	}
	if err := r.packModules(); err != nil {
		t.Fatal(err)
	}
	if after, err := hashFile(packed); err != nil || after != before {
		t.Errorf("packed again it has the hash %s, not %s (%v)", after, before, err)
	}
}
