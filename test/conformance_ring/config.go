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
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"
)

// config says how to run an operator, what to give it to do, and when it has done it. Paths of
// files are relative to the folder of the configuration file, which is also where the operator
// runs.
type config struct {
	// Ring is the ring that the operator's processes take part in: spec.ring of their records.
	Ring string `json:"ring"`
	// Controller is the controller whose writes are judged: one of spec.controllers of the records.
	Controller string `json:"controller"`
	// User is the user as whom each process gets a client certificate of its own. The groups of a
	// service account, system:serviceaccount:NAMESPACE:NAME, come with the name.
	User string `json:"user"`
	// Command starts one process of the operator. In it $(KUBECONFIG) is a kubeconfig of the
	// process, which the environment variable KUBECONFIG names too, $(PORT) a port of 127.0.0.1
	// that is free, another one for each process, and $(BIN) the folder with Kubernetes' binaries.
	// A program with a slash in its name is looked for from the configuration's folder, else in
	// PATH.
	Command []string `json:"command"`
	// Manifests are files with the objects that the operator needs, such as its
	// CustomResourceDefinition and the roles of its user. They are applied in order, by an
	// administrator. Optional.
	Manifests []string `json:"manifests,omitempty"`
	// Controllers are controllers of kube-controller-manager, such as
	// garbage-collector-controller, that one process runs beside the operator. Optional: without
	// any, there is no kube-controller-manager.
	Controllers []string `json:"controllers,omitempty"`
	// Workload is what the operator works on.
	Workload workloadConfig `json:"workload"`
	// Dependents are what a workload owns by a controller reference. Optional; without them only
	// who writes is judged, not what.
	Dependents []dependentConfig `json:"dependents,omitempty"`
	// Settled has what must hold of a workload when the operator has nothing left to do for it.
	// Optional: a workload has what it wants once as many dependents live as it wants.
	Settled []condition `json:"settled,omitempty"`

	// dir is the folder of the configuration file.
	dir string
}

// workloadConfig says what the workloads are, and how they change.
type workloadConfig struct {
	// Count is how many there are at most, 1 to 1000. Under load they are created and deleted,
	// and there are never less than half of them for long.
	Count int `json:"count"`
	// Object is one of them, without a name, which each is given. Its namespace has to exist.
	Object map[string]any `json:"object"`
	// Patches are merge patches, as JSON. Under load, one at random is applied to one of the
	// workloads at random. They should change how many dependents are wanted, or nothing that
	// makes the operator replace one.
	Patches []string `json:"patches"`
}

// dependentConfig says which objects a workload owns, and how many of them.
type dependentConfig struct {
	// APIVersion and Kind are those of the dependents.
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Want is how many the workload wants: a number, or a JSONPath of the workload, whose value is
	// a number, true for 1, or false for 0. A value that is missing is 0.
	Want text `json:"want"`

	want *path
}

// condition compares two values of a workload. A number is a number, true is 1, and what is
// false, empty or missing is 0; all else is text.
type condition struct {
	// Path and Is are text, with JSONPaths of the workload in braces, such as
	// {.status.observedGeneration}.
	Path text `json:"path"`
	Is   text `json:"is"`

	path, is *path
}

// text is a string that may be written as a number or a bool.
type text string

// UnmarshalJSON implements json.Unmarshaler.
func (t *text) UnmarshalJSON(data []byte) error {
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return err
	}
	switch value.(type) {
	case string, float64, bool:
		*t = text(fmt.Sprint(value))
		return nil
	}
	return fmt.Errorf("%s is neither a text nor a number", data)
}

// path reads a value from objects.
type path struct {
	text     string
	template *jsonpath.JSONPath
}

func newPath(t text) (*path, error) {
	p := &path{text: string(t), template: jsonpath.New("").AllowMissingKeys(true)}
	if t == "" {
		return nil, errors.New("is empty")
	}
	if err := p.template.Parse(p.text); err != nil {
		return nil, fmt.Errorf("%q is no JSONPath such as {.spec.replicas}: %w", t, err)
	}
	return p, nil
}

// of returns the value of an object: true is 1; what is false or missing is 0.
func (p *path) of(object map[string]any) string {
	var out bytes.Buffer
	if err := p.template.Execute(&out, object); err != nil {
		return err.Error()
	}
	switch s := out.String(); s {
	case "", "false":
		return "0"
	case "true":
		return "1"
	default:
		return s
	}
}

// number returns the value of an object, or an error if it is none from 0.
func (p *path) number(object map[string]any) (int, error) {
	var n int
	if s := p.of(object); !isNumber(s, &n) {
		return 0, fmt.Errorf("dependents: want: %s is %q, want a number from 0, true or false", p.text, s)
	}
	return n, nil
}

func isNumber(s string, n *int) bool {
	_, err := fmt.Sscanf(s, "%d", n)
	return err == nil && fmt.Sprint(*n) == s && *n >= 0
}

// kind returns the kind of the workloads.
func (w *workloadConfig) kind() schema.GroupVersionKind {
	return (&unstructured.Unstructured{Object: w.Object}).GroupVersionKind()
}

func (d *dependentConfig) kind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(d.APIVersion, d.Kind)
}

// read returns the configuration in a file. It refuses fields that it does not know.
func read(file string) (*config, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	c := &config{}
	if err := yaml.UnmarshalStrict(content, c); err != nil {
		text := strings.TrimPrefix(err.Error(), "error unmarshaling JSON: while decoding JSON: json: ")
		return nil, fmt.Errorf("%s: %s; docs/guides/conformance.md lists the fields", file, text)
	}
	if c.dir, err = filepath.Abs(filepath.Dir(file)); err != nil {
		return nil, err
	}
	if problems := c.check(); len(problems) > 0 {
		return nil, fmt.Errorf("%s:\n  %s", file, strings.Join(problems, "\n  "))
	}
	return c, nil
}

// check says what is wrong with the configuration, and what to do about it. It compiles the paths.
func (c *config) check() (problems []string) {
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if errs := validation.IsDNS1123Label(c.Ring); len(errs) > 0 {
		wrong("ring: %q: name the ring that the operator's records have in spec.ring: %s", c.Ring, errs[0])
	}
	if errs := validation.IsDNS1123Label(c.Controller); len(errs) > 0 {
		wrong("controller: %q: name the controller that the operator's records have in spec.controllers: %s", c.Controller, errs[0])
	}
	if c.User == "" {
		wrong("user: is missing: name the user as whom the operator runs, such as system:serviceaccount:NAMESPACE:NAME")
	}
	if len(c.Command) == 0 || c.Command[0] == "" {
		wrong("command: is missing: give the program that starts one process of the operator, and its arguments")
	}
	for _, file := range c.Manifests {
		if _, err := readManifest(c.file(file)); err != nil {
			wrong("manifests: %v", err)
		}
	}
	for _, name := range c.Controllers {
		if name == "" || strings.ContainsAny(name, ",*") {
			wrong("controllers: %q: name each controller of kube-controller-manager by itself, such as garbage-collector-controller", name)
		}
	}
	c.Workload.check(wrong)
	for i := range c.Dependents {
		d := &c.Dependents[i]
		at := fmt.Sprintf("dependents[%d]", i)
		checkKind(at, d.kind(), wrong)
		if slices.ContainsFunc(c.Dependents[:i], func(other dependentConfig) bool { return other.kind().GroupKind() == d.kind().GroupKind() }) {
			wrong("%s: %s is there twice: give the sum of what a workload wants of it once", at, d.Kind)
		}
		var err error
		if d.want, err = newPath(d.Want); err != nil {
			wrong("%s.want: %v: say how many the workload wants, by a number or a JSONPath such as {.spec.replicas}", at, err)
		}
	}
	for i := range c.Settled {
		s := &c.Settled[i]
		for field, t := range map[string]text{"path": s.Path, "is": s.Is} {
			p, err := newPath(t)
			if err != nil {
				wrong("settled[%d].%s: %v: give what is to be compared, such as {.status.observedGeneration}", i, field, err)
			}
			if field == "path" {
				s.path = p
			} else {
				s.is = p
			}
		}
	}
	return problems
}

func (w *workloadConfig) check(wrong func(format string, args ...any)) {
	if w.Count < 1 || w.Count > 1000 {
		wrong("workload.count: is %d, want 1 to 1000", w.Count)
	}
	object := unstructured.Unstructured{Object: w.Object}
	if len(w.Object) == 0 {
		wrong("workload.object: is missing: give one workload, without a name")
	} else {
		checkKind("workload.object", w.kind(), wrong)
		if object.GetName() != "" || object.GetGenerateName() != "" {
			wrong("workload.object: leave metadata.name and metadata.generateName out: each workload is given a name")
		}
	}
	if len(w.Patches) == 0 {
		wrong("workload.patches: give at least one merge patch, such as '{\"spec\":{\"replicas\":2}}'")
	}
	for i, patch := range w.Patches {
		var value map[string]any
		if err := json.Unmarshal([]byte(patch), &value); err != nil {
			wrong("workload.patches[%d]: %q is no merge patch in JSON: %v", i, patch, err)
		} else if meta, ok := value["metadata"].(map[string]any); ok && (meta["name"] != nil || meta["namespace"] != nil) {
			wrong("workload.patches[%d]: leave metadata.name and metadata.namespace out: they cannot change", i)
		}
	}
}

func checkKind(at string, kind schema.GroupVersionKind, wrong func(format string, args ...any)) {
	if kind.Version == "" || kind.Kind == "" {
		wrong("%s: apiVersion or kind is missing, or apiVersion is not GROUP/VERSION or VERSION", at)
	}
}

// file returns the path of a file of the configuration.
func (c *config) file(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(c.dir, name)
}

// readManifest returns the objects in a file of YAML or JSON documents.
func readManifest(file string) (objects []*unstructured.Unstructured, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	documents := utilyaml.NewYAMLOrJSONDecoder(f, 4096)
	for {
		object := &unstructured.Unstructured{}
		err := documents.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if len(object.Object) == 0 {
			continue
		}
		if object.GetKind() == "" || object.GetAPIVersion() == "" || object.GetName() == "" {
			return nil, fmt.Errorf("%s: an object has no apiVersion, kind or metadata.name", file)
		}
		objects = append(objects, object)
	}
}

// controllerOf returns the UID of the object's controller; "" if it has none.
func controllerOf(o metav1.Object) string {
	if ref := metav1.GetControllerOfNoCopy(o); ref != nil {
		return string(ref.UID)
	}
	return ""
}
