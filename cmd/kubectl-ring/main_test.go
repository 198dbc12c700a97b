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
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/cmd/kubectl-ring/cluster"
	"k8s.io/kubernetes/pkg/ringtable"
	"k8s.io/utils/ptr"
)

func instance(name, ring string) runtime.Object {
	return &shardingv1alpha1.ControllerInstance{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid", ResourceVersion: "1", Generation: 1},
		Spec:       shardingv1alpha1.ControllerInstanceSpec{Ring: ring, HashKey: ptr.To[shardingv1alpha1.HashKey](math.MaxInt64)},
		Status:     shardingv1alpha1.ControllerInstanceStatus{Phase: shardingv1alpha1.InstanceActive},
	}
}

func TestRunOnce(t *testing.T) {
	a, b := instance("workloads-a", "workloads"), instance("claims-b", "claims")
	for _, tc := range []struct {
		name      string
		instances []runtime.Object
		rings     []string
		options   tableOptions
		want, not []string
	}{
		{name: "nobody", want: []string{"No ring has instances.\n"}},
		{name: "one ring", instances: []runtime.Object{a}, want: []string{"workloads-a  Active", "AGE"}, not: []string{"workloads:"}},
		{name: "all rings", instances: []runtime.Object{a, b}, want: []string{"claims:\n", "claims-b ", "workloads:\n", "workloads-a "}},
		{name: "one of two", instances: []runtime.Object{a, b}, rings: []string{"claims"}, want: []string{"claims-b "}, not: []string{"workloads-a "}},
		{name: "one that is not there", instances: []runtime.Object{a}, rings: []string{"claims"}, want: []string{"ring claims has no instance", "Rings with instances: workloads\n"}},
		{name: "pods are not counted", instances: []runtime.Object{a}, not: []string{"PODS"}},
		{name: "pods are counted", instances: []runtime.Object{a}, options: tableOptions{count: true}, want: []string{"PODS READY", "0 of 0 pods ready"}},
		{name: "JSON", instances: []runtime.Object{a, b}, options: tableOptions{output: "json"}, want: []string{"{\n  \"rings\": [\n", `"name": "workloads-a"`, `"name": "claims"`}},
		{name: "YAML", instances: []runtime.Object{a}, options: tableOptions{output: "yaml"}, want: []string{"rings:\n- imbalance: 0\n  instances:\n", "name: workloads-a\n"}},
		{name: "nobody, in JSON", options: tableOptions{output: "json"}, want: []string{`"rings": []`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, read := outputFile(t)
			if err := run(t.Context(), fake.NewClientset(tc.instances...), ringtable.NewScreen(out), tc.rings, tc.options); err != nil {
				t.Fatal(err)
			}
			got := read()
			for _, want := range tc.want {
				if !strings.Contains(got, want) {
					t.Errorf("no %q in\n%s", want, got)
				}
			}
			for _, not := range tc.not {
				if strings.Contains(got, not) {
					t.Errorf("%q in\n%s", not, got)
				}
			}
		})
	}
}

func TestARingThatNobodyKnowsIsAnError(t *testing.T) {
	for want, instances := range map[string][]runtime.Object{
		"there is no ring statsu, and no such command; rings with instances: workloads": {instance("a", "workloads")},
		"there is no ring statsu, and no such command; no ring has instances":           nil,
	} {
		out, read := outputFile(t)
		err := run(t.Context(), fake.NewClientset(instances...), ringtable.NewScreen(out), []string{"statsu"}, tableOptions{})
		if err == nil || err.Error() != want || read() != "" {
			t.Errorf("got %v, and %q", err, read())
		}
	}
}

func TestUsageNamesThePlugin(t *testing.T) {
	commands := newCommand().Commands()
	for _, c := range commands {
		commands = append(commands, c.Commands()...)
	}
	for _, c := range commands {
		if usage := c.UseLine(); !strings.HasPrefix(usage, "kubectl ring ") {
			t.Errorf("usage: %s", usage)
		}
	}
}

func TestAMistypedCommandIsAnError(t *testing.T) {
	command := newCommand()
	command.SetArgs([]string{"blance", "workloads"})
	command.SilenceErrors, command.SilenceUsage = true, true
	if err := command.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "there is no command blance") {
		t.Errorf("got %v", err)
	}
}

func TestOptionsThatDoNotFit(t *testing.T) {
	for _, tc := range []struct {
		options tableOptions
		want    string
	}{
		{tableOptions{output: "xml"}, `--output is "xml", want json, yaml or wide`},
		{tableOptions{output: "json", watch: true}, "--watch shows tables"},
	} {
		if err := tc.options.check(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want an error with %q", tc.options, err, tc.want)
		}
	}
}

// A table costs what the instances cost: nothing else is read unless it is asked for.
func TestNothingElseIsReadUnlessPodsAreCounted(t *testing.T) {
	client := fake.NewClientset(instance("a", "workloads"))
	out, _ := outputFile(t)
	if err := run(t.Context(), client, ringtable.NewScreen(out), nil, tableOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, a := range client.Actions() {
		if a.GetResource().Resource != "controllerinstances" {
			t.Errorf("%s %s", a.GetVerb(), a.GetResource().Resource)
		}
	}
}

// TestRunWatch: a new instance appears in the table, and the end of the context is not
// an error.
func TestRunWatch(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client := fake.NewClientset(instance("a", "workloads"))
	out, read := outputFile(t)
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, client, ringtable.NewScreen(out), nil, tableOptions{watch: true, contact: &cluster.Contact{}})
	}()

	for _, wait := range []string{"1 instance,", "2 instances,"} {
		for !strings.Contains(read(), wait) {
			select {
			case err := <-ended:
				t.Fatalf("ended with %v and no %q in\n%s", err, wait, read())
			case <-time.After(10 * time.Millisecond):
			}
		}
		if wait == "1 instance," {
			b := instance("b", "workloads").(*shardingv1alpha1.ControllerInstance)
			if _, err := client.ShardingV1alpha1().ControllerInstances().Create(ctx, b, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
	if strings.Contains(read(), "AGE") {
		t.Errorf("ages in output that is not a terminal:\n%s", read())
	}
}

func outputFile(t *testing.T) (*os.File, func() string) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	return out, func() string {
		content, err := os.ReadFile(out.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
}
