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
	"math"
	"strings"
	"testing"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
)

func TestUndrain(t *testing.T) {
	owner := registered(worker("owner", "workloads", math.MaxInt64), nil)
	waits := registered(worker("waits", "workloads", 0), func(i *shardingv1alpha1.ControllerInstance) { idle(i); drained(i) })
	other := registered(worker("other", "claims", 0), func(i *shardingv1alpha1.ControllerInstance) { idle(i); drained(i) })
	for name, tc := range map[string]struct {
		instances []runtime.Object
		instance  string
		says, err string
	}{
		"a drained one": {[]runtime.Object{owner, waits}, "waits", "waits is not drained any more, and joins ring workloads; follow it with:\n  kubectl ring workloads --watch\n", ""},
		"another":       {[]runtime.Object{owner, waits, other}, "owner", "owner is not drained; drained: other, waits\n", ""},
		"where none is": {[]runtime.Object{owner}, "owner", "owner is not drained; no instance is drained\n", ""},
		"a former name": {[]runtime.Object{owner, waits, other}, "former", "", `there is no ControllerInstance "former": one that is drained gets another name; drained: other, waits`},
		"nobody":        {nil, "former", "", `there is no ControllerInstance "former": one that is drained gets another name; no instance is drained`},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(tc.instances...)
			var out strings.Builder
			err := undrain(t.Context(), client, tc.instance, &out)
			if out.String() != tc.says || (err == nil) != (tc.err == "") || err != nil && err.Error() != tc.err {
				t.Errorf("got %q and %v, want %q and %q", out.String(), err, tc.says, tc.err)
			}
			for _, i := range tc.instances {
				i := i.(*shardingv1alpha1.ControllerInstance)
				got, err := records(client).Get(t.Context(), i.Name, metav1.GetOptions{})
				if want := i.Spec.Drained && i.Name != tc.instance; err != nil || got.Spec.Drained != want {
					t.Errorf("%s is drained: %t (%v), want %t", i.Name, got.Spec.Drained, err, want)
				}
			}
		})
	}
}
