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

package app

import (
	"testing"

	catalogue "k8s.io/kubernetes/pkg/controller/ring"
)

func TestEveryControllerOfTheCatalogueCanBeBuilt(t *testing.T) {
	known := NewControllerDescriptors()
	inCatalogue := 0
	for _, r := range catalogue.Rings() {
		if len(r.Controllers) != 1 {
			t.Errorf("ring %s has %d controllers; the host is a member of a ring for one", r.Name, len(r.Controllers))
		}
		for _, c := range r.Controllers {
			inCatalogue++
			if constructor, ok := ringConstructors[c.Name]; !ok || constructor.build == nil || constructor.defaultWorkers == nil {
				t.Errorf("%s is in the catalogue of rings and has no constructor", c.Name)
			}
			if known[c.Name] == nil {
				t.Errorf("%s is in the catalogue of rings and is no controller of kube-controller-manager", c.Name)
			}
		}
	}
	if inCatalogue != len(ringConstructors) {
		t.Errorf("%d constructors for %d controllers of the catalogue", len(ringConstructors), inCatalogue)
	}
}
