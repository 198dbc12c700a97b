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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// echoShardInfo copies the shardInfo of a list to the representation that the client asked
// for: a table, or metadata alone. A client takes an answer without shardInfo for one that
// was not filtered.
func echoShardInfo(list, representation runtime.Object) {
	from, ok := list.(metav1.ShardedListInterface)
	if !ok {
		return
	}
	if to, ok := representation.(metav1.ShardedListInterface); ok {
		to.SetShardInfo(from.GetShardInfo())
	}
}
