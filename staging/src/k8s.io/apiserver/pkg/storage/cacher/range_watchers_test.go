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
	"k8s.io/apiserver/pkg/storage/cacher/metrics"
	storagemetrics "k8s.io/apiserver/pkg/storage/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// counted returns what the counter of that name has for pods with these labels.
func counted(t *testing.T, name string, labels map[string]string) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
	metrics:
		for _, metric := range family.GetMetric() {
			have := map[string]string{}
			for _, label := range metric.GetLabel() {
				have[label.GetName()] = label.GetValue()
			}
			for label, value := range labels {
				if have[label] != value {
					continue metrics
				}
			}
			return metric.GetCounter().GetValue()
		}
	}
	return 0
}

// An event reaches the watchers of the ranges that it leaves and enters, whether in
// all namespaces or one, and nobody else has to look at it.
func TestRangeWatchersAreSpared(t *testing.T) {
	withGates(t)
	metrics.Register()
	storagemetrics.Register()
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
	labels := map[string]string{"group": "", "resource": "pods"}
	offered, spared := "apiserver_watch_cache_range_index_offered_events_total", "apiserver_watch_cache_range_index_spared_events_total"
	offeredBefore, sparedBefore := counted(t, offered, labels), counted(t, spared, labels)
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
	if got, want := counted(t, offered, labels)-offeredBefore, 2.+parts+parts; got != want {
		t.Errorf("%v offered, want %v", got, want)
	}
	if got, want := counted(t, spared, labels)-sparedBefore, parts-2.; got != want {
		t.Errorf("%v spared, want %v", got, want)
	}

	listed := map[string]string{"group": "", "resource": "pods", "storage": "watchcache", "index": controllerHashKeyIndex}
	before := counted(t, "apiserver_storage_list_total", listed)
	opts := storage.ListOptions{ResourceVersion: "0", Recursive: true, Predicate: part(t, sharding.ControllerHashKeyPath, 0, parts)}
	if err := cacher.GetList(context.Background(), "/pods/", opts, &corev1.PodList{}); err != nil {
		t.Fatal(err)
	}
	if got := counted(t, "apiserver_storage_list_total", listed) - before; got != 1 {
		t.Errorf("%v lists counted for the index, want 1", got)
	}
}
