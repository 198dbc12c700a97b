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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
)

// NewClient returns a client with these objects, whose new pods have resource versions. A fake
// client's own have none, and an informer that follows ranges needs them.
func NewClient(objects ...runtime.Object) *fake.Clientset {
	client := fake.NewClientset(objects...)
	var revision atomic.Int64
	revision.Store(2)
	client.PrependReactor("create", "pods", func(action core.Action) (bool, runtime.Object, error) {
		pod := action.(core.CreateAction).GetObject().(*v1.Pod)
		pod.ResourceVersion = strconv.FormatInt(revision.Add(1), 10)
		return true, pod, client.Tracker().Create(action.GetResource(), pod, action.GetNamespace())
	})
	return client
}
