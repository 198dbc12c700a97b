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

package ringtable

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/util/duration"
)

const (
	// A bar takes what the columns leave of the width, within these bounds.
	minBar = 8
	maxBar = 32
	// columnGap lies between two columns.
	columnGap = "  "
	// keyDigits is the number of hexadecimal digits of a key.
	keyDigits = 16
)

// layout says what there is room for.
type layout struct {
	// digits is how many leading digits of a key are shown.
	digits                int
	host, ages, bar, work bool
	// wide adds what is not looked at every day.
	wide bool
}

// layouts are in the order in which they are tried: what is first given up can best
// be done without.
var layouts = []layout{
	{digits: keyDigits, host: true, ages: true, bar: true, work: true},
	{digits: keyDigits, ages: true, bar: true, work: true},
	{digits: 4, ages: true, bar: true, work: true},
	{digits: 4, bar: true, work: true},
	{digits: 2},
}

// Text returns the ring as a table, with ages as of now. A line below it says
// whether the instances cover all keys. Where lines of that width have no room for
// everything, hosts are left out, then keys cut short, then ages and phases' ages left
// out, then the bars and the work. With a zero now
// there are no ages: the text changes only with the ring.
func (r *Ring) Text(width int, now time.Time) string { return r.text(width, now, false) }

// Wide returns the ring as a table with more columns, however long its lines are: the objects of
// the heaviest key, what the process held after its last garbage collection, and its whole name.
func (r *Ring) Wide(now time.Time) string { return r.text(math.MaxInt, now, true) }

func (r *Ring) text(width int, now time.Time, wide bool) string {
	if len(r.Instances) == 0 {
		return r.sum() + "\n"
	}
	var table [][]string
	var used, bars, shareColumn int
	for _, l := range layouts {
		l.wide = wide
		if now.IsZero() {
			l.ages = false
		}
		table = r.cells(l, now)
		shareColumn = slices.Index(table[0], shareHeader)
		used = tableWidth(table)
		bars = 0
		if l.bar {
			bars = min(max(width-used-1, minBar), maxBar)
			used += 1 + bars
		}
		if used <= width {
			break
		}
	}
	if bars > 0 {
		for n, row := range table {
			if n == 0 {
				row[shareColumn] += strings.Repeat(" ", 1+bars)
			} else {
				row[shareColumn] += " " + bar(r.Instances[n-1].Owned, bars)
			}
		}
	}

	widths := columnWidths(table)
	var b strings.Builder
	for _, row := range table {
		var line strings.Builder
		for column, cell := range row {
			padding := strings.Repeat(" ", widths[column]-utf8.RuneCountInString(cell))
			if column == shareColumn {
				// To the right, so that one bar stands above the other.
				line.WriteString(padding + cell + columnGap)
			} else {
				line.WriteString(cell + padding + columnGap)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String() + r.sum() + "\n"
}

// shareHeader is that of the column that a bar is added to.
const shareHeader = "SHARE"

// cells returns the table without bars, its header first.
func (r *Ring) cells(l layout, now time.Time) [][]string {
	header := []string{"INSTANCE", "PHASE"}
	if l.ages {
		header = append(header, "SINCE")
	}
	header = append(header, "RANGE", shareHeader, "WEIGHT")
	if l.wide {
		header = append(header, "HEAVIEST KEY", "HEAP")
	}
	if l.work {
		header = append(header, "WORK")
	}
	header = append(header, "WORKS ON")
	if r.Counted {
		header = append(header, "PODS READY")
	}
	if l.ages {
		header = append(header, "AGE")
	}
	switch {
	case l.wide:
		header = append(header, "HOLDER")
	case l.host:
		header = append(header, "HOST")
	}
	table := [][]string{header}
	for _, i := range r.Instances {
		row := []string{i.Name, i.phaseText()}
		if l.ages {
			row = append(row, i.Since(now))
		}
		row = append(row, i.rangeText(l.digits), percent(i.Owned), fmt.Sprint(i.Weight))
		if l.wide {
			row = append(row, fmt.Sprint(i.Heaviest), i.heapText())
		}
		if l.work {
			row = append(row, fmt.Sprintf("%d%%", (i.Work+5)/10))
		}
		row = append(row, fmt.Sprintf("%d/%d", len(i.Working), len(i.Controllers)))
		if r.Counted {
			row = append(row, fmt.Sprintf("%d/%d", i.Pods.Ready, i.Pods.Wanted))
		}
		if l.ages {
			row = append(row, age(i.Created, now))
		}
		switch {
		case l.wide:
			row = append(row, i.Holder)
		case l.host:
			row = append(row, i.Host())
		}
		table = append(table, row)
	}
	return table
}

func columnWidths(table [][]string) []int {
	widths := make([]int, len(table[0]))
	for _, row := range table {
		for column, cell := range row {
			widths[column] = max(widths[column], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

func tableWidth(table [][]string) int {
	total := -len(columnGap)
	for _, width := range columnWidths(table) {
		total += width + len(columnGap)
	}
	return total
}

// nobody says what it means that a ring has no instance: the controllers of
// kube-controller-manager's are run by its leader then.
const nobody = "nothing works on its hash keys, unless a kube-controller-manager that leads does"

// sum says in one line what all instances do together, and in further ones what waits.
func (r *Ring) sum() string {
	if len(r.Instances) == 0 {
		return fmt.Sprintf("ring %s has no instance: %s", r.Name, nobody)
	}
	var b strings.Builder
	count, subject := fmt.Sprintf("%d instances", len(r.Instances)), "they cover"
	if len(r.Instances) == 1 {
		count, subject = "1 instance", "it covers"
	}
	fmt.Fprintf(&b, "%s, %d Active: ", count, r.Active())
	if r.Gap.Empty() {
		fmt.Fprintf(&b, "%s all hash keys", subject)
	} else {
		fmt.Fprintf(&b, "nothing works on %s of the hash keys: %s", percent(r.Gap), r.Gap)
	}
	if imbalance := r.Imbalance(); imbalance > 0 && len(r.view.Ring()) > 1 {
		fmt.Fprintf(&b, "; the largest weight is %.2f times the mean", imbalance)
	}
	if by, off := r.view.BalanceOff(); off {
		fmt.Fprintf(&b, "; balance off (by %s)", by)
	}
	if r.Counted {
		fmt.Fprintf(&b, "; %d of %d pods ready", r.Pods.Ready, r.Pods.Wanted)
	}
	for _, line := range slices.Concat(r.Moves, r.unworked(), r.Notes()) {
		b.WriteString("\n" + line)
	}
	return b.String()
}

// phaseText is the phase, and whether the instance is drained.
func (i *Instance) phaseText() string {
	if i.Drained {
		return strings.TrimSpace(string(i.Phase) + " (drained)")
	}
	return string(i.Phase)
}

// Since returns for how long the instance has had its phase, "-" if that is not known.
func (i *Instance) Since(now time.Time) string {
	if i.PhaseSince.IsZero() {
		return "-"
	}
	return age(i.PhaseSince, now)
}

// rangeText is what the instance owns or, behind an arrow, what it is to receive. It says whether
// the end of it is pinned.
func (i *Instance) rangeText(digits int) string {
	switch {
	case !i.Owned.Empty() && i.Pinned:
		return rangeText(i.Owned, digits) + " pinned"
	case !i.Owned.Empty():
		return rangeText(i.Owned, digits)
	case !i.Coming.Empty():
		return "-> " + rangeText(i.Coming, digits)
	default:
		return "-"
	}
}

var wholeKey = regexp.MustCompile(`[0-9a-f]{16}`)

// rangeText returns a range in its usual notation, keys cut to that many digits.
func rangeText(owned hashkey.Ranges, digits int) string {
	text := owned.String()
	if digits == keyDigits {
		return text
	}
	return wholeKey.ReplaceAllStringFunc(text, func(key string) string { return key[:digits] + "…" })
}

func percent(ranges hashkey.Ranges) string {
	return fmt.Sprintf("%.1f%%", 100*share(ranges))
}

// bar draws the whole line of hash keys in that many cells, full where a range holds
// at least half of a cell's keys, or half of its own.
func bar(ranges hashkey.Ranges, cells int) string {
	width := hashkey.Limit / uint64(cells)
	var b strings.Builder
	for cell := range uint64(cells) {
		part := hashkey.Range{Start: cell * width, End: (cell + 1) * width}
		if cell == uint64(cells)-1 {
			part.End = hashkey.Limit
		}
		full := false
		for _, r := range ranges {
			held := hashkey.NewRanges(r).Intersect(hashkey.NewRanges(part)).Width()
			full = full || held >= width/2 || held > 0 && held >= (r.End-r.Start)/2
		}
		if full {
			b.WriteRune('█')
		} else {
			b.WriteRune('·')
		}
	}
	return b.String()
}

func age(then, now time.Time) string {
	return duration.HumanDuration(max(0, now.Sub(then)))
}

// heapText returns what the instance's process held; "-": it has not told.
func (i *Instance) heapText() string {
	if i.LiveBytes == 0 {
		return "-"
	}
	return fmt.Sprintf("%dMi", i.LiveBytes>>20)
}
