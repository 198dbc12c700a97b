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
	"regexp"
	"strings"
	"testing"
)

func TestVersionFlags(t *testing.T) {
	h := newHouse(t, ourFiles)
	must(t, h.make())
	flags := func() string {
		t.Helper()
		v, err := h.version()
		must(t, err)
		return v.flags()
	}
	has := func(flags, want string) {
		t.Helper()
		for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
			if !strings.Contains(flags+" ", "-X "+pkg+"."+want+" ") {
				t.Errorf("%s.%s is not in %s", pkg, want, flags)
			}
		}
	}
	has(flags(), "gitVersion=v1.1.0+ringmaster.0")
	g := git{h.root}
	commit := func() {
		t.Helper()
		for _, args := range [][]string{{"add", "."}, {"-c", "user.name=a", "-c", "user.email=b", "commit", "-q", "--allow-empty", "-m", "one", "--date=2020-01-01T00:00:00Z"}} {
			_, err := g.run(args...)
			must(t, err)
		}
	}
	commit()
	commit()
	id, err := g.run("rev-parse", "HEAD")
	must(t, err)
	has(flags(), "gitVersion=v1.1.0+ringmaster.2")
	has(flags(), "gitCommit="+strings.TrimSpace(id))
	has(flags(), "gitTreeState=clean")
	has(flags(), "gitMajor=1")
	has(flags(), "gitMinor=1")
	if flags() != flags() || !regexp.MustCompile(`buildDate=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ `).MatchString(flags()) {
		t.Errorf("the date is not one, or not always the same: %s", flags())
	}
	put(t, h.tree.dir, folder{"pkg/rings/empty": "edited\n"})
	has(flags(), "gitTreeState=dirty")
	put(t, h.tree.dir, folder{"pkg/rings/empty": ""})
	has(flags(), "gitTreeState=clean")
	put(t, h.root, folder{"README.md": "edited\n"})
	has(flags(), "gitTreeState=dirty")
}
