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

package hashkey

import (
	"fmt"
	"sort"
	"strings"
)

// Limit is the end of the line of hash keys, one above Max: every range ends at
// or below it.
const Limit uint64 = 1 << 63

// Range is the half-open part [Start, End) of the line of hash keys, with
// Start < End <= Limit. The bounds are unsigned so that End can lie above Max.
type Range struct {
	// Start is the lowest key of the range (inclusive).
	Start uint64
	// End is one above the highest key of the range (exclusive).
	End uint64
}

// Contains says whether key lies in the range.
func (r Range) Contains(key int64) bool {
	return r.Start <= uint64(key) && uint64(key) < r.End
}

// String returns the range as Ranges.String does.
func (r Range) String() string { return Ranges{r}.String() }

// Ranges is a set of hash keys, as ranges in ascending order that neither
// overlap nor touch. The zero value holds no key. Values are never changed in
// place: each operation returns a new one.
type Ranges []Range

// All returns the whole line of hash keys.
func All() Ranges { return Ranges{{Start: 0, End: Limit}} }

// NewRanges returns the set of the keys that lie in any of rs. Empty ranges are
// dropped, what lies above Limit is cut off.
func NewRanges(rs ...Range) Ranges {
	sorted := make([]Range, 0, len(rs))
	for _, r := range rs {
		r.End = min(r.End, Limit)
		if r.Start < r.End {
			sorted = append(sorted, r)
		}
	}
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].Start < sorted[j].Start })
	var out Ranges
	for _, r := range sorted {
		if n := len(out); n > 0 && r.Start <= out[n-1].End {
			out[n-1].End = max(out[n-1].End, r.End)
			continue
		}
		out = append(out, r)
	}
	return out
}

// Between returns the keys (after, upTo] of a ring: those above after, up to and
// with upTo. Where upTo does not lie above after it goes round the seam, from
// above after to Max and from 0 to upTo; after == upTo is the whole line.
func Between(after, upTo int64) Ranges {
	if after < upTo {
		return NewRanges(Range{Start: uint64(after) + 1, End: uint64(upTo) + 1})
	}
	return NewRanges(Range{Start: 0, End: uint64(upTo) + 1}, Range{Start: uint64(after) + 1, End: Limit})
}

// Empty says whether the set holds no key.
func (rs Ranges) Empty() bool { return len(rs) == 0 }

// Contains says whether key is in the set.
func (rs Ranges) Contains(key int64) bool {
	for _, r := range rs {
		if r.Contains(key) {
			return true
		}
	}
	return false
}

// Width returns how many keys the set holds, at most Limit.
func (rs Ranges) Width() uint64 {
	var width uint64
	for _, r := range rs {
		width += r.End - r.Start
	}
	return width
}

// Union returns the keys that are in rs, in other, or in both.
func (rs Ranges) Union(other Ranges) Ranges {
	return NewRanges(append(append([]Range{}, rs...), other...)...)
}

// Intersect returns the keys that are in both.
func (rs Ranges) Intersect(other Ranges) Ranges {
	var out []Range
	for _, a := range rs {
		for _, b := range other {
			out = append(out, Range{Start: max(a.Start, b.Start), End: min(a.End, b.End)})
		}
	}
	return NewRanges(out...)
}

// Minus returns the keys of rs that are not in other.
func (rs Ranges) Minus(other Ranges) Ranges {
	left := append([]Range{}, rs...)
	for _, b := range other {
		var next []Range
		for _, a := range left {
			if b.End <= a.Start || a.End <= b.Start {
				next = append(next, a)
				continue
			}
			next = append(next, Range{Start: a.Start, End: max(a.Start, b.Start)}, Range{Start: min(a.End, b.End), End: a.End})
		}
		left = next
	}
	return NewRanges(left...)
}

// Coarsen returns rs if it has at most limit ranges, and otherwise limit ranges that
// hold all of it: the narrowest gaps between its ranges are filled. The limit must be
// above zero.
func (rs Ranges) Coarsen(limit int) Ranges {
	if len(rs) <= limit {
		return rs
	}
	gaps := make([]Range, 0, len(rs)-1)
	for i := 1; i < len(rs); i++ {
		gaps = append(gaps, Range{Start: rs[i-1].End, End: rs[i].Start})
	}
	sort.SliceStable(gaps, func(i, j int) bool { return gaps[i].End-gaps[i].Start < gaps[j].End-gaps[j].Start })
	return rs.Union(gaps[:len(rs)-limit])
}

// Covers says whether every key of other is in rs.
func (rs Ranges) Covers(other Ranges) bool { return other.Minus(rs).Empty() }

// Equal says whether both hold the same keys.
func (rs Ranges) Equal(other Ranges) bool {
	if len(rs) != len(other) {
		return false
	}
	for i := range rs {
		if rs[i] != other[i] {
			return false
		}
	}
	return true
}

// Selector returns the shard selector that asks a server for the objects whose
// key at the given field path is in the set, such as
// "shardRange(object.metadata.hashKey, '0x0000000000000000', '0x4000000000000000')",
// with ranges joined by ||. An empty set has no selector: the result is "".
func (rs Ranges) Selector(fieldPath string) string {
	parts := make([]string, 0, len(rs))
	for _, r := range rs {
		parts = append(parts, fmt.Sprintf("shardRange(%s, '0x%016x', '0x%016x')", fieldPath, r.Start, r.End))
	}
	return strings.Join(parts, " || ")
}

// String returns the ranges in the one notation that people see: (after, upTo] in
// the digits of Format, the lower end exclusive, since an instance owns the keys above
// its predecessor's up to and including its own. A range that begins with the lowest
// key is [0000000000000000, upTo]. Two ranges that meet at the seam, where the highest
// key is followed by the lowest, are one: (e000000000000000, 1fffffffffffffff]. Several
// are joined by a comma; an empty set is "nothing".
func (rs Ranges) String() string {
	if len(rs) == 0 {
		return "nothing"
	}
	// The range above the seam, if it is one with the first.
	last := rs[len(rs)-1]
	acrossSeam := len(rs) > 1 && rs[0].Start == 0 && last.End == Limit
	if acrossSeam {
		rs = rs[:len(rs)-1]
	}
	parts := make([]string, 0, len(rs))
	for i, r := range rs {
		if i == 0 && acrossSeam {
			r.Start = last.Start
		}
		start := "[" + Format(0)
		if r.Start > 0 {
			start = "(" + Format(int64(r.Start-1))
		}
		parts = append(parts, start+", "+Format(int64(r.End-1))+"]")
	}
	return strings.Join(parts, ", ")
}
