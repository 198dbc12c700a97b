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

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestShardInfo(t *testing.T) {
	list := &UnstructuredList{Object: map[string]interface{}{"apiVersion": "v1", "kind": "List"}}
	if info := list.GetShardInfo(); info != nil {
		t.Errorf("a list of everything has %v", info)
	}
	list.SetShardInfo(&metav1.ShardInfo{Selector: "some selector"})
	if info := list.GetShardInfo(); info == nil || info.Selector != "some selector" {
		t.Errorf("got %v", info)
	}

	// Typed readers look in the same place.
	data, err := list.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	typed := &metav1.PartialObjectMetadataList{}
	if err := json.Unmarshal(data, typed); err != nil {
		t.Fatal(err)
	}
	if info := typed.GetShardInfo(); info == nil || info.Selector != "some selector" {
		t.Errorf("a typed reader of %s gets %v", data, info)
	}

	list.SetShardInfo(nil)
	if info := list.GetShardInfo(); info != nil {
		t.Errorf("removed, there is still %v", info)
	}
}
