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
	"maps"
	"testing"
)

func TestHistoriesOfAHeader(t *testing.T) {
	for value, want := range map[string]map[string]string{
		"":                    {},
		"main=1":              {"main": "1"},
		"events=2,main=1":     {"events": "2", "main": "1"},
		"main":                {},
		"=1,main=,,pods=3,=":  {"pods": "3"},
		"main=1=2":            {"main": "1=2"},
		"something new; q=\"": {"something new; q": "\""},
	} {
		got := ParseHistories(value)
		if !maps.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", value, got, want)
		}
		if again := ParseHistories(FormatHistories(got)); !maps.Equal(again, got) {
			t.Errorf("%v is written as %q, and read as %v", got, FormatHistories(got), again)
		}
	}
	if got, want := FormatHistories(map[string]string{"pods": "2", "main": "1", "x": "3"}), "main=1,pods=2,x=3"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
