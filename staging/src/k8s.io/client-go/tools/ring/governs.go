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

import shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"

// Governing returns whose key governs what the controller writes to the resource of that API group,
// by the first of a record's lines that covers both, and whether there is one.
func Governing(lines []shardingv1alpha1.Governs, controller, group, resource string) (shardingv1alpha1.GoverningKey, bool) {
	covers := func(pattern, s string) bool { return pattern == "*" || pattern == s }
	for _, line := range lines {
		if covers(line.Controller, controller) && covers(line.Group, group) && covers(line.Resource, resource) {
			return line.By, true
		}
	}
	return "", false
}
