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

package fence

import (
	"testing"
)

func TestParseReadsWhatStringWrites(t *testing.T) {
	want := Identity{Name: "replicaset-controller-x7k2p", UID: "6f0ad2b0-2b2e-4b44-8f0e-3cf0bd6a8f3b"}
	if got, err := Parse(want.String()); err != nil || got != want {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for _, s := range []string{"", "/", "name", "name/", "/uid", "a/b/c"} {
		if got, err := Parse(s); err == nil {
			t.Errorf("%q was read as %v", s, got)
		}
	}
}
