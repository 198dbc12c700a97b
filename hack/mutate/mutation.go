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
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The folders of the packages, in the tree.
const (
	ring     = "staging/src/k8s.io/client-go/tools/ring"
	balance  = ring + "/balance"
	follower = "staging/src/k8s.io/client-go/tools/rangewatch/follower"
	history  = "staging/src/k8s.io/apiserver/pkg/storage/etcd3/history"
)

// mutations returns the mutations of all packages.
func mutations() []mutation {
	return slices.Concat(in(ring, ringMutations), in(balance, balanceMutations), in(follower, followerMutations), in(history, historyMutations))
}

func in(folder string, mutations []change) []mutation {
	var all []mutation
	for _, c := range mutations {
		all = append(all, mutation{folder, c})
	}
	return all
}

// foldersOf returns the folders of mutations.
func foldersOf(mutations []mutation) []string {
	var folders []string
	for _, m := range mutations {
		if !slices.Contains(folders, m.folder) {
			folders = append(folders, m.folder)
		}
	}
	return folders
}

// mutation is a change to the package in folder.
type mutation struct {
	folder string
	change
}

// change breaks a package in one place.
type change struct {
	// name says what the mutant does wrong.
	name string
	// file of the package holds old exactly once. The mutant has new there.
	file, old, new string
}

// mutate returns the mutant's text.
func (m change) mutate(text string) (string, error) {
	if n := strings.Count(text, m.old); n != 1 {
		return "", fmt.Errorf("%s: %s holds this text %d times, want once: %s", m.name, m.file, n, m.old)
	}
	return strings.Replace(text, m.old, m.new, 1), nil
}

// overlay writes the mutant of a file of the package to the folder temp, and returns the
// name of the file there that go test takes as -overlay.
func (m change) overlay(pkg, temp string) (string, error) {
	original := filepath.Join(pkg, m.file)
	text, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	mutant, err := m.mutate(string(text))
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(temp, 0o755); err != nil {
		return "", err
	}
	replaced := filepath.Join(temp, m.file)
	content, err := json.Marshal(map[string]any{"Replace": map[string]string{original: replaced}})
	if err != nil {
		return "", err
	}
	name := filepath.Join(temp, "overlay.json")
	if err := os.WriteFile(replaced, []byte(mutant), 0o644); err != nil {
		return "", err
	}
	return name, os.WriteFile(name, content, 0o644)
}
