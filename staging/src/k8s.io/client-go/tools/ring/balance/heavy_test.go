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

package balance

import (
	"testing"

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/client-go/tools/ring"
)

func TestTheHeaviestKeyIsThatOfMostObjects(t *testing.T) {
	for _, tc := range []struct {
		keys []int64
		key  int64
		n    int
	}{
		{nil, 0, 0},
		{[]int64{7}, 7, 1},
		{[]int64{3, 9, 3, 1, 9, 9}, 9, 3},
		{[]int64{9, 9, 3, 3}, 3, 2},
	} {
		if key, n := Heaviest(tc.keys); key != tc.key || n != tc.n {
			t.Errorf("%v: key %d, %d times; want %d, %d", tc.keys, key, n, tc.key, tc.n)
		}
	}
}

func TestAKeyIsHeavyThatLeavesItsOwnerWithFarMoreThanAnEvenShare(t *testing.T) {
	for _, tc := range []struct {
		n int
		// weights are those of the owners, of which the first has the key.
		weights []int64
		share   float64
		heavy   bool
	}{
		{0, nil, 0, false},
		{0, []int64{0}, 0, false},
		{5000, []int64{5000}, 1, false},
		{5000, []int64{6000, 4000}, 0.5, false},
		{7500, []int64{8000, 2000}, 0.75, true},
		{7499, []int64{8000, 2000}, 0.7499, false},
		{5000, []int64{6000, 2000, 1000, 1000}, 0.5, true},
		// Nobody minds.
		{999, []int64{999, 1}, 0.999, false},
	} {
		var records []ring.Record
		for i, weight := range tc.weights {
			key := int64(i)
			records = append(records, ring.Record{Name: string(rune('a' + i)), Key: &key, Weight: weight})
		}
		weight := int64(0)
		if len(records) > 0 {
			// What the record says of it is late.
			weight, records[0].Weight = records[0].Weight, 1
		}
		if share, heavy := Heavy("a", weight, tc.n, ring.NewView(1, records...)); share != tc.share || heavy != tc.heavy {
			t.Errorf("%d of %v: share %v, heavy %v; want %v, %v", tc.n, tc.weights, share, heavy, tc.share, tc.heavy)
		}
	}
}

func TestWhatComesBeforeAKeyIsCountedFromTheLowerEndOfTheRange(t *testing.T) {
	for name, tc := range map[string]struct {
		owned hashkey.Ranges
		keys  []int64
		want  int
	}{
		"nothing":         {nil, nil, 0},
		"above and below": {hashkey.Between(10, 50), []int64{20, 30, 30, 40}, 1},
		"round the seam":  {hashkey.Between(100, 50), []int64{20, 30, 40, 200, 300}, 3},
		"all keys":        {hashkey.All(), []int64{20, 30, 40}, 1},
	} {
		if got := Before(30, tc.keys, tc.owned); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}
