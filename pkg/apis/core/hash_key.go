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

package core

import "k8s.io/apimachinery/pkg/hashkey"

// GetNamespaceHashKey returns the hash key of the namespace: that of all objects in it.
func (n *Namespace) GetNamespaceHashKey() (int64, bool) {
	return hashkey.OfNamespace(n.Name), true
}

// GetClaimHashKey returns the hash key of the claim that the volume is bound to or reserved
// for, and whether there is one. A reference without a UID, which only its claim's binding
// fills in, does not say which claim it is.
func (v *PersistentVolume) GetClaimHashKey() (int64, bool) {
	if v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID == "" {
		return 0, false
	}
	return hashkey.OfUID(v.Spec.ClaimRef.UID), true
}
