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
	"testing"
)

func TestOurs(t *testing.T) {
	for path, want := range map[string]bool{
		"README.md": true, "README.md.patch": false, "pkg/README.md": false, "go.mod": true, "go.mod.patch": false, "staging/src/k8s.io/api/go.mod": false,
		"docs/a.md": true, "pkg/docs/a.md": false, "hack/forktree/main.go": true, "hack/lib/a.sh": false, "hack/library.sh": true, "_output/a": true, "LICENSES/a": false,
		".ci/run": true, "examples/virtualmachine/go.mod": true, "pkg/examples/a.go": false, ".gitignore": true, "Makefile": true, "cmd/kubectl-ring/main.go": false,
		".import-restrictions": false, "staging/src/k8s.io/client-go/tools/ring/.import-restrictions": false,
	} {
		if got := ours(path); got != want {
			t.Errorf("ours(%q) is %v", path, got)
		}
	}
}
