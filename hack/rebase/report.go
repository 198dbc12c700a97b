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

package rebase

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Report is what a person has to do for another version of upstream, in the order to do it in.
type Report struct {
	Old, New string
	Sections []*Section
	Times    []Time
}

// Section is one kind of thing to do.
type Section struct {
	Title string
	// Do says what a person has to do about the findings.
	Do       string
	Findings []Finding
	// Untried says what was not looked into, and why.
	Untried string
}

// Finding is one thing for a person to look at.
type Finding struct {
	// Text is one line of Markdown.
	Text string
	// Detail, if there is any, is shown below it as it is, in a block of that language.
	Detail, Language string
}

// Time is how long a step took by the clock.
type Time struct {
	Step string
	Took time.Duration
}

// Add adds a section.
func (r *Report) Add(s *Section) { r.Sections = append(r.Sections, s) }

func (s *Section) result() string {
	result := fmt.Sprint(len(s.Findings))
	switch {
	case s.Untried != "" && len(s.Findings) == 0:
		return "not tried"
	case s.Untried != "":
		result += ", not all tried"
	}
	return result
}

// Summary writes a line for each section.
func (r *Report) Summary(w io.Writer) {
	for i, s := range r.Sections {
		fmt.Fprintf(w, "%3d. %-60s %s\n", i+1, s.Title, s.result())
	}
}

// Write writes the report as Markdown.
func (r *Report) Write(w io.Writer) {
	fmt.Fprintf(w, "# From upstream %s to %s\n\nWhat a person has to read and do, in this order:\n\n| | what | findings |\n| --- | --- | --- |\n", r.Old, r.New)
	for i, s := range r.Sections {
		fmt.Fprintf(w, "| %d | %s | %s |\n", i+1, s.Title, s.result())
	}
	for i, s := range r.Sections {
		fmt.Fprintf(w, "\n## %d. %s\n\n", i+1, s.Title)
		if s.Untried != "" {
			fmt.Fprintf(w, "Not tried: %s\n\n", s.Untried)
		}
		if len(s.Findings) == 0 {
			if s.Untried == "" {
				fmt.Fprintln(w, "Nothing.")
			}
			continue
		}
		fmt.Fprintf(w, "%s\n\n", s.Do)
		for _, f := range s.Findings {
			fmt.Fprintf(w, "- %s\n", f.Text)
			if f.Detail != "" {
				f.block(w)
			}
		}
	}
	fmt.Fprintf(w, "\n## Time by the clock\n\n| step | seconds |\n| --- | --- |\n")
	var all time.Duration
	for _, t := range r.Times {
		fmt.Fprintf(w, "| %s | %.1f |\n", t.Step, t.Took.Seconds())
		all += t.Took
	}
	fmt.Fprintf(w, "| all | %.1f |\n", all.Seconds())
}

// block writes the detail, indented so that it belongs to the item of the list above it.
func (f *Finding) block(w io.Writer) {
	fence := "```"
	for strings.Contains(f.Detail, fence) {
		fence += "`"
	}
	fmt.Fprintf(w, "\n  %s%s\n", fence, f.Language)
	for line := range strings.Lines(f.Detail) {
		if line != "\n" {
			line = "  " + line
		}
		io.WriteString(w, strings.TrimSuffix(line, "\n")+"\n")
	}
	fmt.Fprintf(w, "  %s\n\n", fence)
}
