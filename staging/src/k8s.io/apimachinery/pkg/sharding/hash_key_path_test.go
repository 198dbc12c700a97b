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

package sharding

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestKeyPathsParseToThemselves(t *testing.T) {
	for p := range NumKeyPaths {
		if got, ok := ParseKeyPath(p.String()); !ok || got != p {
			t.Errorf("ParseKeyPath(%q) = %d, %t; want %d", p, got, ok, p)
		}
	}
	for _, fieldPath := range []string{"", "object.metadata.uid", "metadata.hashKey"} {
		if got, ok := ParseKeyPath(fieldPath); ok {
			t.Errorf("ParseKeyPath(%q) = %v, want none", fieldPath, got)
		}
	}
}

func TestKeyPathsReadTheirKeys(t *testing.T) {
	for _, tc := range []struct {
		fieldPath string
		obj       runtime.Object
		key       int64
		found     bool
	}{
		{HashKeyPath, keyed(), ownKey, true},
		{HashKeyPath, orphan(), ownKey, true},
		{ControllerHashKeyPath, keyed(), controllerKey, true},
		{ControllerHashKeyPath, orphan(), 0, false},
	} {
		path, ok := ParseKeyPath(tc.fieldPath)
		if !ok {
			t.Fatalf("%q is not a key path", tc.fieldPath)
		}
		for _, obj := range []runtime.Object{tc.obj, asUnstructured(t, tc.obj.(*testObject))} {
			key, found, err := path.KeyOf(obj)
			if err != nil || key != tc.key || found != tc.found {
				t.Errorf("%s of a %T: %d, %t, %v; want %d, %t", path, obj, key, found, err, tc.key, tc.found)
			}
		}
	}
}

func TestOnlyOptionalKeysCanBeMissing(t *testing.T) {
	for p := range NumKeyPaths {
		if _, found, err := p.KeyOf(&testObject{}); err != nil || found == p.Optional() {
			t.Errorf("%s of an object without references: found %t, %v; optional: %t", p, found, err, p.Optional())
		}
		if _, found, err := p.KeyOf(&metav1.Status{}); err == nil {
			t.Errorf("%s of an object without metadata: found %t and no error", p, found)
		}
	}
}
