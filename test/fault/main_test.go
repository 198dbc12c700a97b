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

func TestClosing(t *testing.T) {
	for want, r := range map[string]result{
		"0 faults, 0 boundaries moved, 0 writes judged, 0 violations":             {},
		"204 faults, 7 boundaries moved, 300,020 writes judged, 1 violations":     {times: 204, moved: 7, judged: 300_020, violations: []violation{{}}},
		"1,000 faults, 0 boundaries moved, 1,234,567 writes judged, 0 violations": {times: 1000, judged: 1_234_567},
	} {
		if got := r.closing(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
