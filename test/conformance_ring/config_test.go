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

const good = `
ring: machines
controller: machine-controller
user: system:serviceaccount:machines:operator
command: [bin/manager, --port=$(PORT)]
workload:
  count: 6
  object: {apiVersion: example.com/v1, kind: Machine, spec: {running: false}}
  patches: ['{"spec":{"running":true}}']
dependents:
- {apiVersion: v1, kind: Pod, want: '{.spec.running}'}
- {apiVersion: v1, kind: PersistentVolumeClaim, want: 2}
settled:
- {path: '{.status.phase}', is: Ready}
`

func readText(t *testing.T, content string) (*config, error) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return read(file)
}

func TestConfig(t *testing.T) {
	c, err := readText(t, good)
	if err != nil {
		t.Fatal(err)
	}
	machine := map[string]any{"spec": map[string]any{"running": true}, "status": map[string]any{"phase": "Ready"}}
	for i, want := range []int{1, 2} {
		if got, err := c.Dependents[i].want.number(machine); err != nil || got != want {
			t.Errorf("dependents[%d]: wants %d, %v, want %d", i, got, err, want)
		}
		if got, err := c.Dependents[i].want.number(map[string]any{}); err != nil || got != []int{0, 2}[i] {
			t.Errorf("dependents[%d]: wants %d, %v, of an empty object", i, got, err)
		}
	}
	if s := c.Settled[0]; s.path.of(machine) != s.is.of(machine) {
		t.Errorf("%s is not %s", s.path.of(machine), s.is.of(machine))
	}
	if _, err := c.Dependents[0].want.number(map[string]any{"spec": map[string]any{"running": "often"}}); err == nil || !strings.Contains(err.Error(), `{.spec.running} is "often", want a number from 0, true or false`) {
		t.Errorf("got %v", err)
	}
}

func TestConfigIsStrict(t *testing.T) {
	for name, test := range map[string]struct{ old, new, want string }{
		"unknown field":          {"ring:", "rings:", `unknown field "rings"`},
		"unknown field, nested":  {"count: 6", "counts: 6", `unknown field "counts"`},
		"field given twice":      {"ring: machines", "ring: machines\nring: machines", "already set"},
		"no ring":                {"ring: machines", "", "ring: \"\": name the ring"},
		"bad controller":         {"machine-controller", "Machine_Controller", "controller: \"Machine_Controller\": name the controller"},
		"no user":                {"user: system:serviceaccount:machines:operator", "", "user: is missing"},
		"no command":             {"command: [bin/manager, --port=$(PORT)]", "", "command: is missing"},
		"a manifest that is not": {"ring:", "manifests: [none.yaml]\nring:", "none.yaml: no such file"},
		"all controllers":        {"ring:", "controllers: ['*']\nring:", "name each controller"},
		"count":                  {"count: 6", "count: 0", "workload.count: is 0, want 1 to 1000"},
		"a name":                 {"spec: {running: false}", "metadata: {name: m}", "leave metadata.name"},
		"no kind":                {"kind: Machine, ", "", "apiVersion or kind is missing"},
		"no patch":               {`['{"spec":{"running":true}}']`, "[]", "give at least one merge patch"},
		"bad patch":              {`'{"spec":{"running":true}}'`, `'{'`, "is no merge patch in JSON"},
		"a patch of the name":    {`{"spec":{"running":true}}`, `{"metadata":{"name":"m"}}`, "they cannot change"},
		"a kind twice":           {"kind: PersistentVolumeClaim", "kind: Pod", "Pod is there twice"},
		"bad path":               {"{.spec.running}", "{.spec", "is no JSONPath"},
		"a bad want":             {"want: 2", "want: [2]", "neither a text nor a number"},
		"nothing to compare":     {"is: Ready", "is: ''", "settled[0].is: is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(good, test.old) {
				t.Fatalf("the configuration has no %q", test.old)
			}
			_, err := readText(t, strings.Replace(good, test.old, test.new, 1))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

func TestTestdataIsValid(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "-rights.yaml") {
			continue
		}
		if _, err := read(file); err != nil {
			t.Error(err)
		}
	}
}
