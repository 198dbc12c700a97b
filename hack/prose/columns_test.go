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

// Package prose has no code: its tests check the comments and the documentation of this repository.
package prose

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// root is the repository.
const root = "../.."

// files returns the content of the repository's files that have this suffix, by path.
func files(t *testing.T, suffix string) map[string]string {
	t.Helper()
	all := map[string]string{}
	if err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "_output" || d.Name() == ".git"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, suffix):
			return nil
		}
		content, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, root+"/")] = string(content)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// columns is how many a line of comments or Markdown may have. A tab counts as one.
const columns = 100

func TestLinesOfCommentsAndMarkdownFit(t *testing.T) {
	for suffix, prose := range map[string]func(string) map[int]string{
		".go": ofGo, ".sh": ofShell, ".md": ofMarkdown, ".go.patch": addedTo("//"), ".sh.patch": addedTo("#"),
	} {
		for path, content := range files(t, suffix) {
			for line, text := range prose(content) {
				if tooLong(text) {
					t.Errorf("%s:%d has %d columns, and may have %d", path, line, utf8.RuneCountInString(text), columns)
				}
			}
		}
	}
}

// tooLong says whether the line has to be wrapped: one with a link may not be able to.
func tooLong(line string) bool {
	return utf8.RuneCountInString(line) > columns && !strings.Contains(line, "://")
}

// ofGo returns the lines of Go that have only a comment, by number, without code in comments.
func ofGo(content string) map[int]string {
	var s scanner.Scanner
	fset := token.NewFileSet()
	file := fset.AddFile("", fset.Base(), len(content))
	s.Init(file, []byte(content), func(token.Position, string) {}, scanner.ScanComments)
	lines, found := strings.Split(content, "\n"), map[int]string{}
	for {
		at, kind, text := s.Scan()
		if kind == token.EOF {
			return found
		}
		if kind != token.COMMENT {
			continue
		}
		first := file.Line(at)
		for line := first; line <= first+strings.Count(text, "\n"); line++ {
			whole := strings.TrimLeft(lines[line-1], "\t")
			if alone := line > first || strings.HasPrefix(whole, "/"); alone && !strings.HasPrefix(whole, "//\t") {
				found[line] = lines[line-1]
			}
		}
	}
}

// ofShell returns the lines of a script that have only a comment, by number.
func ofShell(content string) map[int]string {
	return linesThat(content, func(line string) bool { return strings.HasPrefix(strings.TrimLeft(line, " \t"), "#") })
}

// ofMarkdown returns the lines of Markdown by number, without tables and code.
func ofMarkdown(content string) map[int]string {
	found := withoutCode(content)
	maps.DeleteFunc(found, func(_ int, line string) bool { return strings.HasPrefix(line, "|") })
	return found
}

// withoutCode returns the lines of Markdown by number, without code.
func withoutCode(content string) map[int]string {
	fenced := false
	return linesThat(content, func(line string) bool {
		fence := strings.HasPrefix(strings.TrimLeft(line, " "), "```")
		if fence {
			fenced = !fenced
		}
		return !fence && !fenced && !strings.HasPrefix(line, "    ")
	})
}

// addedTo returns what finds the lines of a patch that add only a comment, by number.
func addedTo(comment string) func(content string) map[int]string {
	added := regexp.MustCompile(`^\+[ \t]*` + comment + ` `)
	return func(content string) map[int]string {
		found := linesThat(content, added.MatchString)
		for line, text := range found {
			found[line] = strings.TrimPrefix(text, "+")
		}
		return found
	}
}

// linesThat returns the lines that are wanted, by number.
func linesThat(content string, wanted func(line string) bool) map[int]string {
	found := map[int]string{}
	for i, line := range strings.Split(content, "\n") {
		if wanted(line) {
			found[i+1] = line
		}
	}
	return found
}

func TestWhatCountsAsProse(t *testing.T) {
	for name, tc := range map[string]struct {
		prose   func(string) map[int]string
		content string
		want    []int
	}{
		"Go":            {ofGo, "/*\nlicense\n*/\n\n// a\npackage a // b\n\nfunc f() {\n\t// c\n\t_ = `\n// no\n`\n}\n//\tcode\n", []int{1, 2, 3, 5, 9}},
		"a script":      {ofShell, "#!/bin/sh\n  # a\necho # no\n", []int{1, 2}},
		"Markdown":      {ofMarkdown, "a\n| no |\n    no\n```\nno\n```\n- b", []int{1, 7}},
		"a patch of Go": {addedTo("//"), "+++ b/a.go\n // no\n-// no\n+\t// a\n+b() // no\n", []int{4}},
	} {
		var got []int
		for line, text := range tc.prose(tc.content) {
			if text != "" {
				got = append(got, line)
			}
		}
		if slices.Sort(got); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got the lines %v, want %v", name, got, tc.want)
		}
	}
	for line, want := range map[string]bool{
		strings.Repeat("é", columns):                 false,
		strings.Repeat("é", columns) + ".":           true,
		"// https://" + strings.Repeat("a", columns): false,
	} {
		if got := tooLong(line); got != want {
			t.Errorf("tooLong(%q) is %t", line, got)
		}
	}
}
