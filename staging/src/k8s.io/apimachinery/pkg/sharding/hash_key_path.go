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
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The field paths of hash keys, as selectors name them.
const (
	// HashKeyPath is the field path of KeyPathOwn.
	HashKeyPath = "object.metadata.hashKey"

	// ControllerHashKeyPath is the field path of KeyPathController.
	ControllerHashKeyPath = "object.metadata.controllerRef.hashKey"

	// HomeHashKeyPath is the field path of KeyPathHome.
	HomeHashKeyPath = "object.metadata.home.hashKey"

	// NamespaceHashKeyPath is the field path of KeyPathNamespace.
	NamespaceHashKeyPath = "object.metadata.namespace.hashKey"

	// ClaimHashKeyPath is the field path of KeyPathClaim. The API server serves it for
	// PersistentVolumes alone.
	ClaimHashKeyPath = "object.spec.claimRef.hashKey"
)

// KeyPath is a path of hash keys: it says which key of an object a range is about.
// An object without the key is in every range of the path, since any instance may
// have to adopt it. A field path is parsed once, where it comes in.
//
// Key paths count from 0 to NumKeyPaths-1, so they can index an array. All that sets one
// apart from the others is its row in keyPaths: nobody needs a case for each.
type KeyPath uint8

const (
	// KeyPathOwn is an object's own key, metadata.hashKey.
	KeyPathOwn KeyPath = iota

	// KeyPathController is the key of an object's controller: the hashKey of the owner
	// reference with controller: true. Optional.
	KeyPathController

	// KeyPathHome is the controller's key, or the object's own where it has no
	// controller. So disjoint ranges share out all objects, each exactly once.
	KeyPathHome

	// KeyPathNamespace is the key of the namespace that an object is in, and of a
	// Namespace that of its own name. Optional: other cluster-scoped objects have none.
	KeyPathNamespace

	// KeyPathClaim is the key of a PersistentVolume's claim, from the UID in
	// spec.claimRef. Optional: a volume may have no claim, or one without a UID yet, and
	// objects of other types have none.
	KeyPathClaim

	// NumKeyPaths is the number of key paths.
	NumKeyPaths
)

// keyPaths is the table of key paths.
var keyPaths = [NumKeyPaths]struct {
	// fieldPath names the path in selectors.
	fieldPath string
	// governs names the path in spec.governs of a ControllerInstance.
	governs string
	// keyOf returns the key of an object, and whether it has one.
	keyOf func(hashKeyed) (int64, bool)
	// optional says that objects may lack the key. Where they may not, an object for which
	// keyOf finds none has its own key in its place.
	optional bool
	// ofNamespace returns the key of all objects in a namespace, if its name tells it.
	ofNamespace func(name string) int64
	// only is the one resource whose objects have the key, if others have none.
	only schema.GroupResource
	// beyondMetadata is the one resource whose objects have the key outside their metadata.
	beyondMetadata schema.GroupResource
}{
	KeyPathOwn: {
		fieldPath: HashKeyPath,
		governs:   "Own",
		keyOf:     none,
	},
	KeyPathController: {
		fieldPath: ControllerHashKeyPath,
		governs:   "Controller",
		keyOf:     hashKeyed.GetControllerHashKey,
		optional:  true,
	},
	KeyPathHome: {
		fieldPath: HomeHashKeyPath,
		governs:   "Home",
		keyOf:     hashKeyed.GetControllerHashKey,
	},
	KeyPathNamespace: {
		fieldPath:      NamespaceHashKeyPath,
		governs:        "Namespace",
		keyOf:          hashKeyed.GetNamespaceHashKey,
		optional:       true,
		ofNamespace:    hashkey.OfNamespace,
		beyondMetadata: schema.GroupResource{Resource: "namespaces"},
	},
	KeyPathClaim: {
		fieldPath:      ClaimHashKeyPath,
		governs:        "Claim",
		keyOf:          claimKeyOf,
		optional:       true,
		only:           persistentVolumes,
		beyondMetadata: persistentVolumes,
	},
}

var persistentVolumes = schema.GroupResource{Resource: "persistentvolumes"}

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

// OfNamespace returns the key that all objects in the namespace of that name have at this path.
// It returns false if they need not share one, or if the name does not tell it.
func (p KeyPath) OfNamespace(name string) (key int64, ok bool) {
	if of := keyPaths[p].ofNamespace; of != nil {
		return of(name), true
	}
	return 0, false
}

// Only returns the one resource whose objects have this key, and false if it is not one alone.
// The API server refuses the path for any other.
func (p KeyPath) Only() (schema.GroupResource, bool) {
	only := keyPaths[p].only
	return only, !only.Empty()
}

// InMetadata says whether this key of a resource's objects follows from what
// PartialObjectMetadata has of them.
func (p KeyPath) InMetadata(resource schema.GroupResource) bool {
	only, one := p.Only()
	return resource != keyPaths[p].beyondMetadata && (!one || resource == only)
}

// KeyOf returns the key of obj at this path, and whether obj has one: only an
// Optional key can be missing. It fails for an object without metadata, which has no
// keys at all. It does not allocate for types that embed ObjectMeta and unstructured
// objects.
func (p KeyPath) KeyOf(obj runtime.Object) (key int64, found bool, err error) {
	keyed, ok := obj.(hashKeyed)
	if !ok {
		if w, ok := obj.(wrapper); ok {
			key, found = w.HashKeyAt(p)
			return key, found, nil
		}
		if keyed, err = hashKeyedFrom(obj); err != nil {
			return 0, false, err
		}
	}
	row := &keyPaths[p]
	if key, found = row.keyOf(keyed); !found && !row.optional {
		return hashkey.OfUID(keyed.GetUID()), true, nil
	}
	return key, found, nil
}

// hashKeyed is an object that knows its keys, as unstructured objects and all types that
// embed ObjectMeta do: one assertion, and no accessor, gives access to all of them.
type hashKeyed interface {
	metav1.Object
	metav1.ControllerHashKeyed
	// GetNamespaceHashKey returns the key of the object's namespace, of a Namespace that
	// of its own name, and whether there is one.
	GetNamespaceHashKey() (int64, bool)
}

// wrapper has another object in it, which it lets nobody see.
type wrapper interface {
	// HashKeyAt returns what KeyOf does of the object in it.
	HashKeyAt(KeyPath) (key int64, found bool)
}

// hashKeyedFrom returns the hashKeyed of an object that is none itself.
func hashKeyedFrom(obj runtime.Object) (hashKeyed, error) {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	if keyed, ok := accessor.(hashKeyed); ok {
		return keyed, nil
	}
	return derivedKeys{accessor}, nil
}

// derivedKeys makes the keys of an object that implements no more than metav1.Object.
type derivedKeys struct{ metav1.Object }

func (d derivedKeys) GetControllerHashKey() (int64, bool) {
	return metav1.HashKeyOfController(d.Object)
}

func (d derivedKeys) GetNamespaceHashKey() (int64, bool) {
	if d.GetNamespace() == "" {
		return 0, false
	}
	return hashkey.OfNamespace(d.GetNamespace()), true
}

// none is the keyOf of a path at which all objects have their own key.
func none(hashKeyed) (int64, bool) { return 0, false }

// claimKeyOf returns the key of the claim of obj, and whether it has one. The types of
// PersistentVolumes have the method for it.
func claimKeyOf(obj hashKeyed) (int64, bool) {
	if claimed, ok := obj.(interface{ GetClaimHashKey() (int64, bool) }); ok {
		return claimed.GetClaimHashKey()
	}
	return 0, false
}
