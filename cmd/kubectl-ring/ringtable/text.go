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
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
)

const (
	// The bar takes what the other columns leave of the width, within these bounds.
	minBar = 8
	maxBar = 32
	// columnGap lies between two columns.
	columnGap = "  "
)

// Text returns the ring as a table, for lines of that width, with times as of now. A
// line below it says whether the instances cover all keys. With a zero now, times are
// left out: the text then changes only with the ring. Lines may be wider where the
// columns need it.
func (r *Ring) Text(width int, now time.Time) string {
	pods := r.Controller == names.ReplicaSetController
	header := []string{"INSTANCE", "PHASE", "RANGE", "SHARE", "WORKLOADS"}
	if pods {
		header = []string{"INSTANCE", "PHASE", "RANGE", "SHARE", "REPLICASETS", "PODS READY"}
	}
	if !now.IsZero() {
		header = append(header, "AGE", "RENEWED")
	}
	const share = 3
	rows := [][]string{header}
	for _, i := range r.Instances {
		row := []string{i.Name, string(i.Phase), i.rangeText(), percent(i.Owned), fmt.Sprint(i.Workloads)}
		if pods {
			row = append(row, fmt.Sprintf("%d/%d", i.Pods.Ready, i.Pods.Wanted))
		}
		if !now.IsZero() {
			row = append(row, age(i.Created, now), ago(i.Renewed, now))
		}
		rows = append(rows, row)
	}

	widths := make([]int, len(header))
	total := 0
	for column := range widths {
		for _, row := range rows {
			widths[column] = max(widths[column], utf8.RuneCountInString(row[column]))
		}
		total += widths[column] + len(columnGap)
	}
	cells := min(max(width-total, minBar), maxBar)
	var b strings.Builder
	for n, row := range rows {
		var line strings.Builder
		for column, cell := range row {
			if column == share && n > 0 {
				// The percentage to the right, the bar behind it.
				fmt.Fprintf(&line, "%*s ", widths[column], cell)
				line.WriteString(bar(r.Instances[n-1].Owned, cells))
			} else {
				fmt.Fprintf(&line, "%-*s", widths[column], cell)
				if column == share {
					line.WriteString(strings.Repeat(" ", 1+cells))
				}
			}
			line.WriteString(columnGap)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	if len(r.Instances) == 0 {
		b.Reset()
	}
	b.WriteString(r.sum() + "\n")
	return b.String()
}

// sum says in one line what all instances do together.
func (r *Ring) sum() string {
	if len(r.Instances) == 0 {
		return fmt.Sprintf("%s has no instance: nothing works on [0, 2^63)", r.Controller)
	}
	var b strings.Builder
	count, subject := fmt.Sprintf("%d instances", len(r.Instances)), "they cover"
	if len(r.Instances) == 1 {
		count, subject = "1 instance", "it covers"
	}
	fmt.Fprintf(&b, "%s, %d Active: ", count, r.Active())
	if r.Gap.Empty() {
		fmt.Fprintf(&b, "%s [0, 2^63) exactly", subject)
	} else {
		gaps := make([]string, 0, len(r.Gap))
		for _, gap := range r.Gap {
			gaps = append(gaps, rangeText(hashkey.Ranges{gap}))
		}
		fmt.Fprintf(&b, "nothing works on %s of [0, 2^63): %s", percent(r.Gap), strings.Join(gaps, ", "))
	}
	if r.Controller == names.ReplicaSetController {
		fmt.Fprintf(&b, "; %d of %d pods ready", r.Pods.Ready, r.Pods.Wanted)
	}
	return b.String()
}

// rangeText is what the instance owns, else, behind an arrow, what it is to own.
func (i *Instance) rangeText() string {
	switch {
	case !i.Owned.Empty():
		return rangeText(i.Owned)
	case !i.Coming.Empty():
		return "-> " + rangeText(i.Coming)
	default:
		return "-"
	}
}

// rangeText returns a range as (after, upTo], and as [0, upTo] where it begins with
// the lowest key there is.
func rangeText(owned hashkey.Ranges) string {
	if first, ok := after(owned); ok {
		return fmt.Sprintf("(%016x, %016x]", first, upTo(owned))
	}
	return fmt.Sprintf("[%016x, %016x]", 0, upTo(owned))
}

func percent(ranges hashkey.Ranges) string {
	return fmt.Sprintf("%.1f%%", 100*float64(ranges.Width())/float64(hashkey.Limit))
}

// bar draws the whole line of hash keys in that many cells, full where the ranges
// hold at least half of a cell's keys. Something is drawn of every range.
func bar(ranges hashkey.Ranges, cells int) string {
	width := float64(hashkey.Limit) / float64(cells)
	var b strings.Builder
	for cell := range cells {
		from, to := float64(cell)*width, float64(cell+1)*width
		var held, most float64
		for _, r := range ranges {
			start, end := float64(r.Start), float64(r.End)
			part := math.Max(0, math.Min(to, end)-math.Max(from, start))
			held += part
			if part > 0 {
				most = math.Max(most, part/(end-start))
			}
		}
		switch {
		case held >= width/2, most >= 0.5:
			b.WriteRune('█')
		default:
			b.WriteRune('·')
		}
	}
	return b.String()
}

func age(then, now time.Time) string {
	return duration.HumanDuration(max(0, now.Sub(then)))
}

func ago(then, now time.Time) string {
	if then.IsZero() {
		return "never"
	}
	return age(then, now) + " ago"
}
