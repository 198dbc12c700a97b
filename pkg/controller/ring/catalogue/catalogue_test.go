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
	"testing"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/util/validation"
)

// What a controller works from and on must be known, or the controller manager and kubectl
// would each guess, and the fence would refuse its writes.
func TestEveryControllerIsDescribedInFull(t *testing.T) {
	rings, controllers := map[string]bool{}, map[string]bool{}
	for _, r := range Rings() {
		if rings[r.Name] || len(validation.IsDNS1123Label(r.Name)) > 0 {
			t.Errorf("ring %q has the name of another, or one that is no DNS label", r.Name)
		}
		rings[r.Name] = true
		found, ok := RingNamed(r.Name)
		if !ok || found.Name != r.Name {
			t.Errorf("ring %s is not found by its name", r.Name)
		}
		for _, c := range r.Controllers {
			if controllers[c.Name] || len(validation.IsDNS1123Label(c.Name)) > 0 {
				t.Errorf("controller %q has the name of another, or one that is no DNS label", c.Name)
			}
			controllers[c.Name] = true
			if len(validation.IsDNS1123Subdomain(c.ServiceAccount)) > 0 {
				t.Errorf("%s has the service account %q, which is no name of one", c.Name, c.ServiceAccount)
			}
			if c.PathOf(c.Workloads) == "" {
				t.Errorf("%s does not read %s, its own workloads", c.Name, c.Workloads)
			}
			for _, read := range c.Reads {
				if _, ok := sharding.ParseKeyPath(read.Path); !ok && read.Path != Whole {
					t.Errorf("%s reads %s by %q, which is no path of hash keys", c.Name, read.Resource, read.Path)
				}
			}
			if !slices.ContainsFunc(c.Writes, func(w Write) bool { return w.Resource == c.Workloads || w.Resource == Any }) {
				t.Errorf("%s may not write %s, its own workloads", c.Name, c.Workloads)
			}
		}
	}
	if _, ok := RingNamed("nobody's"); ok {
		t.Error("a ring that is not in the catalogue was found")
	}
}

// An instance says this of itself in its ControllerInstance, and the fence judges by it.
func TestAWorkloadIsGovernedByItsOwnKeyAndAllElseByItsController(t *testing.T) {
	r, _ := RingNamed("workloads")
	want := []shardingv1alpha1.Governs{
		{Controller: "deployment-controller", Group: "apps", Resource: "deployments", By: "Own"},
		{Controller: "deployment-controller", Group: "*", Resource: "*", By: "Controller"},
		{Controller: "replicaset-controller", Group: "apps", Resource: "replicasets", By: "Own"},
		{Controller: "replicaset-controller", Group: "*", Resource: "*", By: "Controller"},
		{Controller: "replicationcontroller-controller", Resource: "replicationcontrollers", By: "Own"},
		{Controller: "replicationcontroller-controller", Group: "*", Resource: "*", By: "Controller"},
		{Controller: "job-controller", Group: "batch", Resource: "jobs", By: "Own"},
		// A pod without a Job is finished by the owner of its own key.
		{Controller: "job-controller", Resource: "pods", By: "Home"},
		{Controller: "job-controller", Group: "*", Resource: "*", By: "Controller"},
		{Controller: "cronjob-controller", Group: "batch", Resource: "cronjobs", By: "Own"},
		{Controller: "cronjob-controller", Group: "*", Resource: "*", By: "Controller"},
		// It writes nothing else.
		{Controller: "ttl-after-finished-controller", Group: "batch", Resource: "jobs", By: "Own"},
		{Controller: "daemonset-controller", Group: "apps", Resource: "daemonsets", By: "Own"},
		{Controller: "daemonset-controller", Group: "*", Resource: "*", By: "Controller"},
	}
	if got := r.Governs(); !slices.Equal(got, want) {
		t.Errorf("governed: %+v, want %+v", got, want)
	}
}

// A process says only of the controllers that it runs what governs their writes.
func TestARingWithSomeOfItsControllersIsGovernedByTheirLinesAlone(t *testing.T) {
	whole, _ := RingNamed("workloads")
	r := whole.With([]string{"nobody's", "replicationcontroller-controller"})
	if got, want := r.ControllerNames(), []string{"replicationcontroller-controller"}; r.Name != "workloads" || !slices.Equal(got, want) {
		t.Errorf("ring %q runs %q, want workloads and %q", r.Name, got, want)
	}
	if got, want := r.Governs(), whole.Governs()[4:6]; !slices.Equal(got, want) {
		t.Errorf("governed: %+v, want %+v", got, want)
	}
	if got := whole.With(nil); len(got.Controllers) != 0 {
		t.Errorf("a ring with no controllers runs %q", got.ControllerNames())
	}
}

// Each line stands for the controller that it came from, in the order of the catalogue: the
// first that covers a write counts.
func TestARingGovernsTheWritesOfAllItsControllers(t *testing.T) {
	r := Ring{Controllers: []Controller{
		{Name: "a", Writes: []Write{{Resource: pods, By: shardingv1alpha1.GoverningKeyController}}},
		{Name: "b", Writes: []Write{{Resource: pods, By: shardingv1alpha1.GoverningKeyNamespace}, {Resource: replicaSets, By: shardingv1alpha1.GoverningKeyHome}}},
	}}
	if got, want := r.ControllerNames(), []string{"a", "b"}; !slices.Equal(got, want) {
		t.Errorf("the ring runs %q, want %q", got, want)
	}
	want := []shardingv1alpha1.Governs{
		{Controller: "a", Resource: "pods", By: "Controller"},
		{Controller: "b", Resource: "pods", By: "Namespace"},
		{Controller: "b", Group: "apps", Resource: "replicasets", By: "Home"},
	}
	if got := r.Governs(); !slices.Equal(got, want) {
		t.Errorf("governed: %+v, want %+v", got, want)
	}
}
