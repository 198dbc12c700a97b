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

package localcluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTailOf(t *testing.T) {
	long := strings.Repeat(strings.Repeat("x", 99)+"\n", 1000)
	for _, tc := range []struct {
		name, content, want string
		lines               int
	}{
		{name: "empty", content: "", lines: 3, want: ""},
		{name: "fewer lines", content: "a\nb\n", lines: 3, want: "a\nb"},
		{name: "more lines", content: "a\nb\nc\nd\n", lines: 3, want: "b\nc\nd"},
		{name: "no newline at the end", content: "a\nb", lines: 1, want: "b"},
		{name: "more than is read", content: long + "last\n", lines: 2, want: strings.Repeat("x", 99) + "\nlast"},
		{name: "begins within a line", content: strings.Repeat("y", tailBytes) + "\nlast\n", lines: 5, want: "last"},
		{name: "one long line", content: strings.Repeat("y", 2*tailBytes), lines: 5, want: strings.Repeat("y", tailBytes)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "log")
			if err := os.WriteFile(file, []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := tailOf(file, tc.lines)
			if err != nil {
				t.Fatal(err)
			}
			if got != tc.want {
				t.Errorf("got %d bytes %.80q, want %d bytes %.80q", len(got), got, len(tc.want), tc.want)
			}
		})
	}
}

func TestPortsAreHandedOutOnce(t *testing.T) {
	var p ports
	seen := map[int]bool{}
	for range 200 {
		port, err := p.free()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] {
			t.Fatalf("port %d twice", port)
		}
		seen[port] = true
	}
}
