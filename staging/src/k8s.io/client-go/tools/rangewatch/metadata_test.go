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

package rangewatch

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/client-go/metadata/fake"
)

func TestForMetadataRefusesKeysThatMetadataLacks(t *testing.T) {
	client := fake.NewSimpleMetadataClient(fake.NewTestScheme())
	for _, c := range []struct {
		resource string
		field    string
		ok       bool
	}{
		{"pods", sharding.HashKeyPath, true},
		{"pods", sharding.ControllerHashKeyPath, true},
		{"pods", sharding.NamespaceHashKeyPath, true},
		{"namespaces", sharding.HashKeyPath, true},
		{"namespaces", sharding.NamespaceHashKeyPath, false},
		{"persistentvolumes", sharding.HomeHashKeyPath, true},
		{"persistentvolumes", sharding.ClaimHashKeyPath, false},
	} {
		cfg, err := ForMetadata(client, v1.SchemeGroupVersion.WithResource(c.resource), c.field)
		if (err == nil) != c.ok {
			t.Errorf("%s by %s: %v", c.resource, c.field, err)
		}
		if err == nil {
			if _, err := NewSource(cfg); err != nil {
				t.Errorf("%s by %s: %v", c.resource, c.field, err)
			}
		}
	}
	// A resource of that name in another group is not that of Namespaces.
	if _, err := ForMetadata(client, schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "namespaces"}, sharding.NamespaceHashKeyPath); err != nil {
		t.Error(err)
	}
}
