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

package handlers

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

func TestEchoShardInfo(t *testing.T) {
	info := &metav1.ShardInfo{Selector: "some selector"}
	for _, list := range []runtime.Object{
		&v1.PodList{ListMeta: metav1.ListMeta{ShardInfo: info}},
		&unstructured.UnstructuredList{Object: map[string]interface{}{"metadata": map[string]interface{}{"shardInfo": map[string]interface{}{"selector": "some selector"}}}},
	} {
		for _, representation := range []metav1.ShardedListInterface{
			&metav1.Table{},
			&metav1.PartialObjectMetadataList{},
			&metav1beta1.PartialObjectMetadataList{},
		} {
			echoShardInfo(list, representation.(runtime.Object))
			if got := representation.GetShardInfo(); got == nil || *got != *info {
				t.Errorf("%T as %T: shardInfo is %v, want %v", list, representation, got, info)
			}
			echoShardInfo(&v1.PodList{}, representation.(runtime.Object))
			if got := representation.GetShardInfo(); got != nil {
				t.Errorf("%T of an unfiltered list: shardInfo is %v", representation, got)
			}
		}
		echoShardInfo(list, list)
		if got := list.(metav1.ShardedListInterface).GetShardInfo(); got == nil || *got != *info {
			t.Errorf("%T unconverted: shardInfo is %v, want %v", list, got, info)
		}
	}
	// Other objects have no shardInfo.
	echoShardInfo(&v1.Pod{}, &metav1.PartialObjectMetadata{})
	echoShardInfo(&metav1.Status{}, &metav1.Status{})
}

// Two references that differ only in the hash key are the same: the server sets the key.
func TestDedupOwnerReferencesIgnoresHashKeys(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
		{Kind: "K", Name: "a", UID: "1", HashKey: ptr.To[int64](5)},
		{Kind: "K", Name: "a", UID: "1"},
		{Kind: "K", Name: "b", UID: "2"},
		{Kind: "K", Name: "b", UID: "2", HashKey: ptr.To[int64](7)},
		{Kind: "K", Name: "other name", UID: "2"},
	}}}
	dedupOwnerReferencesAndAddWarning(pod, context.Background(), false)
	var names []string
	for _, ref := range pod.OwnerReferences {
		names = append(names, ref.Name)
	}
	if len(names) != 3 || names[0] != "a" || names[1] != "b" || names[2] != "other name" {
		t.Errorf("left: %v", names)
	}
}
