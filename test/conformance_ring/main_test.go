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
	"testing"

	"k8s.io/kubernetes/pkg/localcluster"
)

// TestReplicaSetController runs the suite on a controller that keeps the rules.
func TestReplicaSetController(t *testing.T) {
	bin := os.Getenv("RINGMASTER_BIN")
	if bin == "" {
		bin = filepath.Join("..", "..", "..", "bin")
	}
	if _, err := os.Stat(filepath.Join(bin, string(localcluster.KubeAPIServer))); err != nil {
		t.Skipf("the binaries are missing (%v): run `make build`, or name their folder in RINGMASTER_BIN", err)
	}
	o := options{
		config: filepath.Join("testdata", "replicaset.yaml"), bin: bin, dir: filepath.Join(t.TempDir(), "conformance"),
		only: "join,leave,stop,move,apiserver-restart", replicas: 3, faults: 5, seed: 1,
	}
	total, err := o.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range total.violations {
		t.Errorf("%s: %s", v.rule, v.text)
	}
	if total.times != o.faults || total.writes == 0 {
		t.Errorf("%s, want %d faults and some writes", total.closing(), o.faults)
	}
}

func TestClosing(t *testing.T) {
	r := result{times: 100, tally: tally{writes: 12_345}}
	if got, want := r.closing(), "100 faults, 12,345 writes judged, 0 violations"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
