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
	"fmt"
	"math/rand"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher/metrics"
	"k8s.io/utils/ptr"
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

// keyedVolume returns a volume with a key at every path.
func keyedVolume(namespace, name string, controller, claim types.UID) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name),
			OwnerReferences: []metav1.OwnerReference{{UID: controller, Controller: ptr.To(true)}},
		},
		Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{UID: claim}},
	}
}

func eventOf(kind watch.EventType, before, after *corev1.PersistentVolume) *watchCacheEvent {
	event := &watchCacheEvent{Type: kind, Object: after, ObjFields: fields.Set{"metadata.namespace": after.Namespace, "metadata.name": after.Name}}
	if before != nil {
		event.PrevObject = before
	}
	return event
}

// On every path and in every scope an event is offered once to each watcher whose range held
// its object or holds it now, and to no other.
func TestEventsFindTheWatchersOfTheirRanges(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	uids := []types.UID{"a", "b", "c", "d", "e"}
	uid := func() types.UID { return uids[random.Intn(len(uids))] }
	volume := func(namespace, name string) *corev1.PersistentVolume {
		v := keyedVolume(namespace, name, uid(), uid())
		if random.Intn(4) == 0 {
			v.OwnerReferences = nil
		}
		if random.Intn(4) == 0 {
			v.Spec.ClaimRef = nil
		}
		return v
	}
	namespaces, names := []string{"", "team", "other"}, []string{"", "x", "y"}
	pick := func(from []string) string { return from[random.Intn(len(from))] }
	counters := metrics.NewRangeIndexCounters(schema.GroupResource{Resource: "volumes"})

	var watchers rangeWatchers
	scopes := map[*cacheWatcher]namespacedName{}
	for number := range 300 {
		start := uint64(random.Int63())
		ranges := hashkey.NewRanges(hashkey.Range{Start: start, End: start + hashkey.Limit/4}, hashkey.Range{Start: 0, End: uint64(random.Int63()) / 8})
		path := sharding.KeyPath(number) % sharding.NumKeyPaths
		var requirements []sharding.ShardRangeRequirement
		for _, r := range ranges {
			requirements = append(requirements, sharding.ShardRangeRequirement{Key: path.String(), Start: fmt.Sprintf("0x%016x", r.Start), End: fmt.Sprintf("0x%016x", r.End)})
		}
		w := &cacheWatcher{hashKeys: sharding.NewSelector(requirements...).(sharding.HashKeySelector)}
		scopes[w] = namespacedName{namespace: pick(namespaces), name: pick(names)}
		if !watchers.addWatcher(w, number, scopes[w]) {
			t.Fatal("a watcher of a range was not taken")
		}
	}

	offered := 0
	for range 500 {
		namespace, name := pick(namespaces), pick(names[1:])
		var event *watchCacheEvent
		switch random.Intn(3) {
		case 0:
			event = eventOf(watch.Added, nil, volume(namespace, name))
		case 1:
			event = eventOf(watch.Modified, volume(namespace, name), volume(namespace, name))
		default:
			// The last state counts, not that which comes with the deletion.
			event = eventOf(watch.Deleted, volume(namespace, name), volume(namespace, name))
		}
		got := map[*cacheWatcher]int{}
		for _, w := range watchers.appendInterested(nil, event, counters) {
			got[w]++
		}
		for w, scope := range scopes {
			inRange := func(obj runtime.Object) bool {
				matched, err := w.hashKeys.Matches(obj)
				return err == nil && matched
			}
			held := event.Type != watch.Added && inRange(event.PrevObject)
			holds := event.Type != watch.Deleted && inRange(event.Object)
			inScope := (scope.namespace == "" || scope.namespace == namespace) && (scope.name == "" || scope.name == name)
			want := 0
			if inScope && (held || holds) {
				want = 1
			}
			if got[w] != want {
				t.Errorf("%s of %s/%s: offered %d times to the watcher of %s in %v, want %d", event.Type, namespace, name, got[w], w.hashKeys, scope, want)
			}
			offered += want
		}
	}
	if offered == 0 {
		t.Error("no event was for anybody")
	}
}

// countedVolume counts how often each of its keys is read.
type countedVolume struct {
	*corev1.PersistentVolume
	reads *[sharding.NumKeyPaths]int
}

func (v countedVolume) GetUID() types.UID {
	v.reads[sharding.KeyPathOwn]++
	return v.PersistentVolume.GetUID()
}

func (v countedVolume) GetControllerHashKey() (int64, bool) {
	v.reads[sharding.KeyPathController]++
	return v.PersistentVolume.GetControllerHashKey()
}

func (v countedVolume) GetNamespaceHashKey() (int64, bool) {
	v.reads[sharding.KeyPathNamespace]++
	return v.PersistentVolume.GetNamespaceHashKey()
}

func (v countedVolume) GetClaimHashKey() (int64, bool) {
	v.reads[sharding.KeyPathClaim]++
	return v.PersistentVolume.GetClaimHashKey()
}

// An event costs the reading of those keys alone that somebody in its scopes watches, once
// each for the object as it was and as it is.
func TestOnlyWatchedKeysAreRead(t *testing.T) {
	everywhere, team, other := namespacedName{}, namespacedName{namespace: "team"}, namespacedName{namespace: "other"}
	for name, tc := range map[string]struct {
		watched []sharding.KeyPath
		scopes  []namespacedName
		want    [sharding.NumKeyPaths]int
	}{
		"own":                {[]sharding.KeyPath{sharding.KeyPathOwn}, []namespacedName{everywhere}, [sharding.NumKeyPaths]int{sharding.KeyPathOwn: 2}},
		"controller":         {[]sharding.KeyPath{sharding.KeyPathController}, []namespacedName{everywhere}, [sharding.NumKeyPaths]int{sharding.KeyPathController: 2}},
		"home":               {[]sharding.KeyPath{sharding.KeyPathHome}, []namespacedName{everywhere}, [sharding.NumKeyPaths]int{sharding.KeyPathController: 2}},
		"namespace":          {[]sharding.KeyPath{sharding.KeyPathNamespace}, []namespacedName{everywhere}, [sharding.NumKeyPaths]int{sharding.KeyPathNamespace: 2}},
		"claim":              {[]sharding.KeyPath{sharding.KeyPathClaim}, []namespacedName{everywhere}, [sharding.NumKeyPaths]int{sharding.KeyPathClaim: 2}},
		"two scopes":         {[]sharding.KeyPath{sharding.KeyPathOwn, sharding.KeyPathOwn}, []namespacedName{everywhere, team}, [sharding.NumKeyPaths]int{sharding.KeyPathOwn: 2}},
		"another namespace":  {[]sharding.KeyPath{sharding.KeyPathOwn}, []namespacedName{other}, [sharding.NumKeyPaths]int{}},
		"a path in each":     {[]sharding.KeyPath{sharding.KeyPathOwn, sharding.KeyPathClaim}, []namespacedName{other, team}, [sharding.NumKeyPaths]int{sharding.KeyPathClaim: 2}},
		"two paths together": {[]sharding.KeyPath{sharding.KeyPathOwn, sharding.KeyPathClaim}, []namespacedName{team, team}, [sharding.NumKeyPaths]int{sharding.KeyPathOwn: 2, sharding.KeyPathClaim: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			var watchers rangeWatchers
			for number, path := range tc.watched {
				selector := part(t, path.String(), 0, 1).ShardSelector.(sharding.HashKeySelector)
				watchers.addWatcher(&cacheWatcher{hashKeys: selector}, number, tc.scopes[number])
			}
			var reads [sharding.NumKeyPaths]int
			event := eventOf(watch.Modified, nil, keyedVolume("team", "volume", "controller", "claim"))
			event.Object = countedVolume{keyedVolume("team", "volume", "controller", "claim"), &reads}
			event.PrevObject = event.Object
			watchers.appendInterested(nil, event, metrics.NewRangeIndexCounters(schema.GroupResource{Resource: "volumes"}))
			if reads != tc.want {
				t.Errorf("keys read, by path: %v, want %v", reads, tc.want)
			}
		})
	}
}
