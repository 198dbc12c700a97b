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
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"ringmaster/hack/rebase"
)

// compile makes a tree of the new version with all that applies, and compiles the packages that we
// have files in, with their tests.
func (r *rebasing) compile(string) error {
	s := r.compiled
	s.Untried = ""
	s.Do = "Errors of packages that we have files in, and of those that they import:"
	if n := len(r.overlay.problems); n > 0 {
		s.Do = fmt.Sprintf("%d patches or files that do not apply were left out, so what needs them does not compile either. %s", n, s.Do)
	}
	scratch := *r.house
	scratch.tree = &tree{dir: r.file("tree")}
	scratch.pinned = func() (*upstream, error) { return r.new, nil }
	scratch.leftOut = r.overlay.problems
	if err := scratch.make(); err != nil {
		s.Untried = fmt.Sprintf("nothing was compiled, as the tree in `%s` could not be made: %v", r.file("tree"), err)
		return nil
	}
	b := &compilation{house: r.house, dir: scratch.tree.dir, errors: map[string][]string{}}
	built, tested, err := b.list(packagesOf(r.overlay))
	if err != nil {
		s.Untried = fmt.Sprintf("nothing was compiled: %v", err)
		return nil
	}
	// Vet checks the types of tests, too. One analyzer is the least that it runs.
	for _, err := range []error{b.run([]string{"build", "-v"}, built), b.run([]string{"vet", "-atomic"}, tested)} {
		if err != nil {
			s.Untried += fmt.Sprintf("%v. ", err)
		}
	}
	s.Findings = append(s.Findings, b.findings(r.overlay)...)
	for _, m := range r.new.notServed {
		if why := b.lacks(m.path); why != "" {
			s.Untried += why + ". "
		}
	}
	return nil
}

// packagesOf returns the packages that we have Go files in, as folders.
func packagesOf(o *overlay) []string {
	folders := map[string]bool{}
	for path := range o.files {
		if strings.HasSuffix(path, ".go") && !strings.Contains(path, "/testdata/") {
			folders["./"+filepath.ToSlash(filepath.Dir(path))] = true
		}
	}
	return sorted(folders)
}

// compilation compiles packages of a tree and collects the errors.
type compilation struct {
	*house
	dir    string
	errors map[string][]string // by package
	absent map[string][]string // packages that were not tried, by what they lack
}

// list returns those of the packages whose imports are all there, but for commands, which would be
// linked, and those of which that is true of the tests, too, with commands. What the others lack is
// an error.
func (b *compilation) list(packages []string) (built, tested []string, err error) {
	cmd := exec.Command("go", append([]string{"list", "-e", "-test", "-json=ImportPath,Name,GoFiles,ForTest,Error,DepsErrors"}, packages...)...)
	cmd.Dir = b.dir
	out, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("go list: %w", withStderr(err))
	}
	b.absent = map[string][]string{}
	untested := map[string]bool{}
	for answers := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Name, ForTest string
			GoFiles                   []string
			Error                     *struct{ Err string }
			DepsErrors                []struct{ Err string }
		}
		if err := answers.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, nil, fmt.Errorf("go list: %w", err)
		}
		name := p.ImportPath
		isTest := p.ForTest != "" || strings.HasSuffix(name, ".test")
		if isTest {
			name = strings.TrimSuffix(name, ".test")
			if p.ForTest != "" {
				name = p.ForTest
			}
		}
		if p.Error != nil {
			p.DepsErrors = append(p.DepsErrors, *p.Error)
		}
		for _, e := range p.DepsErrors {
			text, _, _ := strings.Cut(e.Err, "\n")
			if !slices.Contains(b.absent[text], name) {
				b.absent[text] = append(b.absent[text], name)
			}
		}
		switch {
		case len(p.DepsErrors) > 0:
			untested[name] = true
		case !isTest:
			tested = append(tested, name)
			if p.Name != "main" && len(p.GoFiles) > 0 {
				built = append(built, name)
			}
		}
	}
	tested = slices.DeleteFunc(tested, func(name string) bool { return untested[name] })
	return built, tested, nil
}

// compileError is a line of an error with its place.
var compileError = regexp.MustCompile(`^(?:vet: )?(?:\./)?(\S+\.go):(\d+)(?::\d+)?: (.*)$`)

// run runs the go command, which names each package when it begins it, and says now and then how
// far it is.
func (b *compilation) run(args []string, packages []string) error {
	if len(packages) == 0 {
		return nil
	}
	what := args[0]
	cmd := exec.Command("go", slices.Concat(args, packages)...)
	cmd.Dir = b.dir
	out, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	b.say("go %s of %d packages, and of what they import: minutes the first time", what, len(packages))
	if err := cmd.Start(); err != nil {
		return err
	}
	var compiled atomic.Int64
	failed, started, done := false, time.Now(), make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(patience):
				count := ""
				if n := compiled.Load(); n > 0 { // vet names none
					count = fmt.Sprintf("; %d packages so far were not up to date", n)
				}
				b.say("still in go %s, for %.0f s now%s", what, time.Since(started).Seconds(), count)
			}
		}
	}()
	pkg, rest := "", []string(nil)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if name, isHeader := strings.CutPrefix(line, "# "); isHeader {
			pkg, _, _ = strings.Cut(strings.Trim(name, "[]"), " ")
			continue
		}
		if compileError.MatchString(line) {
			failed = true
			b.add(pkg, line)
			continue
		}
		if strings.ContainsAny(line, " \t:") {
			rest = append(rest, line)
			continue
		}
		compiled.Add(1)
	}
	if err := cmd.Wait(); err != nil && !failed {
		return fmt.Errorf("go %s: %w\n%s", what, err, strings.Join(rest, "\n"))
	}
	b.say("go %s is done after %.1f s", what, time.Since(started).Seconds())
	return nil
}

// add notes an error. The same comes again where a package is compiled for several others.
func (b *compilation) add(pkg, line string) {
	m := compileError.FindStringSubmatch(line)
	text := fmt.Sprintf("%s:%s: %s", strings.TrimPrefix(m[1], b.dir+"/"), m[2], m[3])
	if !slices.Contains(b.errors[pkg], text) {
		b.errors[pkg] = append(b.errors[pkg], text)
	}
}

// findings returns the errors by package.
func (b *compilation) findings(o *overlay) []rebase.Finding {
	var all []rebase.Finding
	for _, lack := range sorted(b.absent) {
		all = append(all, rebase.Finding{
			Text:   fmt.Sprintf("%d packages were not tried, or not their tests: `%s`", len(b.absent[lack]), lack),
			Detail: strings.Join(b.absent[lack], "\n") + "\n",
		})
	}
	for _, pkg := range sorted(b.errors) {
		whose := "upstream's alone"
		if slices.ContainsFunc(b.errors[pkg], func(text string) bool { return o.files[text[:strings.Index(text, ":")]] != nil }) {
			whose = "in a file of ours or a patched one"
		}
		all = append(all, rebase.Finding{Text: fmt.Sprintf("`%s`, %s", pkg, whose), Detail: strings.Join(b.errors[pkg], "\n") + "\n"})
	}
	return all
}

// lacks says which packages were not tried for want of a module, or "".
func (b *compilation) lacks(module string) string {
	names := map[string]bool{}
	for lack, packages := range b.absent {
		if strings.Contains(lack, module) {
			for _, name := range packages {
				names[name] = true
			}
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("%d packages import %s, which is not served", len(names), module)
}
