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

package host

import (
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/client-go/kubernetes/scheme"
)

// What is divided by another key than what a controller works on is silently missing where it is
// needed. So New refuses each path that cannot be right for what is read with it:
//
//	                                     worked on by its own key    worked on by its namespace
//	what the controller owns             controller, home, Whole     namespace, Whole
//	what is read beside                  controller, home, Whole     namespace, Whole
//	metadata of what is worked on        own                         namespace
//	volumes, if claims are worked on     claim

var (
	claimKind     = schema.GroupKind{Kind: "PersistentVolumeClaim"}
	namespaceKind = schema.GroupKind{Kind: "Namespace"}
)

// checkObject says what is wrong with a read whatever it is for.
func (r Read) checkObject() error {
	if r.Object == nil {
		return fmt.Errorf("the ring's host is to read objects by %q without an example of them", r.By)
	}
	path, isPath := sharding.ParseKeyPath(string(r.By))
	if !isPath && r.By != Whole {
		return fmt.Errorf("Reads lists %T by %q: use a path of hash keys, such as %q, or host.Whole", r.Object, r.By, sharding.HashKeyPath)
	}
	_, metadata := r.Object.(*metav1.PartialObjectMetadata)
	if _, ok := r.Object.(runtime.Unstructured); ok || metadata {
		if r.Object.GetObjectKind().GroupVersionKind().Empty() {
			return fmt.Errorf("the ring's host is to read %T without a kind: set its apiVersion and kind", r.Object)
		}
	}
	kind := kindOf(r.Object)
	plural, _ := meta.UnsafeGuessKindToResource(kind.WithVersion(""))
	resource := plural.GroupResource()
	switch only, one := path.Only(); {
	case !isPath:
	case one && resource != only:
		return fmt.Errorf("Reads lists %s by %q, which %s alone have: the API server refuses it", kind.Kind, r.By, only)
	case metadata && !path.InMetadata(resource):
		return fmt.Errorf("Reads lists metadata of %s by %q, which is not in it: read the whole objects", kind.Kind, r.By)
	}
	return nil
}

// checkWorks says why the controller cannot work on what is divided so.
func (c *Controller) checkWorks(i *informed) error {
	switch {
	case i.By != sharding.HashKeyPath && i.By != sharding.NamespaceHashKeyPath:
		return fmt.Errorf("%s works on %T, which Reads divides by %q: use %q or %q", c.Name, c.Works, i.By, sharding.HashKeyPath, sharding.NamespaceHashKeyPath)
	case i.By == sharding.NamespaceHashKeyPath && kindOf(c.Works) == namespaceKind:
		return fmt.Errorf("%s works on namespaces, which Reads divides by %q: they are in no namespace; use %q", c.Name, i.By, sharding.HashKeyPath)
	case i.subjects != nil:
		return fmt.Errorf("%s works on %T, as another controller does", c.Name, c.Works)
	}
	return nil
}

// checkOwns says why the controller would not find all that it owns where this is divided so. by is
// what it works on is divided by, and owned what it owns is divided by if Reads says nothing.
func (c *Controller) checkOwns(i *informed, by, owned string) error {
	switch {
	case i.By == Whole, i.By == owned, i.By == sharding.HomeHashKeyPath && by == sharding.HashKeyPath:
		return nil
	case i.isDefault:
		return fmt.Errorf("%s owns %T, which is divided by %q for another controller: one informer cannot do for both; give each a Host, with a ring of its own", c.Name, i.Object, i.By)
	}
	return fmt.Errorf("%s owns %T, which Reads divides by %q, and works on %T by %q: an instance would lack most of what its objects own; leave %[2]T out of Reads, for %[6]q, or list it with host.Whole", c.Name, i.Object, i.By, c.Works, by, owned)
}

// checkReads says why what no controller works on or owns cannot be of use to any of them, as it is
// divided.
func (h *Host) checkReads() error {
	for _, i := range h.reads {
		if i.By == Whole || h.isWorkedOn(i) || h.isOwned(i) {
			continue
		}
		// divides says whether a controller works on what is divided so, and of which that is true.
		divides := func(by string, is func(runtime.Object) bool) bool {
			return slices.ContainsFunc(h.controllers, func(c *controller) bool { return h.read(c.Works).By == by && is(c.Works) })
		}
		any := func(runtime.Object) bool { return true }
		var ok bool
		var otherwise string
		switch i.By {
		case sharding.HashKeyPath:
			ok = divides(i.By, func(works runtime.Object) bool { return isSame(works, i.Object) })
			otherwise = "if a controller works on them or owns them, say so in its Works or Owns"
		case sharding.ControllerHashKeyPath, sharding.HomeHashKeyPath:
			ok = divides(sharding.HashKeyPath, any)
			otherwise = fmt.Sprintf("for those in the namespaces of what is worked on, use %q", sharding.NamespaceHashKeyPath)
		case sharding.NamespaceHashKeyPath:
			ok = divides(i.By, any)
			otherwise = "to work by namespace, list what is worked on so too"
		case sharding.ClaimHashKeyPath:
			ok = divides(sharding.HashKeyPath, func(works runtime.Object) bool { return kindOf(works) == claimKind })
			otherwise = fmt.Sprintf("it goes with claims that are worked on by %q", sharding.HashKeyPath)
		}
		if !ok {
			return fmt.Errorf("Reads lists %s, by which no controller's objects are divided: an instance would lack most of those that belong to its own; use host.Whole or, %s", i, otherwise)
		}
	}
	return nil
}

func (h *Host) isWorkedOn(i *informed) bool { return i.subjects != nil }

func (h *Host) isOwned(i *informed) bool {
	return slices.ContainsFunc(h.controllers, func(c *controller) bool {
		return slices.ContainsFunc(c.Owns, func(owned runtime.Object) bool { return h.read(owned) == i })
	})
}

// isSame says whether both stand for one resource. They may be of different types: one of them may
// have the metadata alone, or no type. Kinds of different groups may have the same name.
func isSame(a, b runtime.Object) bool {
	says := func(object runtime.Object) bool { return !object.GetObjectKind().GroupVersionKind().Empty() }
	if !says(a) && !says(b) {
		return reflect.TypeOf(a) == reflect.TypeOf(b)
	}
	hasGroup := func(object runtime.Object) bool {
		_, _, err := scheme.Scheme.ObjectKinds(object)
		return says(object) || err == nil
	}
	one, other := kindOf(a), kindOf(b)
	return one == other || one.Kind == other.Kind && !(hasGroup(a) && hasGroup(b))
}

// kindOf returns the object's kind. That of a type that client-go does not know, which says nothing
// itself, is its name, without a group.
func kindOf(object runtime.Object) schema.GroupKind {
	if kind := object.GetObjectKind().GroupVersionKind(); !kind.Empty() {
		return kind.GroupKind()
	}
	if kinds, _, err := scheme.Scheme.ObjectKinds(object); err == nil {
		return kinds[0].GroupKind()
	}
	t := reflect.TypeOf(object)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return schema.GroupKind{Kind: t.Name()}
}
