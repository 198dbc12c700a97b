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
	"io"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/cmd/kubectl-ring/cluster"
	"k8s.io/kubernetes/pkg/ringtable"
	"sigs.k8s.io/yaml"
)

// hostile clears the screen, forges a line, turns the direction of writing, begins a control
// sequence with one rune, and is no UTF-8.
const hostile = "x\x1b[2J\x07\r\nFORGED: all is well\u202e\u2066\u009b31m\xff"

// fill sets all strings of a value.
func fill(value reflect.Value) {
	switch value.Kind() {
	case reflect.Pointer:
		if !value.IsNil() {
			fill(value.Elem())
		}
	case reflect.Struct:
		for n := range value.NumField() {
			fill(value.Field(n))
		}
	case reflect.Slice:
		for n := range value.Len() {
			fill(value.Index(n))
		}
	case reflect.String:
		if value.CanSet() {
			value.SetString(hostile)
		}
	}
}

func TestNoTextReachesTheTerminalAsItIs(t *testing.T) {
	record := instance("a", "x").(*shardingv1alpha1.ControllerInstance)
	record.Spec.Controllers, record.Spec.Governs = []string{"", ""}, make([]shardingv1alpha1.Governs, 1)
	record.Status.Controllers, record.Status.Gives = make([]shardingv1alpha1.ControllerState, 2), &shardingv1alpha1.Gift{}
	fill(reflect.ValueOf(&record.Spec))
	fill(reflect.ValueOf(&record.Status))
	record.Spec.Balance = shardingv1alpha1.BalanceDisabled
	record.Name = hostile
	event := &v1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "e", Namespace: metav1.NamespaceDefault},
		InvolvedObject: v1.ObjectReference{Kind: "ControllerInstance", Name: hostile}, Reason: hostile, Message: hostile,
	}
	for name, command := range map[string]func(client *fake.Clientset, out io.Writer) error{
		"status": func(client *fake.Clientset, out io.Writer) error {
			_ = status(t.Context(), client, nil, 0, out)
			return nil
		},
		"balance": func(client *fake.Clientset, out io.Writer) error {
			return printBalance(t.Context(), client, nil, "", out)
		},
		"balance -o json": func(client *fake.Clientset, out io.Writer) error {
			return printBalance(t.Context(), client, nil, "json", out)
		},
		"history": func(client *fake.Clientset, out io.Writer) error { return history(t.Context(), client, nil, out) },
		"table":   table(t, tableOptions{}), "wide": table(t, tableOptions{output: "wide"}),
		"-o json": table(t, tableOptions{output: "json"}), "-o yaml": table(t, tableOptions{output: "yaml"}),
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := command(fake.NewClientset([]runtime.Object{record.DeepCopy(), event}...), &out); err != nil {
				t.Fatal(err)
			}
			text := out.String()
			if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) || strings.Contains(text, "\nFORGED") {
				t.Errorf("got %q", text)
			}
			if !strings.Contains(text, "FORGED") {
				t.Errorf("the text is not there at all: %s", text)
			}
		})
	}
}

func table(t *testing.T, o tableOptions) func(*fake.Clientset, io.Writer) error {
	return func(client *fake.Clientset, out io.Writer) error {
		file, read := outputFile(t)
		o.contact = &cluster.Contact{}
		if err := run(t.Context(), client, ringtable.NewScreen(file), nil, o); err != nil {
			return err
		}
		_, err := io.WriteString(out, read())
		return err
	}
}

// Programs get the same text, however it is escaped.
func TestEscapedOutputMeansTheSame(t *testing.T) {
	want := strings.ToValidUTF8(hostile, "\ufffd")
	for _, format := range []string{"json", "yaml"} {
		text, err := marshal([]string{hostile}, format)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string][]string
		decode := json.Unmarshal
		if format == "yaml" {
			decode = func(data []byte, into any) error { return yaml.Unmarshal(data, into) }
		}
		if err := decode([]byte(text), &got); err != nil || len(got["rings"]) != 1 || got["rings"][0] != want {
			t.Errorf("%s: %s means %q, %v; want %q", format, text, got, err, want)
		}
	}
}
