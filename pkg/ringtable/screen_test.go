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
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// terminal emulates the few control sequences that Screen writes.
type terminal struct {
	t             *testing.T
	columns, rows int
	lines         []string
	cursor        int
}

var sequence = regexp.MustCompile("^\x1b\\[([0-9]*)([A-Z])")

func (term *terminal) Write(p []byte) (int, error) {
	text := string(p)
	line := func() *string {
		for term.cursor >= len(term.lines) {
			term.lines = append(term.lines, "")
		}
		return &term.lines[term.cursor]
	}
	column := 0
	for text != "" {
		if found := sequence.FindStringSubmatch(text); found != nil {
			text = text[len(found[0]):]
			switch found[2] {
			case "F":
				n, _ := strconv.Atoi(found[1])
				if n > term.cursor || n >= term.rows {
					term.t.Errorf("up %d lines from line %d of a terminal with %d", n, term.cursor, term.rows)
				}
				term.cursor -= n
				column = 0
			case "J":
				*line() = string([]rune(*line())[:column])
				term.lines = term.lines[:term.cursor+1]
			case "K":
				*line() = string([]rune(*line())[:column])
			default:
				term.t.Errorf("sequence %q", found[0])
			}
			continue
		}
		r := []rune(text)[0]
		text = text[len(string(r)):]
		if r == '\r' {
			column = 0
			continue
		}
		if r == '\n' {
			term.cursor++
			column = 0
			line()
			continue
		}
		now := []rune(*line())
		if column < len(now) {
			now[column] = r
		} else {
			now = append(now, r)
		}
		*line() = string(now)
		if column++; column > term.columns {
			term.t.Errorf("line wider than %d: %q", term.columns, *line())
		}
	}
	return len(p), nil
}

func (term *terminal) want(lines ...string) {
	term.t.Helper()
	got := term.lines
	for len(got) > 0 && got[len(got)-1] == "" {
		got = got[:len(got)-1]
	}
	if !slices.Equal(got, lines) {
		term.t.Errorf("the terminal shows\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
	}
}

func say(s *Screen, line string) error {
	_, err := fmt.Fprintln(s, line)
	return err
}

func TestScreenOnATerminal(t *testing.T) {
	term := &terminal{t: t, columns: 10, rows: 5}
	s := &Screen{out: term, size: func() (int, int) { return term.columns, term.rows }}
	check := func(err error, lines ...string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		term.want(lines...)
	}
	check(say(s, "begin"), "begin")
	check(s.Show("one\ntwo\n"), "begin", "one", "two")
	check(s.Show("1\n"), "begin", "1")
	check(s.Show("one\ntwo\nthree\n"), "begin", "one", "two", "three")
	check(say(s, "2 news"), "begin", "2 news", "one", "two", "three")
	check(s.Show("as wide as it gets\n█████████████\n"), "begin", "2 news", "as wide as", "██████████")
	check(s.Show("a\nb\nc\nd\ne\nf\n"), "begin", "2 news", "a", "b", "... 3 more", "f")
	_, _ = io.WriteString(term, "^C")
	check(s.Leave(), "begin", "2 news", "a", "b", "... 3 more", "f")
	check(say(s, "end"), "begin", "2 news", "a", "b", "... 3 more", "f", "end")
	check(s.Show("new\n"), "begin", "2 news", "a", "b", "... 3 more", "f", "end", "new")

	// The terminal becomes smaller than the present text.
	term.rows = 2
	check(s.Show("x\ny\n"), "begin", "2 news", "a", "b", "... 3 more", "f", "end", "... 2 more")
}

func TestScreenElsewhere(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s := NewScreen(file)
	if s.Live() || s.Width() != plainWidth {
		t.Errorf("a file is not a terminal: Live %t, Width %d", s.Live(), s.Width())
	}
	for _, text := range []string{"a\n", "a\n", "b\n", "b\n", "a\n"} {
		if err := s.Show(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := say(s, "said once"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	if want := "a\n\nb\n\na\n\nsaid once\n"; string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestScreenTellsOfErrors(t *testing.T) {
	for _, live := range []bool{true, false} {
		s := &Screen{out: brokenPipe{}}
		if live {
			s.size = func() (int, int) { return 80, 24 }
		}
		if err := s.Show("a"); err == nil {
			t.Errorf("live %t: Show succeeded", live)
		}
		if err := say(s, "b"); err == nil {
			t.Errorf("live %t: Write succeeded", live)
		}
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, fmt.Errorf("broken pipe") }
