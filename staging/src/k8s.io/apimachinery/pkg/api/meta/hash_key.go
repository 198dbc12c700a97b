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

// ClearHashKeys removes the hash keys from the metadata and owner references of obj, an object
// or its metadata, and returns whether there was any. What is stored, and what webhooks,
// policies and field management see, carries none: all keys follow from UIDs, and the API
// server adds them to its answers for clients that ask for them. What has no metadata stays as
// it is.
func ClearHashKeys(obj interface{}) bool {
	keyed, ok := obj.(interface{ ClearHashKeys() bool })
	if !ok {
		accessor, err := Accessor(obj)
		if err != nil {
			return false // no metadata, no key
		}
		if keyed, ok = accessor.(interface{ ClearHashKeys() bool }); !ok {
			return false
		}
	}
	return keyed.ClearHashKeys()
}

// hashKeyIn returns the key that m carries, or nil. It is for copies of metadata: to read an
// object's key, call metav1.HashKeyOf.
func hashKeyIn(m metav1.Object) *int64 {
	if keyed, ok := m.(interface{ GetHashKey() *int64 }); ok {
		return keyed.GetHashKey()
	}
	return nil
}
