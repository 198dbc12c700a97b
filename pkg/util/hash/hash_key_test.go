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

package hash

import (
	"hash/fnv"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestHashesAreThoseOfStockKubernetes(t *testing.T) {
	sum := func(template v1.PodTemplateSpec) uint32 {
		hasher := fnv.New32a()
		DeepHashObject(hasher, template)
		return hasher.Sum32()
	}
	template := v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}, OwnerReferences: []metav1.OwnerReference{{Name: "o", UID: "u"}}},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "image"}}},
	}
	const stock = 3115456491
	if got := sum(template); got != stock {
		t.Errorf("hash %d, with stock Kubernetes v1.37.1 %d", got, stock)
	}
	keyed := *template.DeepCopy()
	keyed.HashKey = ptr.To[int64](5)
	if sum(keyed) == sum(template) {
		t.Error("a hash key that is set does not count")
	}
}
