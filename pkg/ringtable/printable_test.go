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
	"testing"
)

func TestWhatIsNotPrintableDoesNotReachTheScreen(t *testing.T) {
	const text, want = "a\x1b[2J\u202e\n\tb\xff", `a\u001b[2J\u202e` + "\n\tb" + `\xff`
	for what, write := range map[string]func(*Screen) error{
		"a text":           func(s *Screen) error { return s.Show(text) },
		"one that stays":   func(s *Screen) error { return s.Print(text) },
		"lines":            func(s *Screen) error { _, err := s.Write([]byte(text + "\n")); return err },
		"one for a stream": func(s *Screen) error { _, err := fmt.Fprintln(Printable(s.out), text); return err },
	} {
		var out bytes.Buffer
		if err := write(&Screen{out: &out}); err != nil || out.String() != want+"\n" {
			t.Errorf("%s: got %q, %v", what, out.String(), err)
		}
	}
	term := &terminal{t: t, columns: 80, rows: 10}
	s := &Screen{out: term, size: func() (int, int) { return term.columns, term.rows }}
	if err := s.Show(text); err != nil {
		t.Fatal(err)
	}
	if got := term.lines[0]; got != `a\u001b[2J\u202e` {
		t.Errorf("the terminal shows %q", got)
	}
}
