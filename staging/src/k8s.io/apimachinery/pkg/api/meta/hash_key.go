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

package meta

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// storedHashKey returns the field metadata.hashKey of m, or 0 if m has none. It is for
// copying metadata: to read an object's key, call metav1.HashKeyOf.
func storedHashKey(m metav1.Object) int64 {
	if keyed, ok := m.(interface{ GetHashKey() int64 }); ok {
		return keyed.GetHashKey()
	}
	return 0
}
