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

package ring

import "testing"

func TestAPlaceIsWhatComesBeforeTheProcess(t *testing.T) {
	for holder, want := range map[string]string{
		"":                       "",
		"host":                   "",
		"host_x7k2p":             "host",
		"host_4711_x7k2p":        "host",
		"host:10257_4711_x7k2p":  "host:10257",
		"[::1]:10257_4711_x7k2p": "[::1]:10257",
		"my_host_4711_x7k2p":     "my_host",
		"my_host:1_4711_x7k2p":   "my_host:1",
		"a_b_c_4711_x7k2p":       "a_b_c",
		"_x7k2p":                 "",
		"_4711_x7k2p":            "",
	} {
		if got := Place(holder); got != want {
			t.Errorf("the place of %q is %q, want %q", holder, got, want)
		}
	}
}

func TestHostsThatBeginAlikeAreOtherPlaces(t *testing.T) {
	var h history
	died, other := member("a", at(5)), member("b", at(9))
	died.Holder, other.Holder = "rack_1_4711_x", "rack_2_4711_x"
	view := NewView(1, died, other)
	h.observe(view, 1)
	h.observe(view.Without("a"), 2)
	died.Holder = "rack_1_4712_y"
	if h.restsUntil(died) == 0 || h.restsUntil(other) != 0 {
		t.Errorf("rest until %v where one has died young, until %v elsewhere; want only the first to", h.restsUntil(died), h.restsUntil(other))
	}
}
