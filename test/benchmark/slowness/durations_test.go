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

import "testing"

func TestDurationsAreSeparatedByCommas(t *testing.T) {
	for text, want := range map[string]string{"1s,2100ms": "1s,2.1s", "1m": "1m0s", "": ""} {
		d := durations{1, 2, 3}
		if err := d.Set(text); err != nil || d.String() != want {
			t.Errorf("%q: got %v, %v; want %q", text, &d, err, want)
		}
	}
	if d := (durations{}); d.Set("1s,soon") == nil {
		t.Errorf("got %v", &d)
	}
}
