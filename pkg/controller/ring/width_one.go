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

package ring

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/sharding"
)

// ControlledBy returns the options of a list of the objects whose controller has that hash key, and
// of those without a controller. The API server answers from an index.
func ControlledBy(key int64) metav1.ListOptions { return widthOne(sharding.ControllerHashKeyPath, key) }

// AtHome returns the options of a list of the objects whose controller has that hash key, and of
// the object without a controller that has the key itself.
func AtHome(key int64) metav1.ListOptions { return widthOne(sharding.HomeHashKeyPath, key) }

func widthOne(path string, key int64) metav1.ListOptions {
	width1 := hashkey.NewRanges(hashkey.Range{Start: uint64(key), End: uint64(key) + 1})
	return metav1.ListOptions{ShardSelector: width1.Selector(path)}
}
