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
	"time"
)

func TestWhoIsHinderedAllTheTimeCannotRenew(t *testing.T) {
	ended := time.Unix(1000, 0)
	during := func(from, to float64) hindrance {
		at := func(seconds float64) time.Time { return ended.Add(time.Duration(seconds * float64(time.Second))) }
		return hindrance{at(from), at(to)}
	}
	for name, tc := range map[string]struct {
		hindrances []hindrance
		want       bool
	}{
		"nothing":              {nil, true},
		"all the time":         {[]hindrance{during(-1, 3)}, false},
		"in turns":             {[]hindrance{during(1.5, 3), during(-1, 0.2), during(0.4, 1.2)}, false},
		"long before":          {[]hindrance{during(-9, -8)}, true},
		"at first":             {[]hindrance{during(-1, 0.9)}, true},
		"at last":              {[]hindrance{during(1.1, 4)}, true},
		"after that":           {[]hindrance{during(2.5, 4)}, true},
		"one within another":   {[]hindrance{during(-1, 3), during(0, 0.1)}, false},
		"for most of the time": {[]hindrance{during(0.3, 1.4)}, false},
	} {
		if got := couldRenew(tc.hindrances, ended, ended.Add(2*time.Second)); got != tc.want {
			t.Errorf("hindered %s: could renew: %t", name, got)
		}
	}
}
