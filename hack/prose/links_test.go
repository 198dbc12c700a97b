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

package prose

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

var (
	// link is a link of Markdown within the repository, and mention a page or drawing in any text.
	link    = regexp.MustCompile(`\]\(([^)#: ]*)(#[^) ]*)?\)`)
	mention = regexp.MustCompile(`(?:^|[^\w./-])(docs/[\w./-]+\.(?:md|svg|yaml))\b`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	dropped = regexp.MustCompile(`[^\w\- ]`)
)

func TestLinksLeadSomewhere(t *testing.T) {
	all := files(t, "")
	for name, content := range all {
		if strings.HasSuffix(name, ".md") {
			for line, text := range withoutCode(content) {
				for _, to := range link.FindAllStringSubmatch(text, -1) {
					target := name
					if to[1] != "" {
						target = path.Join(path.Dir(name), to[1])
					}
					if page, ok := all[target]; !ok || to[2] != "" && !strings.Contains(anchors(page), to[2]+"\n") {
						t.Errorf("%s:%d: there is no %s%s", name, line, to[1], to[2])
					}
				}
			}
		}
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, to := range mention.FindAllStringSubmatch(content, -1) {
			if _, ok := all[to[1]]; !ok {
				t.Errorf("%s: there is no %s", name, to[1])
			}
		}
	}
}

// anchors returns what links can name of a page, a line each, as GitHub makes it of the headings.
func anchors(page string) string {
	var b strings.Builder
	for _, h := range heading.FindAllStringSubmatch(page, -1) {
		b.WriteString("#" + strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-") + "\n")
	}
	return b.String()
}
