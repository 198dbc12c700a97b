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

package rangewatch

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

func TestUnstructuredObjectsAreFollowed(t *testing.T) {
	server := newFakeServer(sharding.ControllerHashKeyPath)
	example := &unstructured.Unstructured{}
	example.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	source, err := NewSource(Config{Field: sharding.ControllerHashKeyPath, ListWatch: unstructuredServer{server}, Object: example})
	if err != nil {
		t.Fatal(err)
	}
	informer := source.NewInformer(cache.SharedIndexInformerOptions{})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	go informer.RunWithContext(ctx)
	server.write(newPod(sharding.ControllerHashKeyPath, "a", 10), false)
	server.write(newPod(sharding.ControllerHashKeyPath, "b", 60), false)
	for _, want := range []struct {
		ranges hashkey.Ranges
		keys   string
	}{{percents(0, 50), "[a]"}, {percents(50, 100), "[b]"}, {percents(70, 100), "[]"}} {
		source.SetRanges(want.ranges)
		server.touch()
		if err := source.WaitFor(ctx, want.ranges); err != nil {
			t.Fatal(err)
		}
		if err := wait.PollUntilContextCancel(ctx, time.Millisecond, true, func(context.Context) (bool, error) {
			return fmt.Sprint(informer.GetStore().ListKeys()) == want.keys, nil
		}); err != nil {
			t.Errorf("%s: the store has %v, want %s", want.ranges, informer.GetStore().ListKeys(), want.keys)
		}
	}
}

// unstructuredServer returns pods as a dynamic client does.
type unstructuredServer struct{ *fakeServer }

func toUnstructured(obj runtime.Object, kind string) (map[string]any, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err == nil {
		content["apiVersion"], content["kind"] = "v1", kind
	}
	return content, err
}

func (s unstructuredServer) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, err := s.fakeServer.ListWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	content, err := toUnstructured(list, "PodList")
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	result, err := u.ToList()
	if err != nil {
		return nil, err
	}
	for i := range result.Items {
		result.Items[i].SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	}
	return result, nil
}

func (s unstructuredServer) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w, err := s.fakeServer.WatchWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	return watch.Filter(w, func(event watch.Event) (watch.Event, bool) {
		content, err := toUnstructured(event.Object, "Pod")
		if err != nil {
			panic(err)
		}
		return watch.Event{Type: event.Type, Object: &unstructured.Unstructured{Object: content}}, true
	}), nil
}
