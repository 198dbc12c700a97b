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
	"math/rand/v2"
	"strings"
	"testing"
)

func TestApply(t *testing.T) {
	const hunk = "@@ -2,3 +2,4 @@\n b\n c\n+new\n d\n"
	tests := map[string]struct {
		file, hunks string
		want        string
		moved       string // the output of describe
		failed      string // the text of the first failure
	}{
		"in place":                    {file: "a b c d e", hunks: hunk, want: "a b c new d e"},
		"at other lines":              {file: "x y a b c d e", hunks: hunk, want: "x y a b c new d e", moved: "hunk 1 by +2 lines"},
		"earlier":                     {file: "b c d e", hunks: hunk, want: "b c new d e", moved: "hunk 1 by -1 lines"},
		"at the nearest of two":       {file: "b c d x x x b c d", hunks: strings.Replace(hunk, "-2", "-6", 1), want: "b c d x x x b c new d", moved: "hunk 1 by +1 lines"},
		"never with fuzz":             {file: "a b c x e", hunks: hunk, failed: "line 4, which is\n\tx\nand should be\n\td"},
		"past the end":                {file: "a b c", hunks: hunk, failed: "line 4, which is\n\tthe end of the file\nand should be\n\td"},
		"deleted lines have to match": {file: "a b c", hunks: "@@ -2 +2 @@\n-x\n+y\n", failed: "hunk 1 of 1"},
		"two hunks":                   {file: "a b c d e", hunks: "@@ -1,2 +1 @@\n a\n-b\n@@ -4,2 +3,3 @@\n d\n+new\n e\n", want: "a c d new e"},
		"hunks keep their order":      {file: "d e a b", hunks: "@@ -1,2 +1 @@\n a\n-b\n@@ -4,2 +3,3 @@\n d\n+new\n e\n", failed: "hunk 2 of 2"},
		"the second follows the first": {
			file: "x x x x a b 7 8 9 10 c d 13 c d", hunks: "@@ -1,2 +1,3 @@\n a\n+one\n b\n@@ -10,2 +11,3 @@\n c\n+two\n d\n",
			want: "x x x x a one b 7 8 9 10 c d 13 c two d", moved: "hunk 1 by +4 lines, hunk 2 by +4 lines",
		},
		"into an empty file": {file: "", hunks: "@@ -0,0 +1,2 @@\n+a\n+b\n", want: "a b"},
		"to an empty file":   {file: "a b", hunks: "@@ -1,2 +0,0 @@\n-a\n-b\n", want: ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p, err := parsePatch([]byte("--- a/f\n+++ b/f\n" + test.hunks))
			if err != nil {
				t.Fatal(err)
			}
			got, moved, failed := p.apply([]byte(words(test.file)))
			if test.failed != "" {
				if len(failed) == 0 || !strings.Contains(failed[0].Error(), test.failed) {
					t.Fatalf("failures are %v, should say %q", failed, test.failed)
				}
				return
			}
			if len(failed) > 0 || string(got) != words(test.want) || describe(moved) != test.moved {
				t.Errorf("got %q, moved %q, failed %v; want %q, moved %q", got, describe(moved), failed, words(test.want), test.moved)
			}
		})
	}
}

// words makes each word a line.
func words(s string) string {
	if s == "" {
		return ""
	}
	return strings.ReplaceAll(s, " ", "\n") + "\n"
}

func TestParsePatchRefuses(t *testing.T) {
	tests := map[string]string{
		"":                   "no --- and +++",
		"--- a/f\n":          "no --- and +++",
		"--- a/f\n+++ b/f\n": "no hunks",
		"--- a/f\n+++ b/g\n@@ -1 +1 @@\n-a\n+b\n":                                    "one file",
		"--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+a\n":                                "one file",
		"--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n":                                    "ends early",
		"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n+c\n":                                "want a hunk",
		"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n*b\n":                                    "want a line",
		"--- a/f\n+++ b/f\n@@ -x +1 @@\n-a\n+b\n":                                    "-start,count",
		"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n--- a/g\n+++ b/g\n@@ -1 +1 @@\n-a\n": "want a hunk",
	}
	for text, want := range tests {
		if _, err := parsePatch([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error is %v, should say %q", text, err, want)
		}
	}
}

// A diff by git of two files turns the first into the second.
func TestApplyWhatGitWrites(t *testing.T) {
	g := git{t.TempDir()}
	if _, err := g.run("init", "-q"); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	before, after := map[string]*file{}, map[string]*file{}
	for i := range 300 {
		path := "dir with blanks/" + string(rune('a'+i%26)) + strings.Repeat("x", i/26)
		old := randomText(random, nil)
		before[path], after[path] = &file{data: []byte(strings.Join(old, ""))}, &file{data: []byte(strings.Join(randomText(random, old), ""))}
	}
	from, err := g.commit("", "before", each(before))
	must(t, err)
	to, err := g.commit(from, "after", each(after))
	must(t, err)
	patches, err := g.patches(from, to)
	must(t, err)
	for path, old := range before {
		text, changed := patches[path]
		if !changed {
			if !old.equal(after[path]) {
				t.Errorf("%s: no patch", path)
			}
			continue
		}
		p, err := parsePatch(text)
		if err != nil {
			t.Errorf("%v in\n%s", err, text)
			continue
		}
		got, moved, failed := p.apply(old.data)
		if string(got) != string(after[path].data) || len(moved) > 0 || len(failed) > 0 {
			t.Errorf("%q with\n%s\nis %q, moved %v, failed %v", old.data, text, got, moved, failed)
		}
	}
}

func each(files map[string]*file) func(func(string, *file) bool) {
	return func(yield func(string, *file) bool) {
		for path, f := range files {
			if !yield(path, f) {
				return
			}
		}
	}
}

// randomText returns random lines, or changes from. Many lines are equal, some look like
// those of a patch, and the last may lack its newline.
func randomText(random *rand.Rand, from []string) []string {
	some := []string{"a\n", "b\n", "\n", "-- a\n", "++ b\n", "@@ -1 +1 @@\n", "diff --git a/a b/a\n", "\\ No newline\n", "c\r\n", "\t\n"}
	text := append([]string(nil), from...)
	if from == nil {
		for range random.IntN(60) {
			text = append(text, some[random.IntN(len(some))])
		}
	}
	for range random.IntN(6) {
		i := random.IntN(len(text) + 1)
		if random.IntN(2) == 0 || i == len(text) {
			text = append(text[:i], append([]string{some[random.IntN(len(some))]}, text[i:]...)...)
		} else {
			text = append(text[:i], text[i+1:]...)
		}
	}
	for i := range text[:max(len(text)-1, 0)] {
		if !strings.HasSuffix(text[i], "\n") {
			text[i] += "\n"
		}
	}
	if n := len(text); n > 0 && random.IntN(3) == 0 && text[n-1] != "\n" {
		text[n-1] = strings.TrimSuffix(text[n-1], "\n")
	}
	return text
}
