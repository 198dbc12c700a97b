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

package internal

import (
	"testing"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Only the server sets metadata.hashKey, as it does the UID, so no manager owns it.
func TestNoManagerOwnsTheHashKey(t *testing.T) {
	strip := NewStripMetaManager(nil).(*stripMetaManager)
	managed := fieldpath.ManagedFields{
		"some": fieldpath.NewVersionedSet(fieldpath.NewSet(
			fieldpath.MakePathOrDie("metadata", "hashKey"),
			fieldpath.MakePathOrDie("metadata", "labels", "a"),
		), "v1", true),
		"nothing else": fieldpath.NewVersionedSet(fieldpath.NewSet(
			fieldpath.MakePathOrDie("metadata", "hashKey"),
		), "v1", true),
	}
	strip.stripFields(managed, "some")
	strip.stripFields(managed, "nothing else")

	want := fieldpath.NewSet(fieldpath.MakePathOrDie("metadata", "labels", "a"))
	if got := managed["some"].Set(); !got.Equals(want) {
		t.Errorf("managed: %v, want %v", got, want)
	}
	if left, ok := managed["nothing else"]; ok {
		t.Errorf("a manager that owns only the hash key is left with %v", left.Set())
	}
}
