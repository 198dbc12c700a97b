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
	"bytes"
	"fmt"
	"regexp"
	"strings"
)

// shardingFolders hold upstream's sharded lists and watches (KEP-5866), which our ranges build on.
var shardingFolders = []string{staging + "k8s.io/apimachinery/pkg/sharding/", staging + "k8s.io/apiserver/pkg/sharding/"}

// shardingWords are how the rest of upstream names them.
var shardingWords = regexp.MustCompile(`(?i)shard(selector|info|range|edlist|ingselector)|\bsharding\.|KEP-?5866`)

// Sharding returns how upstream's sharded lists and watches changed.
func (c *Comparison) Sharding() (*Section, error) {
	s := &Section{
		Title: "upstream's shardSelector (KEP-5866)",
		Do:    "Our ranges are a selector of upstream's with paths of our own. See whether syntax, paths, what a list answers and what a server without the gate does are as docs/design.md (\"Ranges\") says. The gate is `ShardedListAndWatch`.",
	}
	for i := range c.Changes {
		change := &c.Changes[i]
		whole := false
		for _, folder := range shardingFolders {
			whole = whole || strings.HasPrefix(change.Path, folder)
		}
		if !whole && !strings.HasSuffix(change.Path, ".go") && !strings.HasPrefix(change.Path, "CHANGELOG/") {
			continue
		}
		if !whole && !mayShard(change.Old) && !mayShard(change.New) {
			continue
		}
		hunks, err := change.hunks()
		if err != nil {
			return nil, err
		}
		if whole {
			f := Finding{Text: fmt.Sprintf("`%s` (%s)", change.Path, change.size())}
			if isSource(change.Path) {
				f.Detail, f.Language = join(hunks), "diff"
			}
			s.Findings = append(s.Findings, f)
			continue
		}
		var lines []string
		for _, h := range hunks {
			for _, line := range h.changedLines() {
				if shardingWords.MatchString(line) {
					lines = append(lines, line)
				}
			}
		}
		if len(lines) > 0 {
			s.Findings = append(s.Findings, Finding{Text: fmt.Sprintf("`%s`, in lines that mention it:", change.Path), Detail: strings.Join(lines, "\n") + "\n", Language: "diff"})
		}
	}
	return s, nil
}

// mayShard reports whether shardingWords can match, at little cost.
func mayShard(text []byte) bool {
	text = bytes.ToLower(text)
	return bytes.Contains(text, []byte("shard")) || bytes.Contains(text, []byte("5866"))
}
