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

package ownership

import (
	"slices"
	"testing"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The instance with the lowest key also owns what lies above the highest.
func TestOwner(t *testing.T) {
	records := Records{"new": {Spec: shardingv1alpha1.ControllerInstanceSpec{Ring: "ring"}}}
	add := func(name, ring string, key shardingv1alpha1.HashKey) {
		records[name] = &shardingv1alpha1.ControllerInstance{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: shardingv1alpha1.ControllerInstanceSpec{Ring: ring, HashKey: &key},
		}
	}
	add("low", "ring", 10)
	add("high", "ring", 20)
	add("of another ring", "other", 15)
	for key, want := range map[int64]string{0: "low", 10: "low", 11: "high", 20: "high", 21: "low"} {
		if got := records.Owner("ring", key).Name; got != want {
			t.Errorf("key %d is owned by %s, want %s", key, got, want)
		}
	}
	if got := records.Owner("nobody's", 0); got != nil {
		t.Errorf("%s owns a key of a ring without instances", got.Name)
	}
}

// Of two with the same key the one with the lower name owns it, and the other nothing.
func TestOwnerOfAKeyThatTwoHave(t *testing.T) {
	v := Of([]Part{{Name: "b", Key: 1}, {Name: "a", Key: 1}, {Name: "c", Key: 0}})
	for key, want := range map[int64]string{0: "c", 1: "a", 2: "c"} {
		if got, ok := v.Owner(key); !ok || got.Name != want {
			t.Errorf("key %d is owned by %s, want %s", key, got.Name, want)
		}
	}
}

func TestWith(t *testing.T) {
	v := Of([]Part{{Name: "a", Key: 1}, {Name: "b", Key: 2}})
	if got, want := v.With(Part{Name: "a", Key: 3}), (View{{Name: "b", Key: 2}, {Name: "a", Key: 3}}); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if want := (View{{Name: "a", Key: 1}, {Name: "b", Key: 2}}); !slices.Equal(v, want) {
		t.Errorf("the view itself became %v, want %v", v, want)
	}
}

func TestPID(t *testing.T) {
	for holder, want := range map[string]int{"host:10257_12_abc": 12, "a_host_13_abc": 13, "host": 0, "host_12": 0, "host_x_abc": 0} {
		if got, ok := PID(holder); got != want || ok != (want > 0) {
			t.Errorf("%s: got %d, %t, want %d", holder, got, ok, want)
		}
	}
}
