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
	"encoding/xml"
	"fmt"
	"strings"
	"unicode/utf8"
)

// step is a command with what it has printed.
type step struct {
	command, printed string
}

const (
	// charWidth and lineHeight are those of the font, in pixels, margin is around the text.
	charWidth, lineHeight, margin = 7.8, 18, 16
	bar                           = 28 // the height of the window's upper bar
)

// draw returns a picture of a terminal in which these commands have run.
func draw(steps []step) string {
	type line struct{ class, text string }
	var lines []line
	for i, s := range steps {
		if i > 0 {
			lines = append(lines, line{})
		}
		lines = append(lines, line{"command", s.command})
		if s.printed == "" {
			continue
		}
		for text := range strings.SplitSeq(s.printed, "\n") {
			lines = append(lines, line{"out", strings.TrimRight(text, " ")})
		}
	}
	columns := 0
	for _, l := range lines {
		columns = max(columns, utf8.RuneCountInString(l.text)+2)
	}
	width, height := int(charWidth*float64(columns))+2*margin, bar+lineHeight*len(lines)+2*margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="13">
  <style>text { white-space: pre; fill: #d6dbe4 } .prompt { fill: #7ee787 } .command { fill: #fff; font-weight: bold }</style>
  <rect width="%[1]d" height="%[2]d" rx="8" fill="#161b22"/>
  <circle cx="18" cy="16" r="5" fill="#ff5f57"/><circle cx="36" cy="16" r="5" fill="#febc2e"/><circle cx="54" cy="16" r="5" fill="#28c840"/>
`, width, height)
	for i, l := range lines {
		if l.text == "" {
			continue
		}
		y := bar + margin + lineHeight*i + lineHeight/2
		if l.class == "command" {
			fmt.Fprintf(&b, "  <text x=\"%d\" y=\"%d\"><tspan class=\"prompt\">$ </tspan><tspan class=\"command\">%s</tspan></text>\n", margin, y, escape(l.text))
			continue
		}
		fmt.Fprintf(&b, "  <text x=\"%d\" y=\"%d\">%s</text>\n", margin, y, escape(l.text))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func escape(text string) string {
	var b strings.Builder
	// A strings.Builder takes everything.
	_ = xml.EscapeText(&b, []byte(text))
	return b.String()
}
