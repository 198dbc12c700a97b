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

package unstructured

// GetHashKey returns metadata.hashKey as it was stored or sent, or 0 if there is none.
// To read an object's key, call metav1.HashKeyOf, which derives a missing one.
func (u *Unstructured) GetHashKey() int64 {
	metadata, _ := u.Object["metadata"].(map[string]interface{})
	return hashKey(metadata)
}

// SetHashKey sets metadata.hashKey; 0 removes it.
func (u *Unstructured) SetHashKey(key int64) {
	if key == 0 {
		RemoveNestedField(u.Object, "metadata", "hashKey")
		return
	}
	u.setNestedField(key, "metadata", "hashKey")
}

// hashKey returns the field hashKey of v, or 0 if it is missing or not an integer.
func hashKey(v map[string]interface{}) int64 {
	key, _ := v["hashKey"].(int64)
	return key
}
