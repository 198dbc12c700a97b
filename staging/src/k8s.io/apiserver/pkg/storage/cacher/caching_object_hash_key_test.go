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
)

// Events are filtered after their objects were wrapped, so the wrapper must match like the
// object in it, and as cheaply.
func TestHashKeysOfCachingObject(t *testing.T) {
	keyed := keyedVolume("team", "volume", "controller", "claim")
	bare := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{UID: "bare"}}
	for name, obj := range map[string]interface {
		runtime.Object
		metav1.Object
	}{
		"keyed":     keyed,
		"bare":      bare,
		"pod":       &v1.Pod{ObjectMeta: keyed.ObjectMeta},
		"namespace": &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", UID: "namespace"}},
	} {
		wrapped, err := newCachingObject(obj)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := metav1.HashKeyOf(wrapped), hashkey.OfUID(obj.GetUID()); got != want {
			t.Errorf("%s: HashKeyOf() = %x, want %x", name, got, want)
		}
		for path := range apisharding.NumKeyPaths {
			want, wantFound, err := path.KeyOf(obj)
			if err != nil {
				t.Fatal(err)
			}
			if key, found, err := path.KeyOf(wrapped); err != nil || key != want || found != wantFound {
				t.Errorf("%s: %s = %x, %t, %v; want %x, %t", name, path, key, found, err, want, wantFound)
			}
			if allocs := testing.AllocsPerRun(100, func() { _, _, _ = path.KeyOf(wrapped) }); allocs != 0 {
				t.Errorf("%s: %v allocations for the key at %s", name, allocs, path)
			}
		}
	}
}
