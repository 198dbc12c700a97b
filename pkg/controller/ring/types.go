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

package ring

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Ring is a family of controllers whose instances share one line of hash keys.
type Ring struct {
	// Name is what the instances of the ring have in spec.controllerName, so a ring has
	// one controller so far, with the same name.
	Name        string
	Controllers []Controller
}

// Controller is one that runs on a ring.
type Controller struct {
	// Name is the controller's name in --controllers and in the settings file.
	Name string
	// Workloads is the resource that the controller reconciles: an instance works on
	// the objects of it whose governing key it owns.
	Workloads schema.GroupResource
	// Reads lists the resources that the controller's informers hold.
	Reads []Read
	// Writes says whose key governs what the controller writes. The first line that
	// covers a resource counts; a write that no line covers is refused.
	Writes []Write
}

// Read is a resource that is held for the keys of a range.
type Read struct {
	Resource schema.GroupResource
	// Path is the field path of the key by which the resource is divided among the
	// instances, such as sharding.HashKeyPath.
	Path string
}

// Write is a resource that is written by the owner of a key.
type Write struct {
	// Resource is a resource, or Any.
	Resource schema.GroupResource
	GovernedBy
}

// Any stands for every resource.
var Any = schema.GroupResource{Group: "*", Resource: "*"}

// GovernedBy says whose key an instance has to own to write an object.
type GovernedBy string

const (
	// Own is the object's own key.
	Own GovernedBy = "Own"
	// ByController is the key of the object's controller. An object without one has no
	// governing key.
	ByController GovernedBy = "Controller"
)

// KeyOf returns the governing key of an object, and whether it has one.
func (g GovernedBy) KeyOf(object metav1.Object) (key int64, ok bool) {
	if g == Own {
		return metav1.HashKeyOf(object), true
	}
	return metav1.HashKeyOfController(object)
}

// PathOf returns the path by which the resource is divided, "" if the controller does
// not read it.
func (c Controller) PathOf(resource schema.GroupResource) string {
	for _, r := range c.Reads {
		if r.Resource == resource {
			return r.Path
		}
	}
	return ""
}

// Governing returns whose key governs a write of the resource, and whether a line of
// Writes covers it.
func (c Controller) Governing(resource schema.GroupResource) (GovernedBy, bool) {
	for _, w := range c.Writes {
		if w.Resource == resource || w.Resource == Any {
			return w.GovernedBy, true
		}
	}
	return "", false
}
