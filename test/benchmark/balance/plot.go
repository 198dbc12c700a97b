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

package main

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/kubernetes/test/benchmark/svg"
)

const (
	width, panelTop, panelHeight, panelEvery = 960, 80, 200, 290
	// The ends of a panel's horizontal axis.
	left, right = 80, 930
	// highest is the highest ratio that is drawn, and fewest the mean load from which on one is.
	highest = 4.0
	fewest  = fewObjects
)

// colours of the panels, which differ on white and on black.
var colours = []string{"#3c9a6b", "#d9792b", "#3d82c9"}

// plot draws the largest weight : the mean one over time as SVG, beside heavy keys: a panel for
// each result.
func plot(results []*result) string {
	var b strings.Builder
	height := panelTop + panelEvery*len(results)
	b.WriteString(svg.Head(width, height))
	last := 0.0
	for _, r := range results {
		last = max(last, r.phases[len(r.phases)-1].end.Sub(r.phases[0].begin).Seconds())
	}
	fmt.Fprintf(&b, `  <text class="ink" x="%d" y="24" font-size="14" font-weight="bold">largest weight : mean weight of the instances, beside heavy keys</text>`+"\n", left)
	for i, r := range results {
		panel(&b, r, panelTop+panelEvery*i, last, colours[i%len(colours)])
	}
	fmt.Fprintf(&b, `  <text class="faint" x="%d" y="%d" text-anchor="middle">seconds since the first phase began</text>`+"\n</svg>\n", (left+right)/2, height-20)
	return b.String()
}

// panel draws one result, and marks what the bar is and where its phases begin.
func panel(b *strings.Builder, r *result, top int, last float64, colour string) {
	bottom := top + panelHeight
	begin := r.phases[0].begin
	x := func(at time.Time) float64 { return left + at.Sub(begin).Seconds()/last*(right-left) }
	y := func(ratio float64) float64 {
		return float64(bottom) - (min(ratio, highest)-1)/(highest-1)*panelHeight
	}
	fmt.Fprintf(b, `  <text class="ink" x="%d" y="%d" font-weight="bold">balance %s</text>`+"\n", left, top-26, r.mode)
	for v := 1.0; v <= highest; v++ {
		fmt.Fprintf(b, `  <path class="grid" d="M%d %.1fH%d"/><text class="faint" x="%d" y="%.1f" text-anchor="end">%g</text>`+"\n", left, y(v), right, left-8, y(v)+4, v)
	}
	step := svg.Tick(last)
	for v := 0.0; v <= last; v += step {
		at := begin.Add(time.Duration(v * float64(time.Second)))
		fmt.Fprintf(b, `  <path class="axis" d="M%.1f %dv5"/><text class="faint" x="%.1f" y="%d" text-anchor="middle">%g</text>`+"\n", x(at), bottom, x(at), bottom+19, v)
	}
	fmt.Fprintf(b, `  <path class="axis" d="M%d %dV%dH%d" fill="none"/>`+"\n", left, top, bottom, right)
	fmt.Fprintf(b, `  <path class="mark" d="M%d %.1fH%d" stroke-dasharray="6 4"/><text class="faint" x="%d" y="%.1f">%g</text>`+"\n", left, y(evenRatio), right, right+4, y(evenRatio)+4, evenRatio)
	for n, p := range r.phases {
		anchor, shift := "start", 4.0
		if x(p.begin) > right-150 {
			anchor, shift = "end", -4
		}
		fmt.Fprintf(b, `  <path class="mark" d="M%.1f %dV%d" stroke-dasharray="2 3"/><text class="faint" x="%.1f" y="%d" text-anchor="%s">%s</text>`+"\n", x(p.begin), top-6, bottom, x(p.begin)+shift, top+2+14*(n%3), anchor, p.name)
	}
	// The load changes in steps. What lies between phases is not drawn, nor a ring with few objects.
	for _, points := range lines(r) {
		var path strings.Builder
		for _, l := range points {
			fmt.Fprintf(&path, "%.1f,%.1f ", x(l.at), y(l.counted))
		}
		fmt.Fprintf(b, `  <polyline points="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", strings.TrimSpace(path.String()), colour)
	}
}

// lines returns the load over time, in pieces that are without a gap.
func lines(r *result) (pieces [][]load) {
	loads := replay(r.events).loads
	for _, p := range r.phases {
		var piece []load
		var last *load
		for i := range loads {
			l := loads[i]
			if !l.at.Before(p.end) {
				break
			}
			if l.at.Before(p.begin) {
				last = &loads[i]
				continue
			}
			if last != nil && last.mean >= fewest {
				held := *last
				held.at = l.at
				if last.at.Before(p.begin) {
					first := *last
					first.at = p.begin
					piece = append(piece, first)
				}
				piece = append(piece, held)
			}
			if l.mean >= fewest {
				piece = append(piece, l)
			} else if len(piece) > 0 {
				pieces, piece = append(pieces, piece), nil
			}
			last = &loads[i]
		}
		if last != nil && last.mean >= fewest {
			held := *last
			held.at = p.end
			piece = append(piece, held)
		}
		if len(piece) > 0 {
			pieces = append(pieces, piece)
		}
	}
	return pieces
}
