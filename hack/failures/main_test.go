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
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const list = `# a comment

quota TestLiteral # compares with a literal
quota TestMended # was broken
client TestOf/one_[part] # of a part
client TestMany/v1/* # of many parts
cache reads # what stock cannot either
other TestOfAnother # not in this run
`

const results = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites>
  <testsuite name="a">
    <testcase classname="quota" name="TestFine"/>
    <testcase classname="quota" name="TestSkipped"><skipped/></testcase>
    <testcase classname="quota" name="TestLiteral"><failure>` + "\x1b[31m" + `red</failure></testcase>
    <testcase classname="quota" name="TestMended"></testcase>
  </testsuite>
  <testsuite name="b">
    <testcase classname="client" name="TestOf"><failure/></testcase>
    <testcase classname="client" name="TestOf/one_[part]"><failure/></testcase>
    <testcase classname="client" name="TestOf/another"/>
    <testcase classname="client" name="TestMany/v1/fails"><failure/></testcase>
    <testcase classname="client" name="TestMany/v1/passes"/>
    <testcase classname="client" name="TestTwice"><failure/></testcase>
    <testcase classname="client" name="TestTwice"/>
  </testsuite>
</testsuites>`

func suite(cases ...string) string {
	return "<testsuites><testsuite>" + strings.Join(cases, "") + "</testsuite></testsuites>"
}

func TestRun(t *testing.T) {
	for name, test := range map[string]struct {
		ours, stock string
		want        string
		err         bool
	}{
		"expected failures": {
			ours: results,
			want: `failed as listed: client TestMany/v1/fails # of many parts
failed as listed: client TestOf/one_[part] # of a part
failed as listed: quota TestLiteral # compares with a literal
passed, though listed: quota TestMended
8 tests, 3 failed, 0 unexpected
`,
		},
		"an unexpected failure": {
			ours: suite(`<testcase classname="quota" name="TestNew"><failure/></testcase>`),
			want: "FAILED, NOT LISTED: quota TestNew\n1 tests, 1 failed, 1 unexpected\n",
			err:  true,
		},
		"another part": {
			ours: suite(`<testcase classname="client" name="TestMany/v2/fails"><failure/></testcase>`),
			want: "FAILED, NOT LISTED: client TestMany/v2/fails\n1 tests, 1 failed, 1 unexpected\n",
			err:  true,
		},
		"an error is a failure": {
			ours: suite(`<testcase classname="quota" name="TestNew"><error/></testcase>`),
			want: "FAILED, NOT LISTED: quota TestNew\n1 tests, 1 failed, 1 unexpected\n",
			err:  true,
		},
		"failures with stock": {
			ours: suite(`<testcase classname="s" name="both"><failure/></testcase>`,
				`<testcase classname="s" name="ours"><failure/></testcase>`, `<testcase classname="s" name="theirs"/>`),
			stock: suite(`<testcase classname="s" name="both"><failure/></testcase>`, `<testcase classname="s" name="ours"/>`,
				`<testcase classname="s" name="theirs"><failure/></testcase>`, `<testcase classname="s" name="lost"/>`),
			want: `failed with stock, too: s both
FAILED, NOT LISTED: s ours
RAN WITH STOCK ONLY: s lost
failed with stock only: s theirs
3 tests, 2 failed, 2 unexpected
`,
			err: true,
		},
		"a broken file": {ours: "<testsuites><testsuite>", err: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "list"), list)
			write(t, filepath.Join(dir, "ours", "a.xml"), test.ours)
			var stock []string
			if test.stock != "" {
				stock = []string{filepath.Join(dir, "stock")}
				write(t, filepath.Join(stock[0], "a.xml"), test.stock)
			}
			var out strings.Builder
			err := run(&out, filepath.Join(dir, "list"), filepath.Join(dir, "ours"), stock...)
			if out.String() != test.want || (err != nil) != test.err {
				t.Errorf("got error %v and\n%swant\n%s", err, &out, test.want)
			}
		})
	}
}

func TestNoResultsAreAnError(t *testing.T) {
	if _, err := readResults(t.TempDir()); err == nil {
		t.Error("no error")
	}
}

func TestAListedTestNeedsAReason(t *testing.T) {
	file := filepath.Join(t.TempDir(), "list")
	write(t, file, "quota TestLiteral\n")
	if _, err := readList(file); err == nil || !strings.Contains(err.Error(), "TestLiteral") {
		t.Errorf("got error %v", err)
	}
}

func TestTheListCanBeRead(t *testing.T) {
	if _, err := readList(filepath.Join("..", "upstream-failures.txt")); err != nil {
		t.Error(err)
	}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
}
