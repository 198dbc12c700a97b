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

package testing

import (
	"strconv"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	core "k8s.io/client-go/testing"
)

// NewClient returns a client with these objects, whose lists and new pods have resource versions. A
// fake client's own have none, and an informer that follows ranges needs them.
func NewClient(objects ...runtime.Object) *fake.Clientset {
	client := fake.NewClientset(objects...)
	kinds := map[schema.GroupVersionResource]schema.GroupVersionKind{}
	for kind := range scheme.Scheme.AllKnownTypes() {
		plural, _ := meta.UnsafeGuessKindToResource(kind)
		kinds[plural] = kind
	}
	client.PrependReactor("list", "*", func(action core.Action) (bool, runtime.Object, error) {
		list, err := client.Tracker().List(action.GetResource(), kinds[action.GetResource()], action.GetNamespace())
		if err == nil {
			list.(metav1.ListInterface).SetResourceVersion("2")
		}
		return true, list, err
	})
	var revision atomic.Int64
	revision.Store(2)
	client.PrependReactor("create", "pods", func(action core.Action) (bool, runtime.Object, error) {
		pod := action.(core.CreateAction).GetObject().(*v1.Pod)
		pod.ResourceVersion = strconv.FormatInt(revision.Add(1), 10)
		return true, pod, client.Tracker().Create(action.GetResource(), pod, action.GetNamespace())
	})
	return client
}
