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
	"math"
	"strings"

	"k8s.io/kubernetes/test/benchmark/svg"
)

const (
	width, height = 960, 640
	// The ends of a panel's horizontal axis, and the height of a panel.
	left, right, panelHeight = 80, 930, 200
)

// colours of the processes, which differ on white and on black.
var colours = []string{"#3d82c9", "#3c9a6b", "#9a6fc0", "#8a94a3", "#d9792b"}

// plot draws a join as SVG: the live heap of each process, and the bytes it received.
func plot(r *recording, moved float64) string {
	var b strings.Builder
	b.WriteString(svg.Head(width, height))
	receiver := len(r.ring) - 1
	for i := range r.ring {
		name := fmt.Sprintf("instance %d", i+1)
		if i == receiver {
			name += ", which joins"
		}
		x := left + 120*i
		fmt.Fprintf(&b, `  <path d="M%d 24h22" stroke="%s" stroke-width="3"/><text class="ink" x="%d" y="28">%s</text>`+"\n", x, colours[i%len(colours)], x+28, name)
	}
	panel(&b, r, 80, "live heap of each process, MB", r.live, 0)
	panel(&b, r, 370, "received by each process in total, MB", r.received, moved)
	fmt.Fprintf(&b, `  <text class="faint" x="%d" y="%d" text-anchor="middle">seconds since the start of instance %d</text>`+"\n</svg>\n", (left+right)/2, height-20, receiver+1)
	return b.String()
}

// panel draws lines below a title. It marks the start and the end of the join, and draws
// a dashed line at level unless that is 0.
func panel(b *strings.Builder, r *recording, top int, title string, lines [][]sample, level float64) {
	bottom := top + panelHeight
	last := (r.joined + pause).Seconds()
	first, highest := -pause.Seconds(), level
	for _, line := range lines {
		for _, s := range line {
			highest = max(highest, s.bytes)
		}
	}
	highest *= 1.08 / 1e6
	x := func(seconds float64) float64 { return left + (seconds-first)/(last-first)*(right-left) }
	y := func(bytes float64) float64 { return float64(bottom) - bytes/1e6/highest*panelHeight }

	fmt.Fprintf(b, `  <text class="ink" x="%d" y="%d" font-size="14" font-weight="bold">%s</text>`+"\n", left, top-22, title)
	for step, v := svg.Tick(highest), 0.0; v <= highest; v += step {
		fmt.Fprintf(b, `  <path class="grid" d="M%d %.1fH%d"/><text class="faint" x="%d" y="%.1f" text-anchor="end">%g</text>`+"\n", left, y(v*1e6), right, left-8, y(v*1e6)+4, v)
	}
	step := svg.Tick(last - first)
	for v := math.Ceil(first/step) * step; v <= last; v += step {
		fmt.Fprintf(b, `  <path class="axis" d="M%.1f %dv5"/><text class="faint" x="%.1f" y="%d" text-anchor="middle">%g</text>`+"\n", x(v), bottom, x(v), bottom+19, v)
	}
	fmt.Fprintf(b, `  <path class="axis" d="M%d %dV%dH%d" fill="none"/>`+"\n", left, top, bottom, right)
	for _, mark := range []struct {
		at           float64
		text, anchor string
		shift        float64
	}{{0, "starts", "end", -4}, {r.joined.Seconds(), "has joined", "start", 4}} {
		fmt.Fprintf(b, `  <path class="mark" d="M%.1f %dV%d" stroke-dasharray="2 3"/><text class="faint" x="%.1f" y="%d" text-anchor="%s">%s</text>`+"\n", x(mark.at), top-6, bottom, x(mark.at)+mark.shift, top+2, mark.anchor, mark.text)
	}
	if level > 0 {
		fmt.Fprintf(b, `  <path class="mark" d="M%d %.1fH%d" stroke-dasharray="6 4"/><text class="faint" x="%d" y="%.1f">size of the moved range</text>`+"\n", left, y(level), right, left+6, y(level)+15)
	}
	for i, line := range lines {
		var points strings.Builder
		for _, s := range line {
			fmt.Fprintf(&points, "%.1f,%.1f ", x(s.at.Seconds()), y(s.bytes))
		}
		fmt.Fprintf(b, `  <polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.TrimSpace(points.String()), colours[i%len(colours)])
	}
}
