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
	"go/token"
	"slices"
	"strings"
	"testing"
)

func TestWhatIsDroppedNeedsAReasonToBeUsed(t *testing.T) {
	exceptions := map[string]map[string]string{"Secret.Data": {"a.F": "tokens", "a.Gone": "tokens"}, "NodeStatus.Images": {}}
	uses := found{}
	uses.add("Secret.Data", "a.F", token.Position{})
	uses.add("Secret.Data", "a.G", token.Position{Filename: "g.go", Line: 7})
	uses.add("NodeStatus.Images", "a.F", token.Position{})
	got := compareUnread(uses, exceptions)
	slices.Sort(got)
	want := []string{"a.F uses NodeStatus.Images, at ", "a.G uses Secret.Data, at g.go:7", "a.Gone does not use Secret.Data"}
	if len(got) != len(want) {
		t.Fatalf("got %q", got)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("got %q, want %q", got[i], want[i])
		}
	}
}
