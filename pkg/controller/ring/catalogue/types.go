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

package catalogue

import (
	"slices"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Ring is a family of controllers whose instances share one line of hash keys.
type Ring struct {
	// Name is what the instances of the ring have in spec.ring.
	Name        string
	Controllers []Controller
}

// Controller is one that runs on a ring.
type Controller struct {
	// Name is the controller's name in --controllers, in the settings file and in
	// spec.controllers.
	Name string
	// ServiceAccount is the name of the service account in kube-system that the controller
	// sends its requests with under --use-service-account-credentials.
	ServiceAccount string
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
	// instances, such as sharding.HashKeyPath, or Whole.
	Path string
	// Feature is the feature gate without which the resource is not read, "" if it always is.
	Feature string
}

// Whole is the Path of a resource that every instance holds all of.
const Whole = "*"

// Write is a resource that is written by the owner of a key.
type Write struct {
	// Resource is a resource, or Any.
	Resource schema.GroupResource
	// By says whose key the owner has to own.
	By shardingv1alpha1.GoverningKey
}

// Any stands for every resource.
var Any = schema.GroupResource{Group: "*", Resource: "*"}

// ControllerNames returns the names of the ring's controllers, as spec.controllers has them.
func (r Ring) ControllerNames() []string {
	var names []string
	for _, c := range r.Controllers {
		names = append(names, c.Name)
	}
	return names
}

// With returns the ring with those of its controllers alone that have one of the names.
func (r Ring) With(names []string) Ring {
	var controllers []Controller
	for _, c := range r.Controllers {
		if slices.Contains(names, c.Name) {
			controllers = append(controllers, c)
		}
	}
	return Ring{Name: r.Name, Controllers: controllers}
}

// Governs returns whose key governs what the ring's controllers write, as spec.governs has
// it.
func (r Ring) Governs() []shardingv1alpha1.Governs {
	var lines []shardingv1alpha1.Governs
	for _, c := range r.Controllers {
		for _, w := range c.Writes {
			lines = append(lines, shardingv1alpha1.Governs{
				Controller: c.Name, Group: w.Resource.Group, Resource: w.Resource.Resource, By: w.By,
			})
		}
	}
	return lines
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
