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
	"reflect"
	"testing"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// Replicas are most of what an instance holds, and differ in little but their names.
func TestReplicasShareMemory(t *testing.T) {
	made := func() metav1.ObjectMeta {
		controller := true
		return metav1.ObjectMeta{
			Labels:          map[string]string{"app": "web"},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
			OwnerReferences: []metav1.OwnerReference{{UID: "owner", Controller: &controller}},
		}
	}
	for of, read := range map[schema.GroupResource]func() metav1.Object{
		v1.Resource("pods"):          func() metav1.Object { return &v1.Pod{ObjectMeta: made()} },
		apps.Resource("replicasets"): func() metav1.Object { return &apps.ReplicaSet{ObjectMeta: made()} },
		batch.Resource("jobs"):       func() metav1.Object { return &batch.Job{ObjectMeta: made()} },
	} {
		transform := resources[of].transform(cache.NewStore(cache.MetaNamespaceKeyFunc))
		first, second := read(), read()
		for _, obj := range []metav1.Object{first, second} {
			if got, err := transform(obj); got != obj || err != nil {
				t.Errorf("%s: %v, %v; want the same object", of, got, err)
			}
			if obj.GetManagedFields() != nil {
				t.Errorf("%s: has managed fields", of)
			}
		}
		if reflect.ValueOf(first.GetLabels()).Pointer() != reflect.ValueOf(second.GetLabels()).Pointer() {
			t.Errorf("%s: two that are alike have labels of their own", of)
		}
	}
}
