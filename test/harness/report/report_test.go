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

package report

import (
	"slices"
	"testing"
)

func TestGrouped(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 300_020: "300,020", 1_234_567: "1,234,567"} {
		if got := Grouped(n); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestSome(t *testing.T) {
	all := []string{"a", "b", "c", "d"}
	for most, want := range map[int][]string{5: all, 4: all, 3: {"a", "b", "c", "and 1 more"}, 1: {"a", "and 3 more"}} {
		if got := Some(all, most); !slices.Equal(got, want) {
			t.Errorf("of %d: got %q, want %q", most, got, want)
		}
	}
	if !slices.Equal(all, []string{"a", "b", "c", "d"}) {
		t.Errorf("the texts have become %q", all)
	}
}
