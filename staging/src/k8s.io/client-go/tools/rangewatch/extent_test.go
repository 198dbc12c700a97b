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

package rangewatch

import (
	"testing"

	"k8s.io/apimachinery/pkg/hashkey"
)

func TestExtentHoldsARangeOnceEveryPartIsThere(t *testing.T) {
	e := extent{ranges: percents(0, 50), revision: 10, parts: []part{
		{percents(0, 20), 30}, {percents(20, 50), 20}, {percents(10, 30), 25},
	}}
	for _, c := range []struct {
		ranges   hashkey.Ranges
		revision uint64
		want     bool
	}{
		{nil, 99, true},
		{percents(0, 50), 10, true},
		{percents(0, 51), 10, false},
		{percents(0, 50), 20, true},
		{percents(0, 50), 21, false},
		{percents(0, 30), 25, true},
		{percents(0, 31), 25, false},
		{percents(0, 20), 30, true},
		{percents(0, 20), 31, false},
	} {
		if got := e.holds(c.ranges, c.revision); got != c.want {
			t.Errorf("%s at %d: %t", c.ranges, c.revision, got)
		}
	}
	if got := e.reached(); got != 20 {
		t.Errorf("reached %d", got)
	}
	if got := (extent{revision: 7, parts: []part{{percents(0, 20), 30}}}).reached(); got != 7 {
		t.Errorf("nothing reached %d", got)
	}
}
