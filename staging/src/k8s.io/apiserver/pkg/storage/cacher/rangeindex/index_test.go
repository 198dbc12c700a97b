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

package rangeindex

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/hashkey"
)

// FuzzIndex adds and removes values with ranges that overlap, touch, cross the seam or hold
// no key, and compares each answer with a search through all values.
func FuzzIndex(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19})
	f.Add([]byte{255, 0, 255, 0, 1, 200, 100, 50, 25, 12, 6, 3, 1, 0, 0, 0, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, script []byte) {
		var index Index[int]
		all := map[int]hashkey.Ranges{}
		next := 0
		for ; len(script) >= 5; script = script[5:] {
			// The keys are few, so many ranges share an end.
			key := func(b byte) int64 { return int64(uint64(b) << 55) }
			if script[0] == 255 {
				key = func(b byte) int64 { return math.MaxInt64 - int64(b) }
			}
			switch script[0] % 4 {
			case 0, 1:
				ranges := hashkey.Between(key(script[1]), key(script[2]))
				if script[3]%3 == 0 {
					ranges = ranges.Minus(hashkey.Between(key(script[3]), key(script[4])))
				}
				index.Add(next, ranges, next)
				all[next] = ranges
				next++
			case 2:
				for id := range all {
					if id%(int(script[1])+1) == 0 {
						index.Remove(id, all[id])
						delete(all, id)
					}
				}
			}
			for _, asked := range []int64{key(script[1]), key(script[2]) + 1, key(script[4]), int64(binary.BigEndian.Uint32(script)) << 31, 0, math.MaxInt64} {
				if asked >= 0 {
					compare(t, &index, all, asked)
				}
			}
			if index.Len() != len(all) {
				t.Fatalf("Len() = %d, want %d", index.Len(), len(all))
			}
			var each []int
			index.Each(func(id int) { each = append(each, id) })
			if slices.Sort(each); len(each) != len(all) || len(slices.Compact(each)) != len(all) {
				t.Fatalf("Each visited %v, want each of %v once", each, all)
			}
		}
	})
}

func compare(t *testing.T, index *Index[int], all map[int]hashkey.Ranges, key int64) {
	t.Helper()
	var got, want []int
	index.Visit(key, func(id int) { got = append(got, id) })
	for id, ranges := range all {
		if ranges.Contains(key) {
			want = append(want, id)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("Visit(%s) visited %v, want %v", hashkey.Format(key), got, want)
	}
}

// Watchers are added in order of their numbers, often with equal ranges. The tree must stay
// shallow nevertheless.
func TestDepth(t *testing.T) {
	for name, rangeOf := range map[string]func(i int) hashkey.Ranges{
		"equal":     func(int) hashkey.Ranges { return hashkey.All() },
		"ascending": func(i int) hashkey.Ranges { return hashkey.Between(int64(i), int64(i+1)) },
	} {
		var index Index[int]
		for i := range 10_000 {
			index.Add(i, rangeOf(i), i)
		}
		if depth := depthOf(index.root); depth > 60 {
			t.Errorf("%s ranges: a tree of 10,000 is %d deep", name, depth)
		}
	}
}

func depthOf(n *node[int]) int {
	if n == nil {
		return 0
	}
	return 1 + max(depthOf(n.left), depthOf(n.right))
}
