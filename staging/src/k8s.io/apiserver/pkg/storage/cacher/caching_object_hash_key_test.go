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

package cacher

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	apisharding "k8s.io/apimachinery/pkg/sharding"
	"k8s.io/utils/ptr"
)

// Events are filtered after their objects were wrapped, so the wrapper must match like the
// object in it, and as cheaply.
func TestHashKeysOfCachingObject(t *testing.T) {
	controller := metav1.OwnerReference{UID: "controller", Controller: ptr.To(true), HashKey: hashkey.OfUID("controller")}
	unkeyed := controller
	unkeyed.HashKey = 0
	for name, obj := range map[string]*v1.Pod{
		"keyed":     {ObjectMeta: metav1.ObjectMeta{UID: "pod", HashKey: hashkey.OfUID("pod"), OwnerReferences: []metav1.OwnerReference{controller}}},
		"no keys":   {ObjectMeta: metav1.ObjectMeta{UID: "pod", OwnerReferences: []metav1.OwnerReference{unkeyed}}},
		"no owners": {ObjectMeta: metav1.ObjectMeta{UID: "pod", HashKey: hashkey.OfUID("pod")}},
	} {
		wrapped, err := newCachingObject(obj)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := wrapped.GetHashKey(), obj.HashKey; got != want {
			t.Errorf("%s: GetHashKey() = %x, want %x", name, got, want)
		}
		if got, want := metav1.HashKeyOf(wrapped), hashkey.OfUID("pod"); got != want {
			t.Errorf("%s: HashKeyOf() = %x, want %x", name, got, want)
		}
		key, found := metav1.HashKeyOfController(wrapped)
		if wantFound := len(obj.OwnerReferences) > 0; found != wantFound || found && key != hashkey.OfUID("controller") {
			t.Errorf("%s: HashKeyOfController() = %x, %t", name, key, found)
		}

		for _, path := range []string{apisharding.HashKeyPath, apisharding.ControllerHashKeyPath} {
			selector := apisharding.NewSelector(apisharding.ShardRangeRequirement{Key: path, Start: "0x0000000000000000", End: "0x8000000000000000"})
			if matched, err := selector.Matches(runtime.Object(wrapped)); err != nil || !matched {
				t.Errorf("%s: the whole line of %s does not match: %t, %v", name, path, matched, err)
			}
			if allocs := testing.AllocsPerRun(100, func() { _, _ = selector.Matches(wrapped) }); allocs != 0 {
				t.Errorf("%s: %v allocations for a match on %s", name, allocs, path)
			}
		}
	}
}
