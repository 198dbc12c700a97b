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
	"math/bits"
	"testing"
)

// The line of hash keys cut into eight cells, narrow and wide ones, with both ends.
// Every union of cells is a bit mask, on which each operation is one of Go's own.
var cells = [9]uint64{0, 1, 2, 5, 1 << 20, 1 << 62, Limit - 2, Limit - 1, Limit}

const allCells = 1<<8 - 1

// ofMask returns the set by the longest way round: one range a cell, in falling order.
func ofMask(mask int) Ranges {
	var rs []Range
	for i := 7; i >= 0; i-- {
		if mask&(1<<i) != 0 {
			rs = append(rs, Range{Start: cells[i], End: cells[i+1]})
		}
	}
	return NewRanges(rs...)
}

// maskOf reads the set back, key by key at both ends of each cell, and checks the
// form that Ranges promises.
func maskOf(t *testing.T, rs Ranges) int {
	t.Helper()
	for i, r := range rs {
		if r.Start >= r.End || r.End > Limit {
			t.Fatalf("malformed range %v in %v", r, rs)
		}
		if i > 0 && r.Start <= rs[i-1].End {
			t.Fatalf("%v: ranges out of order, overlapping or touching", rs)
		}
	}
	mask := 0
	for i := range 8 {
		first, last := rs.Contains(int64(cells[i])), rs.Contains(int64(cells[i+1]-1))
		if first != last {
			t.Fatalf("%v cuts cell %d", rs, i)
		}
		if first {
			mask |= 1 << i
		}
	}
	return mask
}

func TestRangesAgainstBitMasks(t *testing.T) {
	for a := 0; a <= allCells; a++ {
		as := ofMask(a)
		if got := maskOf(t, as); got != a {
			t.Fatalf("NewRanges: %v holds cells %08b, want %08b", as, got, a)
		}
		if as.Empty() != (a == 0) {
			t.Errorf("%v: Empty() = %t", as, as.Empty())
		}
		var width uint64
		for i := range 8 {
			if a&(1<<i) != 0 {
				width += cells[i+1] - cells[i]
			}
		}
		if as.Width() != width {
			t.Errorf("%v: Width() = %d, want %d", as, as.Width(), width)
		}
		if len(as) != bits.OnesCount(uint(a&^(a<<1))) {
			t.Errorf("cells %08b make %d ranges: %v", a, len(as), as)
		}
		for b := 0; b <= allCells; b++ {
			bs := ofMask(b)
			if got := maskOf(t, as.Union(bs)); got != a|b {
				t.Fatalf("%v union %v holds %08b, want %08b", as, bs, got, a|b)
			}
			if got := maskOf(t, as.Intersect(bs)); got != a&b {
				t.Fatalf("%v intersect %v holds %08b, want %08b", as, bs, got, a&b)
			}
			if got := maskOf(t, as.Minus(bs)); got != a&^b {
				t.Fatalf("%v minus %v holds %08b, want %08b", as, bs, got, a&^b)
			}
			if got := as.Covers(bs); got != (b&^a == 0) {
				t.Fatalf("%v covers %v: %t", as, bs, got)
			}
			if got := as.Equal(bs); got != (a == b) {
				t.Fatalf("%v equals %v: %t", as, bs, got)
			}
		}
		if got := maskOf(t, as); got != a {
			t.Fatalf("the operands have changed: %v holds %08b, want %08b", as, got, a)
		}
	}
}

// A ring's instances in order of key must cover the line exactly once, whatever
// their keys, and the seam belongs to the one with the lowest.
func TestBetweenGoesRoundTheSeam(t *testing.T) {
	for i := range 8 {
		for j := range 8 {
			after, upTo := int64(cells[i+1]-1), int64(cells[j+1]-1) // last keys of cells i and j
			want := 0
			for cell := (i + 1) % 8; ; cell = (cell + 1) % 8 {
				want |= 1 << cell
				if cell == j {
					break
				}
			}
			if got := maskOf(t, Between(after, upTo)); got != want {
				t.Errorf("Between(%x, %x) holds %08b, want %08b", after, upTo, got, want)
			}
		}
	}
	if !All().Equal(Between(Max, Max)) {
		t.Errorf("one instance with the highest key owns %v, want everything", Between(Max, Max))
	}
}

func TestNewRangesCutsAndDrops(t *testing.T) {
	got := NewRanges(Range{Start: 7, End: 7}, Range{Start: 9, End: 3}, Range{Start: Limit, End: Limit + 5}, Range{Start: Limit - 1, End: Limit + 9})
	if want := (Ranges{{Start: Limit - 1, End: Limit}}); !got.Equal(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if NewRanges() != nil {
		t.Errorf("no range makes %v, want nil", NewRanges())
	}
}

func TestRangesAsText(t *testing.T) {
	for want, rs := range map[string]Ranges{
		"nothing":                              nil,
		"[0000000000000000, 7fffffffffffffff]": All(),
		"[0000000000000000, 0000000000000009]": Between(Max, 9),
		"(0000000000000009, 7fffffffffffffff]": Between(9, Max),
		"(7ffffffffffffffe, 0000000000000009]": Between(Max-1, 9),
		"[0000000000000000, 0000000000000001], (0000000000000003, 0000000000000005]": NewRanges(Range{0, 2}, Range{4, 6}),
		"(4fffffffffffffff, 0000000000000001], (0000000000000003, 0000000000000005]": NewRanges(Range{0, 2}, Range{4, 6}, Range{5 << 60, Limit}),
	} {
		if got := rs.String(); got != want {
			t.Errorf("String() = %q, want %q", got, want)
		}
	}
	rs := Between(Max-1, 9)
	want := "shardRange(object.metadata.hashKey, '0x0000000000000000', '0x000000000000000a') || " +
		"shardRange(object.metadata.hashKey, '0x7fffffffffffffff', '0x8000000000000000')"
	if got := rs.Selector("object.metadata.hashKey"); got != want {
		t.Errorf("Selector() = %q, want %q", got, want)
	}
	if got := (Ranges)(nil).Selector("object.metadata.hashKey"); got != "" {
		t.Errorf("the empty set has the selector %q", got)
	}
}

func TestCoarsenFillsTheNarrowestGaps(t *testing.T) {
	rs := NewRanges(Range{0, 10}, Range{12, 20}, Range{25, 30}, Range{31, 40})
	for _, c := range []struct {
		limit int
		want  Ranges
	}{
		{5, rs},
		{4, rs},
		{3, NewRanges(Range{0, 10}, Range{12, 20}, Range{25, 40})},
		{2, NewRanges(Range{0, 20}, Range{25, 40})},
		{1, NewRanges(Range{0, 40})},
	} {
		if got := rs.Coarsen(c.limit); !got.Equal(c.want) {
			t.Errorf("at most %d: %v, want %v", c.limit, got, c.want)
		}
	}
	if got := Ranges(nil).Coarsen(1); !got.Empty() {
		t.Errorf("nothing: %v", got)
	}
}
