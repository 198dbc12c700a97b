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
}

var binaries = []binary{
	{"etcd", "go.etcd.io/etcd/server/v3", false},
	{"kwok", "sigs.k8s.io/kwok/cmd/kwok", false},
	{"kube-apiserver", "./cmd/kube-apiserver", true},
	{"kube-controller-manager", "./cmd/kube-controller-manager", true},
	{"kube-scheduler", "./cmd/kube-scheduler", true},
	{"kubectl", "./cmd/kubectl", true},
	{"kubectl-ring", "./cmd/kubectl-ring", true},
	{"local-up-cluster", "./cmd/local-up-cluster", true},
}

// build builds the named binaries into _output/bin. If none is named, it builds all, and makes
// the tree's OpenAPI and discovery files with them.
func (h *house) build(names []string) error {
	for _, name := range names {
		if !slices.ContainsFunc(binaries, func(b binary) bool { return b.name == name }) {
			return fmt.Errorf("there is no binary %q; choose from: %s", name, binaryNames())
		}
	}
	if _, err := h.tree.commits(); err != nil {
		return err
	}
	flags, err := h.versionFlags()
	if err != nil {
		return err
	}
	for _, b := range binaries {
		if len(names) > 0 && !slices.Contains(names, b.name) {
			continue
		}
		h.say("building %s", b.name)
		started := time.Now()
		args := []string{"build", "-trimpath", "-buildvcs=false", "-o", filepath.Join(h.root, "_output", "bin", b.name)}
		dir := h.root
		if b.inTree {
			args, dir = append(args, "-ldflags", flags), h.tree.dir
		}
		cmd := exec.Command("go", append(args, b.pkg)...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("building %s: %w", b.name, err)
		}
		h.say("built %s in %.1f s", b.name, time.Since(started).Seconds())
		if b.name == "kwok" {
			if err := h.writeStages(); err != nil {
				return err
			}
		}
	}
	if len(names) > 0 {
		return nil
	}
	return runCodegen(h.root, h.tree.dir, "-api", filepath.Join(h.root, "_output", "bin"))
}

func binaryNames() string {
	var names []string
	for _, b := range binaries {
		names = append(names, b.name)
	}
	return strings.Join(names, ", ")
}

// versionFlags returns the linker flags that set the version of the binaries. The date is
// the commit's, so the same source always gives the same bytes.
func (h *house) versionFlags() (string, error) {
	u, err := h.pinned()
	if err != nil {
		return "", err
	}
	number, commit, date := "0", "unknown", time.Unix(0, 0).UTC()
	g := git{h.root}
	if _, err := g.run("rev-parse", "-q", "--verify", "HEAD"); err == nil {
		number, err = g.run("rev-list", "--count", "HEAD")
		if err != nil {
			return "", err
		}
		out, err := g.run("log", "-1", "--format=%H %cI")
		if err != nil {
			return "", err
		}
		var at string
		commit, at, _ = strings.Cut(strings.TrimSpace(out), " ")
		if date, err = time.Parse(time.RFC3339, at); err != nil {
			return "", err
		}
	}
	clean, err := h.clean()
	if err != nil {
		return "", err
	}
	state := "clean"
	if !clean {
		state = "dirty"
	}
	version := strings.Split(strings.TrimPrefix(u.version, "v"), ".")
	values := []struct{ name, value string }{
		{"buildDate", date.UTC().Format(time.RFC3339)},
		{"gitCommit", commit},
		{"gitTreeState", state},
		{"gitVersion", u.version + "+ringmaster." + strings.TrimSpace(number)},
		{"gitMajor", version[0]},
		{"gitMinor", version[1]},
	}
	var flags []string
	for _, v := range values {
		for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
			flags = append(flags, fmt.Sprintf("-X %s.%s=%s", pkg, v.name, v.value))
		}
	}
	return strings.Join(flags, " "), nil
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
