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
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// summary is what a transform leaves of a pod. It is no runtime.Object.
type summary struct{ metav1.ObjectMeta }

// An object that leaves the ranges cannot be sent as deleted in such a state.
func TestTransformMayMakeAnotherType(t *testing.T) {
	server := newFakeServer(sharding.HashKeyPath)
	source, err := NewSource(Config{Field: sharding.HashKeyPath, ListWatch: server, Object: &v1.Pod{}})
	if err != nil {
		t.Fatal(err)
	}
	informer := source.NewInformer(cache.SharedIndexInformerOptions{})
	if err := informer.SetTransform(func(obj any) (any, error) {
		return &summary{obj.(*v1.Pod).ObjectMeta}, nil
	}); err != nil {
		t.Fatal(err)
	}
	deleted := make(chan any, 10)
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) { deleted <- obj }}); err != nil {
		t.Fatal(err)
	}
	server.write(newPod(sharding.HashKeyPath, "a", 10), false)
	server.write(newPod(sharding.HashKeyPath, "b", 60), false)
	source.SetRanges(percents(0, 100))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	go informer.RunWithContext(ctx)
	if err := source.WaitFor(ctx, percents(0, 100)); err != nil {
		t.Fatal(err)
	}
	server.write(newPod(sharding.HashKeyPath, "c", 70), false)
	if err := source.WaitFor(ctx, percents(0, 100)); err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct{ from, to, pods int }{{0, 65, 2}, {0, 30, 1}, {0, 0, 0}} {
		source.SetRanges(percents(r.from, r.to))
		gone := <-deleted
		tombstone, ok := gone.(cache.DeletedFinalStateUnknown)
		if !ok {
			t.Fatalf("the handler was told of the deletion of a %T", gone)
		}
		if last, ok := tombstone.Obj.(*summary); !ok || last.Name != tombstone.Key {
			t.Errorf("%s: a %T", tombstone.Key, tombstone.Obj)
		}
		if n := len(informer.GetStore().ListKeys()); n != r.pods {
			t.Errorf("%d pods in %s, want %d", n, percents(r.from, r.to), r.pods)
		}
	}
	source.departed.Range(func(any, any) bool {
		t.Error("a stand-in was left")
		return true
	})
}

func TestTransformWithoutMetadataIsAnErrorAtTheStart(t *testing.T) {
	server := newFakeServer(sharding.HashKeyPath)
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	source, err := NewSource(Config{Field: sharding.HashKeyPath, ListWatch: server, Object: &v1.Pod{}, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	informer := source.NewInformer(cache.SharedIndexInformerOptions{})
	if err := informer.SetTransform(func(any) (any, error) { return &struct{}{}, nil }); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error)
	var once sync.Once
	if err := informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
		once.Do(func() { failed <- err })
	}); err != nil {
		t.Fatal(err)
	}
	server.write(newPod(sharding.HashKeyPath, "a", 10), false)
	source.SetRanges(percents(0, 100))
	ctx, cancel := context.WithTimeout(klog.NewContext(context.Background(), logger), patience)
	defer cancel()
	go informer.RunWithContext(ctx)
	select {
	case err := <-failed:
		if !strings.Contains(err.Error(), "keep the metadata") {
			t.Error(err)
		}
	case <-ctx.Done():
		t.Error("no error")
	}
}
