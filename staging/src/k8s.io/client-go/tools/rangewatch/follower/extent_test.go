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

package follower

import (
	"testing"

	"k8s.io/apimachinery/pkg/hashkey"
)

func span(start, end uint64) hashkey.Ranges {
	return hashkey.NewRanges(hashkey.Range{Start: start, End: end})
}

func TestExtentHoldsARangeOnceEveryPartIsThere(t *testing.T) {
	e := extent{ranges: span(0, 50), revision: 10, parts: []part{
		{span(0, 20), 30}, {span(20, 50), 20}, {span(10, 30), 25},
	}}
	for _, c := range []struct {
		ranges   hashkey.Ranges
		revision uint64
		want     bool
	}{
		{nil, 99, true},
		{span(0, 50), 10, true},
		{span(0, 51), 10, false},
		{span(0, 50), 20, true},
		{span(0, 50), 21, false},
		{span(0, 30), 25, true},
		{span(0, 31), 25, false},
		{span(0, 20), 30, true},
		{span(0, 20), 31, false},
	} {
		if got := e.holds(c.ranges, c.revision); got != c.want {
			t.Errorf("%s at %d: %t", c.ranges, c.revision, got)
		}
	}
	if got := e.reached(); got != 20 {
		t.Errorf("reached %d", got)
	}
	if got := (extent{revision: 7, parts: []part{{span(0, 20), 30}}}).reached(); got != 7 {
		t.Errorf("nothing reached %d", got)
	}
}
