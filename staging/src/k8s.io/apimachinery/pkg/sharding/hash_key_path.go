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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// HashKeyPath is the field path of an object's own hash key, metadata.hashKey.
	HashKeyPath = "object.metadata.hashKey"

	// ControllerHashKeyPath is the field path of the hash key of an object's
	// controller: the hashKey of the owner reference with controller: true.
	ControllerHashKeyPath = "object.metadata.controllerRef.hashKey"
)

// keyPaths defines every path of hash keys. To add a path, add its entry.
var keyPaths = [...]struct {
	// fieldPath names the path in selectors.
	fieldPath string
	// optional says that objects may lack this key.
	optional bool
	// keyOf reads the key of an object. It must not allocate.
	keyOf func(runtime.Object) (key int64, found bool, err error)
}{
	{fieldPath: HashKeyPath, keyOf: keyOfObject},
	{fieldPath: ControllerHashKeyPath, optional: true, keyOf: keyOfController},
}

// KeyPath is a path of hash keys: it says which key of an object a range is about.
// An object without the key is in every range of the path, since any instance may
// have to adopt it.
//
// Key paths count from 0 to NumKeyPaths-1, so they can index an array.
type KeyPath uint8

// NumKeyPaths is the number of key paths.
const NumKeyPaths = KeyPath(len(keyPaths))

// ParseKeyPath returns the key path that fieldPath names, and whether it names one.
func ParseKeyPath(fieldPath string) (KeyPath, bool) {
	for p := range NumKeyPaths {
		if p.String() == fieldPath {
			return p, true
		}
	}
	return 0, false
}

// String returns the field path that names p in selectors.
func (p KeyPath) String() string { return keyPaths[p].fieldPath }

// Optional says whether objects may lack this key.
func (p KeyPath) Optional() bool { return keyPaths[p].optional }

// KeyOf returns the key of obj at this path, and whether obj has one: only an
// Optional key can be missing. It fails for an object without metadata, which has no
// keys at all. It does not allocate for objects that carry their keys.
func (p KeyPath) KeyOf(obj runtime.Object) (key int64, found bool, err error) {
	return keyPaths[p].keyOf(obj)
}

func keyOfObject(obj runtime.Object) (int64, bool, error) {
	// Nearly all objects carry their key, and can be asked for it without an accessor.
	if keyed, ok := obj.(interface{ GetHashKey() int64 }); ok {
		if key := keyed.GetHashKey(); key != 0 {
			return key, true, nil
		}
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return 0, false, err
	}
	return metav1.HashKeyOf(accessor), true, nil
}

func keyOfController(obj runtime.Object) (int64, bool, error) {
	// Nearly all objects know their controller's key.
	if keyed, ok := obj.(metav1.ControllerHashKeyed); ok {
		key, found := keyed.GetControllerHashKey()
		return key, found, nil
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return 0, false, err
	}
	key, found := metav1.HashKeyOfController(accessor)
	return key, found, nil
}
