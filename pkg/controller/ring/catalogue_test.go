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
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/utils/ptr"
)

// What a controller works from and on must be known, or the controller manager, the
// fence and kubectl would each guess.
func TestEveryControllerIsDescribedInFull(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Rings() {
		// spec.controllerName is all that a record says of its ring.
		if len(r.Controllers) != 1 || r.Controllers[0].Name != r.Name {
			t.Errorf("ring %q is not that of the one controller with its name", r.Name)
		}
		for _, c := range r.Controllers {
			if c.Name == "" || seen[c.Name] {
				t.Errorf("controller %q has no name, or that of another", c.Name)
			}
			seen[c.Name] = true
			if found, ok := ControllerNamed(c.Name); !ok || found.Workloads != c.Workloads {
				t.Errorf("%s is not found by its name", c.Name)
			}
			if c.PathOf(c.Workloads) == "" {
				t.Errorf("%s does not read %s, its own workloads", c.Name, c.Workloads)
			}
			if _, ok := c.Governing(c.Workloads); !ok {
				t.Errorf("%s may not write %s, its own workloads", c.Name, c.Workloads)
			}
			for _, read := range c.Reads {
				if _, ok := sharding.ParseKeyPath(read.Path); !ok {
					t.Errorf("%s reads %s by %q, which is no path of hash keys", c.Name, read.Resource, read.Path)
				}
			}
			for _, w := range c.Writes {
				if w.GovernedBy != Own && w.GovernedBy != ByController {
					t.Errorf("%s writes %s governed by %q", c.Name, w.Resource, w.GovernedBy)
				}
			}
		}
	}
	if _, ok := ControllerNamed("nobody"); ok {
		t.Error("a controller that is not in the catalogue was found")
	}
}

func TestWhoseKeyGoverns(t *testing.T) {
	object := &metav1.ObjectMeta{UID: "own", OwnerReferences: []metav1.OwnerReference{{UID: "owner"}, {UID: "controller", Controller: ptr.To(true)}}}
	if key, ok := Own.KeyOf(object); !ok || key != hashkey.OfUID("own") {
		t.Errorf("Own: %x, %v", key, ok)
	}
	if key, ok := ByController.KeyOf(object); !ok || key != hashkey.OfUID("controller") {
		t.Errorf("Controller: %x, %v", key, ok)
	}
	object.OwnerReferences = object.OwnerReferences[:1]
	if key, ok := ByController.KeyOf(object); ok {
		t.Errorf("an object without a controller is governed by %x", key)
	}

	a, b := schema.GroupResource{Resource: "a"}, schema.GroupResource{Resource: "b"}
	c := Controller{Writes: []Write{{Resource: a, GovernedBy: Own}}}
	if by, ok := c.Governing(a); !ok || by != Own {
		t.Errorf("a: %q, %v", by, ok)
	}
	if _, ok := c.Governing(b); ok {
		t.Error("a resource that no line covers has a governing key")
	}
	c.Writes = append(c.Writes, Write{Resource: Any, GovernedBy: ByController})
	if by, ok := c.Governing(b); !ok || by != ByController {
		t.Errorf("any: %q, %v", by, ok)
	}
}

func TestAReplicaSetIsGovernedByItsOwnKeyAndAllElseByItsController(t *testing.T) {
	c, _ := ControllerNamed(ReplicaSetController)
	for resource, want := range map[schema.GroupResource]GovernedBy{
		{Group: "apps", Resource: "replicasets"}:        Own,
		{Group: "example.com", Resource: "replicasets"}: ByController,
		{Resource: "pods"}:                              ByController,
	} {
		if by, ok := c.Governing(resource); !ok || by != want {
			t.Errorf("%s: %q, %v, want %q", resource, by, ok, want)
		}
	}
}
