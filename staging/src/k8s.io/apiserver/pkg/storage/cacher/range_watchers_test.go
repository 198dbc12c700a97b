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

package cacher

import (
	"context"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// An object that changes its controller is deleted in the range that it leaves and added
// in the range that it enters. An object without a controller is in every range.
func TestRangeWatchersSeeTransitions(t *testing.T) {
	withGates(t)
	const parts = 8
	pods := benchPodList(100)
	cacher := benchCacher(t, pods)
	partOf := func(pod *corev1.Pod) int {
		key, _ := metav1.HashKeyOfController(pod)
		return int(uint64(key) / (hashkey.Limit / parts))
	}
	var watches []watch.Interface
	for i := range uint64(parts) {
		w, err := cacher.Watch(context.Background(), "/pods/", storage.ListOptions{ResourceVersion: "101", Recursive: true, Predicate: part(t, sharding.ControllerHashKeyPath, i, parts)})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		watches = append(watches, w)
	}
	from := partOf(pods[0])
	other := slices.IndexFunc(pods, func(pod *corev1.Pod) bool { return partOf(pod) != from })
	if other < 0 {
		t.Fatal("all pods are in one part")
	}
	to := partOf(pods[other])
	next := func(i int, want watch.EventType) {
		t.Helper()
		if event := <-watches[i].ResultChan(); event.Type != want {
			t.Errorf("part %d got %s, want %s", i, event.Type, want)
		}
	}
	update := func(version int, owners []metav1.OwnerReference) {
		t.Helper()
		pod := pods[0].DeepCopy()
		pod.ResourceVersion = strconv.Itoa(version)
		pod.OwnerReferences = owners
		if err := cacher.watchCache.Update(pod); err != nil {
			t.Fatal(err)
		}
	}
	update(102, pods[other].OwnerReferences) // from one controller to another
	next(from, watch.Deleted)
	next(to, watch.Added)
	update(103, nil) // to none, which is in every range
	for i := range watches {
		want := watch.Added
		if i == to {
			want = watch.Modified
		}
		next(i, want)
	}
	update(104, pods[0].OwnerReferences) // adopted again
	for i := range watches {
		want := watch.Deleted
		if i == from {
			want = watch.Modified
		}
		next(i, want)
	}
}
