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
	"strings"
	"testing"
)

func TestVerifyRefusesPatchesThatSaveWouldWriteDifferently(t *testing.T) {
	for name, patch := range map[string]string{
		"other lines":  strings.Replace(podsPatch, "-18,6 +18,7", "-19,6 +19,7", 1),
		"less context": "--- a/pkg/pods/pods.go\n+++ b/pkg/pods/pods.go\n@@ -20 +20,2 @@\n // line B8\n+// ours\n",
		"no change":    "--- a/pkg/pods/pods.go\n+++ b/pkg/pods/pods.go\n@@ -20 +20 @@\n // line B8\n",
		"a git header": "diff --git a/pkg/pods/pods.go b/pkg/pods/pods.go\nindex 123..456 100644\n" + podsPatch,
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, ourFiles.with(folder{"pkg/pods/pods.go.patch": patch}))
			fails(t, h.verify(), "pkg/pods/pods.go.patch is not as save writes it")
			must(t, h.make())
			must(t, h.save())
			must(t, h.verify())
		})
	}
}
