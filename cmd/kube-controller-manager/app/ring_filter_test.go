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

package app

import (
	"fmt"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/rangewatch"
)

func TestHandlersOfAControllerPassItsFilter(t *testing.T) {
	shared := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	filtered := newFilteredInformers(shared)
	for _, object := range []runtime.Object{&v1.Pod{}, &apps.ReplicaSet{}} {
		source, err := rangewatch.NewSource(rangewatch.Config{Field: rangewatch.ByHashKey, ListWatch: &cache.ListWatch{}, Object: object})
		if err != nil {
			t.Fatal(err)
		}
		shared.InformerFor(object, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
			return source.NewInformer(cache.SharedIndexInformerOptions{})
		})
		filtered.add(object, source)
	}
	if got := fmt.Sprint(filtered.bypassed()); got != "[*v1.Pod *v1.ReplicaSet]" {
		t.Errorf("bypassed before any was taken: %s", got)
	}
	filtered.Core().V1().Pods().Informer()
	if got := fmt.Sprint(filtered.bypassed()); got != "[*v1.ReplicaSet]" {
		t.Errorf("bypassed after pods were taken: %s", got)
	}
	filtered.Apps().V1().ReplicaSets().Informer()
	if got := filtered.bypassed(); len(got) > 0 {
		t.Errorf("bypassed: %v", got)
	}
	if filtered.InformerFor(&v1.Pod{}, nil) == shared.InformerFor(&v1.Pod{}, nil) {
		t.Error("the handlers of pods pass no filter")
	}
	// An informer that follows no range is what it is.
	filtered.Core().V1().Nodes().Informer()
	if filtered.InformerFor(&v1.Node{}, nil) != shared.InformerFor(&v1.Node{}, nil) {
		t.Error("the handlers of nodes pass a filter")
	}
}
