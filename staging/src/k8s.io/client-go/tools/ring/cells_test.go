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
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/hashkey"
)

const (
	cells    = 8
	allCells = cellSet(1<<cells - 1)
	cellBits = 60
)

// cellSet is a set of cells. The line of hash keys is cut into eight, each of which
// stands for one key of a small line.
type cellSet uint8

func (c cellSet) ranges() hashkey.Ranges { return rangesOfCells[c] }

// String lists the cells, such as 0-3,7.
func (c cellSet) String() string {
	if c == 0 {
		return "nothing"
	}
	var parts []string
	for from := 0; from < cells; from++ {
		to := from
		for to < cells && c&(1<<to) != 0 {
			to++
		}
		switch {
		case to == from+1:
			parts = append(parts, fmt.Sprint(from))
		case to > from:
			parts = append(parts, fmt.Sprintf("%d-%d", from, to-1))
		}
		from = max(from, to-1)
	}
	return strings.Join(parts, ",")
}

// cellKey is the last key of a cell. Boundaries lie only there.
func cellKey(cell int) int64 { return int64(uint64(cell+1)<<cellBits - 1) }

// cellKeys are those of one object in each cell.
var cellKeys = func() (keys []int64) {
	for cell := range cells {
		keys = append(keys, cellKey(cell))
	}
	return keys
}()

// cellOfKey is the cell that ends at the key; -1: no key.
func cellOfKey(key *int64) int {
	if key == nil {
		return -1
	}
	return int(uint64(*key) >> cellBits)
}

var rangesOfCells = func() (out [1 << cells]hashkey.Ranges) {
	for set := range out {
		var parts []hashkey.Range
		for cell := range cells {
			if set&(1<<cell) != 0 {
				parts = append(parts, hashkey.Range{Start: uint64(cell) << cellBits, End: uint64(cell+1) << cellBits})
			}
		}
		out[set] = hashkey.NewRanges(parts...)
	}
	return out
}()

const aligned = uint64(1)<<cellBits - 1

func cellsOf(rs hashkey.Ranges) cellSet {
	var set cellSet
	for _, r := range rs {
		if (r.Start|r.End)&aligned != 0 {
			panic(fmt.Sprintf("%v cuts a cell", rs))
		}
		set |= cellSet(1<<(r.End>>cellBits)-1) &^ cellSet(1<<(r.Start>>cellBits)-1)
	}
	return set
}

// cellsAt are the cells that end at these keys.
func cellsAt(keys []int64) (set cellSet) {
	for _, key := range keys {
		set |= 1 << cellOfKey(&key)
	}
	return set
}
