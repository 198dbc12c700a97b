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

// Command forktree makes the fork's tree from upstream and from this repository's files and
// patches. It also saves edits of the tree back into the repository.
//
// A file of the repository is a file of the tree, and `x.go.patch` changes upstream's `x.go`.
// The tree is a git repository of three commits:
//
//	upstream     unchanged upstream
//	ringmaster   upstream with the repository's files and patches
//	generated    that, with the output of the generators
//
// The reference refs/forktree/made names the last of them. A working file that differs from
// that commit is an unsaved edit, unless it is generated.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const usage = `usage: go run ./hack/forktree VERB

  make              make or update the tree in _output/kubernetes
  save              copy the edits of the tree into the repository
  check             check that every patch applies, without making the tree
  verify            check the round trip: make a scratch tree, save it, expect no diff
  rebase VERSION    report what another upstream version (v1.37.2) asks of this repository
  build [NAME...]   make the tree and build the binaries into _output/bin
  static PLATFORM [NAME...]
                    build them for a release, static, into _output/static/linux-arm64, say
  version           print the version of what would be built now, as JSON
`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "forktree:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("no verb given\n" + usage)
	}
	root, err := findRoot()
	if err != nil {
		return err
	}
	h := &house{
		root: root, tree: &tree{dir: filepath.Join(root, "_output", "kubernetes")}, out: os.Stdout, started: time.Now(),
		pinned:   func() (*upstream, error) { return pinned(root) },
		released: released,
		codegen:  func(tree string) error { return runCodegen(root, tree) },
	}
	verb, args := args[0], args[1:]
	verbs := map[string]struct {
		args int
		run  func() error
	}{
		"make":    {0, h.make},
		"save":    {0, h.save},
		"check":   {0, h.check},
		"verify":  {0, h.verify},
		"rebase":  {1, func() error { return h.rebase(args[0]) }},
		"build":   {len(args), func() error { return h.build(args) }},
		"static":  {max(1, len(args)), func() error { return h.static(args[0], args[1:]) }},
		"version": {0, h.printVersion},
	}
	do, known := verbs[verb]
	if !known {
		return fmt.Errorf("%q is no verb\n%s", verb, usage)
	}
	if len(args) != do.args {
		return fmt.Errorf("%s takes %d arguments, not %q\n%s", verb, do.args, strings.Join(args, " "), usage)
	}
	return do.run()
}

// findRoot returns the root of the repository: the nearest parent folder with hack/forktree.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "hack", "forktree")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%s is not within the repository: run this from its root", dir)
		}
	}
}

// runCodegen runs hack/codegen, which determines what to generate.
func runCodegen(root, tree string, flags ...string) error {
	cmd := exec.Command("go", append([]string{"run", "./hack/codegen", "-tree", tree}, flags...)...)
	var errs bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, os.Stdout, &errs
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w\n%s", err, bytes.TrimSpace(errs.Bytes()))
	}
	return nil
}
