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

package main

// older has the catalogue of rings as an earlier version would: with the ring of workloads alone,
// and on it the controllers of Deployments and ReplicaSets.
func older(o *overlay, _ []string) ([]string, error) {
	o.files["pkg/controller/ring/catalogue/older.go"] = []byte(olderCatalogue)
	return nil, nil
}

const olderCatalogue = `package catalogue

import "slices"

func init() {
	rings = slices.DeleteFunc(rings, func(r Ring) bool { return r.Name != WorkloadsRing })
	for i := range rings {
		rings[i].Controllers = slices.DeleteFunc(rings[i].Controllers, func(c Controller) bool {
			return c.Name != DeploymentController && c.Name != ReplicaSetController
		})
	}
	if len(rings) != 1 || len(rings[0].Controllers) != 2 {
		panic("hack/overlay/older.go names a ring or a controller that the catalogue does not have")
	}
}
`
