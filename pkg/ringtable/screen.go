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
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"k8s.io/client-go/tools/ring"
)

const (
	// terminalInterval and plainInterval lie between two texts, on a terminal and
	// elsewhere.
	terminalInterval = 100 * time.Millisecond
	plainInterval    = time.Second
	// plainWidth is the width of output that is not a terminal.
	plainWidth = 160
)

// Control sequences of ECMA-48.
const (
	up         = "\x1b[%dF"
	clearBelow = "\x1b[J"
	clearLine  = "\x1b[K"
)

// Screen shows a text that changes. On a terminal the text is redrawn in place;
// elsewhere it is printed again whenever it differs. What is not printable is shown as
// ring.PrintableLines has it. Its methods may be called from several goroutines.
type Screen struct {
	out io.Writer
	// size returns the columns and rows of the terminal. It is nil without a terminal.
	size func() (columns, rows int)

	mu sync.Mutex
	// shown is the present text, which takes up this many lines.
	shown string
	lines int
}

// NewScreen returns a Screen on out.
func NewScreen(out *os.File) *Screen {
	s := &Screen{out: out}
	if term.IsTerminal(int(out.Fd())) && os.Getenv("TERM") != "dumb" {
		s.size = func() (int, int) {
			columns, rows, err := term.GetSize(int(out.Fd()))
			if err != nil || columns == 0 || rows == 0 {
				return 80, 24
			}
			return columns, rows
		}
	}
	return s
}

// Live reports whether the text is redrawn in place.
func (s *Screen) Live() bool { return s.size != nil }

// Interval returns the least time to leave between two texts.
func (s *Screen) Interval() time.Duration {
	if s.Live() {
		return terminalInterval
	}
	return plainInterval
}

// Width returns the number of columns.
func (s *Screen) Width() int {
	if !s.Live() {
		return plainWidth
	}
	columns, _ := s.size()
	return columns
}

// Show replaces the present text. On a terminal, columns that do not fit are cut off, and lines are
// left out that lie above the last third of the terminal: sums come last.
func (s *Screen) Show(text string) error {
	text = ring.PrintableLines(text)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.Live() {
		if text == s.shown {
			return nil
		}
		s.shown = text
		_, err := io.WriteString(s.out, text+"\n")
		return err
	}
	return s.draw(nil, text)
}

// Print prints a text that does not change, all of it.
func (s *Screen) Print(text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := io.WriteString(s.out, ring.PrintableLines(text)+"\n")
	return err
}

// Write prints lines above the text, where they stay.
func (s *Screen) Write(lines []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.Live() {
		return Printable(s.out).Write(lines)
	}
	if err := s.draw([]byte(ring.PrintableLines(string(lines))), s.shown); err != nil {
		return 0, err
	}
	return len(lines), nil
}

// Leave leaves the text where it is: the next output goes below it.
func (s *Screen) Leave() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown, s.lines = "", 0
	if !s.Live() {
		return nil
	}
	// Overwrite the ^C that the terminal echoes.
	_, err := io.WriteString(s.out, "\r"+clearBelow)
	return err
}

// draw replaces the present text with the message and the new text below it. It writes
// once, so no intermediate state is visible.
func (s *Screen) draw(message []byte, text string) error {
	columns, rows := s.size()
	var b bytes.Buffer
	// Lines that a shrunken terminal has scrolled away cannot be overwritten.
	if n := min(s.lines, rows-1); n > 0 {
		fmt.Fprintf(&b, up, n)
	}
	if len(message) > 0 {
		b.WriteString(clearBelow)
		b.Write(message)
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if text == "" {
		lines = nil
	}
	if fit := max(1, rows-1); len(lines) > fit {
		last := fit / 3
		cut := len(lines) - fit + 1
		lines = slices.Concat(lines[:fit-1-last], []string{fmt.Sprintf("... %d more lines", cut)}, lines[len(lines)-last:])
	}
	for _, line := range lines {
		if runes := []rune(line); len(runes) > columns {
			line = string(runes[:columns])
		}
		b.WriteString(line + clearLine + "\n")
	}
	b.WriteString(clearBelow)
	s.shown, s.lines = text, len(lines)
	_, err := s.out.Write(b.Bytes())
	return err
}
