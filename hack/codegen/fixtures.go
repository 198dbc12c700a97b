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
	"context"
	"fmt"
	"os"
	"path/filepath"

	"ringmaster/hack/generated"
)

// fixture is test data that one of upstream's tests or tools writes.
type fixture struct {
	name   string
	stale  []string // patterns of files to remove first
	make   []string // go command
	env    []string // makes a test write what it otherwise compares
	verify bool     // the test fails while it writes, and passes afterwards
}

var fixtures = []fixture{
	{
		name:   "compatibility of k8s.io/api",
		stale:  headFiles(api + "testdata/HEAD"),
		make:   []string{"test", "-count=1", "-vet=off", "k8s.io/api", "-run", "^TestCompatibility$"},
		env:    []string{"UPDATE_COMPATIBILITY_FIXTURE_DATA=true"},
		verify: true,
	},
	{
		name:   "compatibility of apiextensions",
		stale:  headFiles(staging + "k8s.io/apiextensions-apiserver/pkg/apis/testdata/HEAD"),
		make:   []string{"test", "-count=1", "-vet=off", "k8s.io/apiextensions-apiserver/pkg/apis", "-run", "^TestCompatibility"},
		env:    []string{"UPDATE_COMPATIBILITY_FIXTURE_DATA=true"},
		verify: true,
	},
	{
		name:   "RBAC bootstrap policy",
		make:   []string{"test", "-count=1", "-vet=off", "k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"},
		env:    []string{"UPDATE_BOOTSTRAP_POLICY_FIXTURE_DATA=true"},
		verify: true,
	},
	{
		name: "versioned feature gates",
		make: []string{"run", "test/compatibility_lifecycle/main.go", "feature-gates", "update"},
	},
	{
		name: "table of feature gates",
		make: []string{"run", "cmd/genfeaturegates/genfeaturegates.go", "-output=test/compatibility_lifecycle/reference/feature_list.md"},
	},
}

func headFiles(dir string) []string {
	return []string{dir + "/*.json", dir + "/*.pb", dir + "/*.yaml"}
}

// runFixtures makes the test data of the tree. The generated code must exist already.
func runFixtures(ctx context.Context, log *progress, dir string) error {
	t, err := openTree(ctx, dir)
	if err != nil {
		return err
	}
	changed, err := t.changed(ctx)
	if err != nil {
		return err
	}
	made, given := split(changed, generated.IsFixture)
	in, _ := split(given, func(name string) bool { return isSource(name) || isCode(name) })
	if done, err := t.isDone("fixtures", in, made); err != nil {
		return err
	} else if done {
		fmt.Fprintln(log.out, "codegen: nothing changed")
		return nil
	}
	return t.inWorkspace(ctx, log, func(w *workspace) error {
		if err := w.lay(t, given); err != nil {
			return err
		}
		for _, f := range fixtures {
			if err := log.step("fixture: "+f.name, func() error { return f.write(ctx, w) }); err != nil {
				return err
			}
		}
		return t.finish(ctx, log, "fixtures", w, in, made, generated.IsFixture)
	})
}

func (f fixture) write(ctx context.Context, w *workspace) error {
	for _, pattern := range f.stale {
		files, err := filepath.Glob(filepath.Join(w.dir, pattern))
		if err != nil {
			return err
		}
		for _, file := range files {
			if err := os.Remove(file); err != nil {
				return err
			}
		}
	}
	_, err := output(ctx, w.dir, f.env, "go", f.make...)
	if f.verify {
		_, err = output(ctx, w.dir, nil, "go", f.make...)
	}
	return err
}
