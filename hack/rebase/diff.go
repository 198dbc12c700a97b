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
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// hunk is a part of a unified diff.
type hunk struct {
	old  Lines // with context
	text string
}

// changedLines returns the lines that the hunk removes and adds, with their signs.
func (h hunk) changedLines() []string {
	var all []string
	for _, line := range strings.Split(h.text, "\n")[1:] {
		if strings.HasPrefix(line, "+") || strings.HasPrefix(line, "-") {
			all = append(all, line)
		}
	}
	return all
}

// diff returns the hunks in which two versions of a file differ. Git makes them, as its hunks name
// the function that they are in.
func diff(old, new []byte) ([]hunk, error) {
	dir, err := os.MkdirTemp("", "rebase-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	for name, data := range map[string][]byte{"old.go": old, "new.go": new} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command("git", "diff", "--no-index", "--no-color", "--no-ext-diff", "--histogram", "-U3", "old.go", "new.go")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull, "LC_ALL=C")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1) {
		return nil, fmt.Errorf("git diff: %w", err)
	}
	var all []hunk
	for line := range strings.Lines(string(out)) {
		switch {
		case strings.HasPrefix(line, "@@ "):
			var start, count int
			span := strings.TrimPrefix(strings.Fields(line)[1], "-")
			if n, _ := fmt.Sscanf(span, "%d,%d", &start, &count); n < 2 {
				count = 1
			}
			if count == 0 {
				start++ // git names the line before
			}
			all = append(all, hunk{old: Lines{start, start + count - 1}, text: line})
		case len(all) > 0:
			all[len(all)-1].text += line
		}
	}
	return all, nil
}

// size says how much a file changed.
func (c *Change) size() string {
	switch {
	case c.Old == nil:
		return "new"
	case c.New == nil:
		return "gone"
	}
	hunks, err := c.hunks()
	if err != nil {
		return err.Error()
	}
	added, removed := 0, 0
	for _, h := range hunks {
		for _, line := range h.changedLines() {
			if line[0] == '+' {
				added++
			} else {
				removed++
			}
		}
	}
	return fmt.Sprintf("+%d -%d", added, removed)
}

// near is how many lines may lie between a hunk of upstream's and one of ours that it may matter
// to.
const near = 15

// distance returns how many lines lie between two places in a file: 0 if they touch or overlap.
func distance(a, b Lines) int {
	return max(0, a.From-b.To-1, b.From-a.To-1)
}

// marked returns a diff of upstream's change with a line above each hunk for those of ours that lie
// in it or near it, and the numbers of all of these.
func marked(change *Change, p Patch) (text string, touched []int, err error) {
	hunks, err := change.hunks()
	if err != nil {
		return "", nil, err
	}
	var b strings.Builder
	for _, h := range hunks {
		for i, ours := range p.Hunks {
			far := distance(h.old, ours)
			if far > near {
				continue
			}
			where := "in this hunk"
			if far > 0 && ours.From > h.old.To {
				where = fmt.Sprintf("%d lines below this hunk", far)
			} else if far > 0 {
				where = fmt.Sprintf("%d lines above this hunk", far)
			}
			fmt.Fprintf(&b, "# OURS: hunk %d of the patch changes %s, %s\n", i+1, ours, where)
			if !slices.Contains(touched, i+1) {
				touched = append(touched, i+1)
			}
		}
		b.WriteString(h.text)
	}
	slices.Sort(touched)
	return b.String(), touched, nil
}

func (l Lines) String() string {
	switch {
	case l.To < l.From:
		return fmt.Sprintf("what comes before line %d", l.From)
	case l.To == l.From:
		return fmt.Sprintf("line %d", l.From)
	}
	return fmt.Sprintf("lines %d to %d", l.From, l.To)
}
