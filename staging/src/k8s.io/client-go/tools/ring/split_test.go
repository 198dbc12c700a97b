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

import (
	"testing"

	"k8s.io/apimachinery/pkg/hashkey"
)

func TestASplitHalvesTheObjectsOrElseTheRange(t *testing.T) {
	for name, tc := range map[string]struct {
		records []Record
		keys    []int64
		vacated []int64
		want    int64
	}{
		"the middle of the whole line without objects": {
			records: []Record{member("a", at(hashkey.Max))},
			want:    hashkey.Max / 2,
		},
		"the lower median of the objects": {
			records: []Record{member("a", at(hashkey.Max))},
			keys:    []int64{900, 10, 30, 20},
			want:    20,
		},
		"counted along the ring where the range goes round the seam": {
			// b owns [0, 100] and what lies above 1000.
			records: []Record{member("a", at(1000)), member("b", at(100))},
			keys:    []int64{5, 50, 2000, 3000, 4000, 6},
			want:    4000,
		},
		"the middle where all objects share the owner's key": {
			records: []Record{member("a", at(100)), member("b", at(200))},
			keys:    []int64{200, 200, 200},
			want:    150,
		},
		"below the owner's key where half of the objects share it": {
			records: []Record{member("a", at(100)), member("b", at(200))},
			keys:    []int64{200, 110, 200, 120},
			want:    120,
		},
		"below the owner's key where most of the objects share it": {
			records: []Record{member("a", at(100)), member("b", at(200))},
			keys:    []int64{200, 120, 200, 110, 200, 200},
			want:    120,
		},
		"where a boundary was": {
			records: []Record{member("a", at(100)), member("b", at(200))},
			keys:    []int64{110, 115, 120, 125, 130, 135, 140, 145, 150, 155},
			vacated: []int64{127},
			want:    127,
		},
		"not where a boundary was if one side has less than two fifths": {
			records: []Record{member("a", at(100)), member("b", at(200))},
			keys:    []int64{110, 115, 120, 125, 130, 135, 140, 145, 150},
			vacated: []int64{124, 137, 200},
			want:    125,
		},
		"at the most even of several boundaries, round the seam": {
			records: []Record{member("a", at(1000)), member("b", at(100))},
			keys:    []int64{2000, 3000, 4000, 5000, 50},
			vacated: []int64{3500, 4500, 5500},
			want:    3500,
		},
		"where a boundary was, without objects": {
			records: []Record{member("a", at(100)), member("b", at(400))},
			vacated: []int64{199, 230, 301},
			want:    230,
		},
		"a range of two keys": {
			records: []Record{member("a", at(100)), member("b", at(102))},
			want:    101,
		},
	} {
		t.Run(name, func(t *testing.T) {
			view := NewView(1, tc.records...)
			owner := tc.records[len(tc.records)-1].Name
			if got := split(view.Owned(owner), view, owner, tc.keys, tc.vacated, 0); got != tc.want {
				t.Errorf("split at %d, want %d", got, tc.want)
			}
		})
	}
}
