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

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

var _ metav1.ShardedListInterface = &UnstructuredList{}

// GetShardInfo returns metadata.shardInfo, or nil if the list is not limited to a shard.
func (u *UnstructuredList) GetShardInfo() *metav1.ShardInfo {
	metadata, _ := u.Object["metadata"].(map[string]interface{})
	info, ok := metadata["shardInfo"].(map[string]interface{})
	if !ok {
		return nil
	}
	selector, _ := info["selector"].(string)
	return &metav1.ShardInfo{Selector: selector}
}

// SetShardInfo sets metadata.shardInfo; nil removes it.
func (u *UnstructuredList) SetShardInfo(info *metav1.ShardInfo) {
	if info == nil {
		RemoveNestedField(u.Object, "metadata", "shardInfo")
		return
	}
	u.setNestedField(info.Selector, "metadata", "shardInfo", "selector")
}
