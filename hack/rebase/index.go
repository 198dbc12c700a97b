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
	"path"
	"regexp"
	"slices"
	"strings"
)

var (
	aWord = regexp.MustCompile(`[A-Za-z0-9_]+`)
	aPath = regexp.MustCompile(`[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)+`)
)

// index says which files of ours name what. Of a patch, only the lines count that it adds or
// removes.
type index struct {
	words, paths map[string][]string
}

func (c *Comparison) index() *index {
	if c.indexed != nil {
		return c.indexed
	}
	c.indexed = &index{words: map[string][]string{}, paths: map[string][]string{}}
	for _, name := range sortedKeys(c.Ours) {
		if path.Base(name) == "go.sum" || strings.HasPrefix(name, "hack/rebase/") {
			continue
		}
		text := string(c.Ours[name])
		if strings.HasSuffix(name, ".patch") {
			text = changedText(text)
		} else if !strings.HasSuffix(name, "_test.go") {
			add(c.indexed.paths, aPath.FindAllString(text, -1), name)
		}
		add(c.indexed.words, aWord.FindAllString(text, -1), name)
	}
	return c.indexed
}

// add notes that a file has these texts, once each.
func add(to map[string][]string, texts []string, name string) {
	for _, text := range texts {
		text = strings.TrimRight(text, ".")
		if by := to[text]; len(by) == 0 || by[len(by)-1] != name {
			to[text] = append(by, name)
		}
	}
}

// changedText returns the lines that a patch adds or removes.
func changedText(patch string) string {
	var b strings.Builder
	for line := range strings.Lines(patch) {
		if line[0] == '+' || line[0] == '-' {
			b.WriteString(line)
		}
	}
	return b.String()
}

// quoted returns the names as Markdown, the first ten of them.
func quoted(names []string) string {
	rest := ""
	if len(names) > 10 {
		names, rest = names[:10], " and more"
	}
	return "`" + strings.Join(slices.Clone(names), "`, `") + "`" + rest
}
