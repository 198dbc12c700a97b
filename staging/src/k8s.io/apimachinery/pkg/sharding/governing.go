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
	"cmp"

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
)

// GoverningKeys returns the names of all paths in spec.governs of a ControllerInstance.
func GoverningKeys() []string {
	var names []string
	for _, row := range keyPaths {
		names = append(names, row.governs)
	}
	return names
}

// Keys are the keys of an object at one moment, by which a write of it is judged. The zero value
// is that of no object.
type Keys struct {
	own int64
	// found has what keyOf finds for each path.
	found [NumKeyPaths]struct {
		key int64
		ok  bool
	}
}

// KeysOf returns the keys that obj has now. It fails for an object without metadata.
func KeysOf(obj runtime.Object) (Keys, error) {
	keyed, err := hashKeyedFrom(obj)
	if err != nil {
		return Keys{}, err
	}
	keys := Keys{own: hashkey.OfUID(keyed.GetUID())}
	for p := range keyPaths {
		keys.found[p].key, keys.found[p].ok = keyPaths[p].keyOf(keyed)
	}
	return keys, nil
}

// Governing returns the n keys that an instance has to own to make of an object with the keys
// before one with the keys after: those of both at the path that by, one of GoverningKeys, names.
// Where neither has one, and the path is not optional, it is the object's own. An unknown name has
// none.
func Governing(by string, before, after Keys) (keys [2]int64, n int) {
	for p := range keyPaths {
		row := &keyPaths[p]
		if row.governs != by {
			continue
		}
		for _, object := range [...]*Keys{&before, &after} {
			if found := object.found[p]; found.ok {
				keys[n] = found.key
				n++
			}
		}
		if n == 0 && !row.optional {
			keys[0], n = cmp.Or(after, before).own, 1
		}
	}
	return keys, n
}
