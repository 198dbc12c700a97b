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

package audit

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestReadFollowsALogThatGrows(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	type event struct{ Verb string }
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan string)
	done := make(chan error)
	go func() { done <- Read(ctx, file, func(e event) { got <- e.Verb }) }()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	write := func(s string) {
		if _, err := f.WriteString(s); err != nil {
			t.Fatal(err)
		}
	}
	var verbs []string
	write(`{"kind":"Event","apiVersion":"v1","verb":"create"}` + "\n" + `{"kind":"Event","apiVersion":"v1","ve`)
	verbs = append(verbs, <-got)
	// The server was killed amid a line.
	write(`{"kind":"Event","apiVersion":"v1","verb":"update"}` + "\n" + `{"kind":"Event",`)
	verbs = append(verbs, <-got)
	write(`"apiVersion":"v1","verb":"delete"}` + "\n")
	verbs = append(verbs, <-got)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if want := []string{"create", "update", "delete"}; !slices.Equal(verbs, want) {
		t.Errorf("got %q, want %q", verbs, want)
	}
}

func TestReadAllEndsWithTheLogOrTheFirstError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	const log = `{"verb":"update","user":{"username":"system:serviceaccount:kube-system:c"},"objectRef":{"resource":"pods","subresource":"status"}}
{"verb":"delete","user":{"username":"admin"},"objectRef":{"resource":"pods"}}
`
	read := func(content string) (got []string, err error) {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		err = ReadAll(file, func(e Event) error {
			got = append(got, e.Controller()+" "+e.Verb+" "+e.What())
			return nil
		})
		return got, err
	}
	want := []string{"c update pods/status", "admin delete pods"}
	if got, err := read(log); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if got, err := read(log + `{"verb":`); err == nil || !slices.Equal(got, want) {
		t.Errorf("half a line: got %q, %v, want %q and an error", got, err, want)
	}
}
