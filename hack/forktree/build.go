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
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// binary is a program to build, in the tree or in another module that go.mod pins.
type binary struct {
	name, pkg string
	inTree    bool
	// onlyReleased says that no cluster on this machine needs it.
	onlyReleased bool
}

var binaries = []binary{
	{"etcd", "go.etcd.io/etcd/server/v3", false, false},
	{"etcdutl", "go.etcd.io/etcd/etcdutl/v3", false, false},
	{"kwok", "sigs.k8s.io/kwok/cmd/kwok", false, false},
	{"kube-apiserver", "./cmd/kube-apiserver", true, false},
	{"kube-controller-manager", "./cmd/kube-controller-manager", true, false},
	{"kube-scheduler", "./cmd/kube-scheduler", true, false},
	{"kubectl", "./cmd/kubectl", true, false},
	{"kubectl-ring", "./cmd/kubectl-ring", true, false},
	{"local-up-cluster", "./cmd/local-up-cluster", true, false},
	{"kubeadm", "./cmd/kubeadm", true, true},
	{"kubelet", "./cmd/kubelet", true, true},
}

// build makes the tree, and builds the named binaries into _output/bin. If none is named, it builds
// all but those that only a release has, and makes the tree's OpenAPI and discovery files with
// them.
func (h *house) build(names []string) error {
	chosen, err := choose(names, func(b binary) bool { return !b.onlyReleased })
	if err != nil {
		return err
	}
	inTree, others := split(chosen)
	into := filepath.Join(h.root, "_output", "bin")
	// Making the tree leaves a processor idle for most of its time.
	beside := make(chan error, 1)
	go func() { beside <- h.buildOthers(others, into) }()
	if err := errors.Join(h.make(), <-beside); err != nil || len(inTree) == 0 {
		return err
	}
	v, err := h.version()
	if err != nil {
		return err
	}
	if err := h.compile(inTree, h.tree.dir, into, nil, "-buildvcs=false", "-ldflags", noDebugger+v.flags()); err != nil {
		return err
	}
	if len(names) > 0 {
		return nil
	}
	return runCodegen(h.root, h.tree.dir, "-api", into)
}

// split divides binaries into those of the tree and the others.
func split(binaries []binary) (inTree, others []binary) {
	for _, b := range binaries {
		if b.inTree {
			inTree = append(inTree, b)
		} else {
			others = append(others, b)
		}
	}
	return inTree, others
}

// buildOthers builds binaries of the modules that go.mod pins.
func (h *house) buildOthers(others []binary, into string) error {
	for _, b := range others {
		if err := h.compile([]binary{b}, h.root, into, nil, "-buildvcs=false", "-ldflags", noDebugger); err != nil {
			return err
		}
		if b.name == "kwok" {
			if err := h.writeStages(); err != nil {
				return err
			}
		}
	}
	return nil
}

// choose returns the binaries of these names, or those that are meant if there are none.
func choose(names []string, meant func(binary) bool) (chosen []binary, err error) {
	for _, name := range names {
		if !slices.ContainsFunc(binaries, func(b binary) bool { return b.name == name }) {
			return nil, fmt.Errorf("there is no binary %q; choose from: %s", name, binaryNames())
		}
	}
	for _, b := range binaries {
		if slices.Contains(names, b.name) || len(names) == 0 && meant(b) {
			chosen = append(chosen, b)
		}
	}
	return chosen, nil
}

// noDebugger leaves out what only debuggers read, as upstream's own build does. It is a third of
// the linker's work; profiles and stack traces do without.
const noDebugger = "-w "

// patience is how often compile says that it is not done.
const patience = 30 * time.Second

// compile builds binaries of the source in a folder into another one. The linker needs one
// processor for each, so they are built together.
func (h *house) compile(all []binary, source, into string, env []string, args ...string) error {
	var names, pkgs []string
	for _, b := range all {
		names, pkgs = append(names, b.name), append(pkgs, b.pkg)
	}
	what := strings.Join(names, ", ")
	h.say("building %s into %s", what, filepath.Base(into))
	started := time.Now()
	// A folder that exists; then each binary is named for its package.
	target := into + string(filepath.Separator)
	if len(all) == 1 {
		target = filepath.Join(into, names[0])
	}
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	cmd := exec.Command("go", slices.Concat([]string{"build", "-trimpath", "-o", target}, args, pkgs)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = source, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("building %s: %w", what, err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case err := <-done:
			if err != nil {
				return fmt.Errorf("building %s: %w", what, err)
			}
			h.say("built %s in %.1f s", what, time.Since(started).Seconds())
			return nil
		case <-time.After(patience):
			h.say("still building %s, for %.0f s now; everything the first time takes minutes", what, time.Since(started).Seconds())
		}
	}
}

func binaryNames() string {
	var names []string
	for _, b := range binaries {
		names = append(names, b.name)
	}
	return strings.Join(names, ", ")
}

// version is that of what is built. The date is the commit's, so the same source always has the
// same.
type version struct {
	// Version is upstream's with a number that rises with each commit, such as v1.37.2+ringmaster.42,
	// Upstream is upstream's alone.
	Version  string    `json:"version"`
	Upstream string    `json:"upstream"`
	Commit   string    `json:"commit"`
	Date     time.Time `json:"date"`
	// State is clean, or dirty if anything is uncommitted or the tree has edits.
	State string `json:"state"`
}

// version returns the version of what would be built now.
func (h *house) version() (*version, error) {
	u, err := h.pinned()
	if err != nil {
		return nil, err
	}
	v := &version{Upstream: u.version, Commit: "unknown", Date: time.Unix(0, 0).UTC(), State: "clean"}
	number := "0"
	g := git{h.root}
	if _, err := g.run("rev-parse", "-q", "--verify", "HEAD"); err == nil {
		number, err = g.run("rev-list", "--count", "HEAD")
		if err != nil {
			return nil, err
		}
		out, err := g.run("log", "-1", "--format=%H %cI")
		if err != nil {
			return nil, err
		}
		var at string
		v.Commit, at, _ = strings.Cut(strings.TrimSpace(out), " ")
		date, err := time.Parse(time.RFC3339, at)
		if err != nil {
			return nil, err
		}
		v.Date = date.UTC()
	}
	v.Version = u.version + "+ringmaster." + strings.TrimSpace(number)
	clean, err := h.clean()
	if err != nil {
		return nil, err
	}
	if !clean {
		v.State = "dirty"
	}
	return v, nil
}

// flags returns the linker flags that set it.
func (v *version) flags() string {
	numbers := strings.Split(strings.TrimPrefix(v.Upstream, "v"), ".")
	values := []struct{ name, value string }{
		{"buildDate", v.Date.Format(time.RFC3339)},
		{"gitCommit", v.Commit},
		{"gitTreeState", v.State},
		{"gitVersion", v.Version},
		{"gitMajor", numbers[0]},
		{"gitMinor", numbers[1]},
	}
	var flags []string
	for _, v := range values {
		for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
			flags = append(flags, fmt.Sprintf("-X %s.%s=%s", pkg, v.name, v.value))
		}
	}
	return strings.Join(flags, " ")
}

// printVersion prints the version of what would be built now, as JSON.
func (h *house) printVersion() error {
	v, err := h.version()
	if err != nil {
		return err
	}
	return json.NewEncoder(h.out).Encode(v)
}

// clean reports whether the binaries are built from exactly the repository's last commit.
func (h *house) clean() (bool, error) {
	changed, err := git{h.root}.run("status", "--porcelain")
	if err != nil || changed != "" {
		return false, err
	}
	v, err := h.view()
	if err != nil {
		return false, err
	}
	return len(v.edits) == 0, nil
}

// stages are the files of kwok's module that define the life cycle of nodes and pods.
var stages = []string{"node/fast", "node/heartbeat-with-lease", "pod/fast"}

// writeStages joins kwok's stages into _output/kwok/stages.yaml, as kwok reads one file.
func (h *house) writeStages() error {
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok")
	cmd.Dir = h.root
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go list: %w", withStderr(err))
	}
	var all [][]byte
	for _, stage := range stages {
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "kustomize", "stage", stage, "*.yaml"))
		if err != nil {
			return err
		}
		for _, path := range files {
			if filepath.Base(path) == "kustomization.yaml" {
				continue
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			all = append(all, data)
		}
	}
	if len(all) == 0 {
		return errors.New("kwok's module has no stages in kustomize/stage")
	}
	path := filepath.Join(h.root, "_output", "kwok", "stages.yaml")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, bytes.Join(all, []byte("---\n")), 0o644)
}
