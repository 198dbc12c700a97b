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
	"slices"
	"strconv"
	"strings"
)

// patch is a unified diff of one file.
type patch struct {
	path  string
	hunks []hunk
}

type hunk struct {
	header   string
	oldStart int // 1-based; 0 only for an empty file
	old, new []string
	text     string // as it is in the patch
}

// placed is where a hunk applied. The offset is in lines from the place in its header.
type placed struct {
	hunk   int
	offset int
}

// hunkError describes a hunk that does not apply.
type hunkError struct {
	hunk   int // 1-based
	of     int
	header string
	line   int // where the file differs, 1-based
	want   string
	got    string
	text   string   // the hunk
	at     int      // the first line of the nearest place, 1-based
	around []string // what the file has there, from that line on
}

func (e *hunkError) Error() string {
	return fmt.Sprintf("hunk %d of %d (%s) does not apply: the nearest place differs from it at line %d, which is\n\t%s\nand should be\n\t%s",
		e.hunk, e.of, e.header, e.line, e.got, e.want)
}

// parsePatch reads a unified diff of one file, with a/ and b/ before the file's name.
func parsePatch(data []byte) (*patch, error) {
	lines := splitLines(string(data))
	i := 0
	for i < len(lines) && !strings.HasPrefix(lines[i], "--- ") {
		i++
	}
	if i+1 >= len(lines) || !strings.HasPrefix(lines[i+1], "+++ ") {
		return nil, fmt.Errorf("no --- and +++ lines")
	}
	from, isOld := strings.CutPrefix(fileName(lines[i]), "a/")
	to, isNew := strings.CutPrefix(fileName(lines[i+1]), "b/")
	if !isOld || !isNew || from != to {
		return nil, fmt.Errorf("line %d: a patch changes one file, a/FILE to b/FILE: files are not made, deleted or renamed by one", i+1)
	}
	p := &patch{path: from}
	i += 2
	for i < len(lines) {
		var h hunk
		var err error
		if h, i, err = parseHunk(lines, i); err != nil {
			return nil, err
		}
		p.hunks = append(p.hunks, h)
	}
	if len(p.hunks) == 0 {
		return nil, fmt.Errorf("no hunks")
	}
	return p, nil
}

func fileName(line string) string {
	name, _, _ := strings.Cut(strings.TrimSuffix(line[len("--- "):], "\n"), "\t")
	return name
}

func parseHunk(lines []string, i int) (hunk, int, error) {
	header := strings.TrimSuffix(lines[i], "\n")
	at := i + 1
	fields := strings.Fields(header)
	if len(fields) < 4 || fields[0] != "@@" || fields[3] != "@@" {
		return hunk{}, 0, fmt.Errorf("line %d: want a hunk (@@ -n,n +n,n @@), have %q", at, header)
	}
	start, oldCount, err := parseSpan(fields[1], "-")
	if err != nil {
		return hunk{}, 0, fmt.Errorf("line %d: %w", at, err)
	}
	_, newCount, err := parseSpan(fields[2], "+")
	if err != nil {
		return hunk{}, 0, fmt.Errorf("line %d: %w", at, err)
	}
	h := hunk{header: strings.Join(fields[:4], " "), oldStart: start}
	for i++; i < len(lines) && (len(h.old) < oldCount || len(h.new) < newCount || lines[i][0] == '\\'); i++ {
		kind, text := lines[i][0], lines[i][1:]
		if lines[i] == "\n" { // some editors strip the blank of an empty context line
			kind, text = ' ', "\n"
		}
		switch kind {
		case ' ':
			h.old, h.new = append(h.old, text), append(h.new, text)
		case '-':
			h.old = append(h.old, text)
		case '+':
			h.new = append(h.new, text)
		case '\\': // "No newline at end of file" refers to the line before
			before := lines[i-1][0]
			if before != '+' && len(h.old) > 0 {
				h.old[len(h.old)-1] = strings.TrimSuffix(h.old[len(h.old)-1], "\n")
			}
			if before != '-' && len(h.new) > 0 {
				h.new[len(h.new)-1] = strings.TrimSuffix(h.new[len(h.new)-1], "\n")
			}
		default:
			return hunk{}, 0, fmt.Errorf("line %d: want a line of the hunk, have %q", i+1, lines[i])
		}
	}
	if len(h.old) != oldCount || len(h.new) != newCount {
		return hunk{}, 0, fmt.Errorf("line %d: hunk %s ends early or has too many lines", at, h.header)
	}
	h.text = strings.Join(lines[at-1:i], "")
	return h, i, nil
}

// parseSpan reads "-start,count" and "-start", which means a count of 1.
func parseSpan(s, sign string) (start, count int, err error) {
	body, found := strings.CutPrefix(s, sign)
	first, second, hasCount := strings.Cut(body, ",")
	start, err = strconv.Atoi(first)
	count = 1
	if err == nil && hasCount {
		count, err = strconv.Atoi(second)
	}
	if err != nil || !found {
		return 0, 0, fmt.Errorf("%q is no %sstart,count", s, sign)
	}
	return start, count, nil
}

// apply returns the patched file. Context must match exactly. Line offsets may differ: a
// hunk goes to the nearest place that matches, after the hunk before it. Hunks that do not
// apply are left out and returned as errors.
func (p *patch) apply(data []byte) ([]byte, []placed, []*hunkError) {
	lines := splitLines(string(data))
	var out strings.Builder
	var moved []placed
	var failed []*hunkError
	next, drift := 0, 0 // first line not yet written; offset of the last hunk
	for i, h := range p.hunks {
		want := h.oldStart - 1
		if len(h.old) == 0 {
			want = h.oldStart
		}
		at, found := find(lines, h.old, want+drift, next)
		if !found {
			failed = append(failed, mismatch(lines, h, want+drift, next, i+1, len(p.hunks)))
			continue
		}
		drift = at - want
		if drift != 0 {
			moved = append(moved, placed{hunk: i + 1, offset: drift})
		}
		for _, line := range lines[next:at] {
			out.WriteString(line)
		}
		for _, line := range h.new {
			out.WriteString(line)
		}
		next = at + len(h.old)
	}
	for _, line := range lines[next:] {
		out.WriteString(line)
	}
	return []byte(out.String()), moved, failed
}

// find returns the place nearest to want, but not before least, where lines has old.
func find(lines, old []string, want, least int) (int, bool) {
	most := len(lines) - len(old)
	for d := 0; want-d >= least || want+d <= most; d++ {
		for _, at := range []int{want + d, want - d} {
			if at >= least && at <= most && matches(lines[at:], old) {
				return at, true
			}
		}
	}
	return 0, false
}

func matches(lines, old []string) bool {
	for i := range old {
		if lines[i] != old[i] {
			return false
		}
	}
	return true
}

// mismatch explains why a hunk does not apply at the place that matches best.
func mismatch(lines []string, h hunk, want, least, n, of int) *hunkError {
	at, most := max(want, least), -1
	for start := least; start <= len(lines); start++ {
		same := 0
		for i := range min(len(h.old), len(lines)-start) {
			if lines[start+i] == h.old[i] {
				same++
			}
		}
		if same > most || same == most && abs(start-want) < abs(at-want) {
			at, most = start, same
		}
	}
	e := &hunkError{hunk: n, of: of, header: h.header, line: at + 1, text: h.text, at: at + 1}
	e.around = lines[min(at, len(lines)):min(at+len(h.old), len(lines))]
	for i, want := range h.old {
		got := "the end of the file"
		if at+i < len(lines) {
			got = strings.TrimSuffix(lines[at+i], "\n")
		}
		if want = strings.TrimSuffix(want, "\n"); got != want {
			e.line, e.want, e.got = at+i+1, want, got
			break
		}
	}
	return e
}

func abs(n int) int {
	return max(n, -n)
}

// splitLines splits after each newline. The last line may lack one.
func splitLines(s string) []string {
	lines := strings.SplitAfter(s, "\n")
	return slices.DeleteFunc(lines, func(line string) bool { return line == "" })
}
