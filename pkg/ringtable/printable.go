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

package ringtable

import (
	"io"
	"reflect"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/client-go/tools/ring"
)

// Printable returns a writer for people, which writes to out what ring.PrintableLines makes of a
// text.
func Printable(out io.Writer) io.Writer { return printable{out} }

type printable struct{ out io.Writer }

func (p printable) Write(text []byte) (int, error) {
	if _, err := io.WriteString(p.out, ring.PrintableLines(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// makePrintable makes all texts of an instance printable: people see most of them, and a valid name
// is.
func makePrintable(i *shardingv1alpha1.ControllerInstance) {
	i.Name = ring.Printable(i.Name)
	makeTextsPrintable(reflect.ValueOf(&i.Spec))
	makeTextsPrintable(reflect.ValueOf(&i.Status))
}

func makeTextsPrintable(value reflect.Value) {
	switch value.Kind() {
	case reflect.Pointer:
		if !value.IsNil() {
			makeTextsPrintable(value.Elem())
		}
	case reflect.Struct:
		for n := range value.NumField() {
			makeTextsPrintable(value.Field(n))
		}
	case reflect.Slice:
		for n := range value.Len() {
			makeTextsPrintable(value.Index(n))
		}
	case reflect.String:
		if value.CanSet() {
			value.SetString(ring.Printable(value.String()))
		}
	}
}
