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

package negotiation

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// TestHashKeysAreAskedForByAParameter: it counts in the clause that is chosen.
func TestHashKeysAreAskedForByAParameter(t *testing.T) {
	accepted := []runtime.SerializerInfo{
		{MediaType: "application/json", MediaTypeType: "application", MediaTypeSubType: "json"},
		{MediaType: "application/vnd.kubernetes.protobuf", MediaTypeType: "application", MediaTypeSubType: "vnd.kubernetes.protobuf"},
	}
	for header, want := range map[string]bool{
		"application/json;hashKeys=1":                                      true,
		"application/vnd.kubernetes.protobuf;hashKeys=1, application/json": true,
		"application/vnd.kubernetes.protobuf, application/json;hashKeys=1": false,
		"application/cbor, application/json;hashKeys=1":                    true,
		"*/*;hashKeys=1":                 true,
		"application/json;hashKeys=0":    false,
		"application/json;hashKeys=true": false,
		"application/json":               false,
		"":                               false,
	} {
		options, ok := NegotiateMediaTypeOptions(header, accepted, DefaultEndpointRestrictions)
		if !ok || options.HashKeys != want {
			t.Errorf("%q: asks for keys: %t, want %t; accepted: %t", header, options.HashKeys, want, ok)
		}
	}
}
