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

package fuzzer

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// clearHashKeys removes the hash keys. metav1.Object has no accessors for them, so a
// copy made through its accessors lacks them and would differ.
func clearHashKeys(meta *metav1.ObjectMeta) {
	meta.HashKey = nil
	for i := range meta.OwnerReferences {
		meta.OwnerReferences[i].HashKey = nil
	}
}
