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

package fenced

import (
	"context"
	"fmt"
	"testing"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3/testserver"
	"k8s.io/client-go/tools/ring/fence"
)

// join creates the record of an instance on that ring that owns nothing.
func (w *world) join(ring, name string) fence.Identity {
	w.t.Helper()
	record := &shardingv1alpha1.ControllerInstance{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name)},
		Spec:       shardingv1alpha1.ControllerInstanceSpec{Ring: ring, LeaseDurationSeconds: 600},
	}
	w.must(w.registry.Create(w.ctx, "/controllerinstances/"+name, record, nil, 0))
	return fence.Identity{Ring: ring, Name: name, UID: record.UID}
}

// take has the instance take that key for itself, through a registry.
func (w *world) take(registry storage.Interface, identity fence.Identity, key int64) error {
	through := *w
	through.registry = registry
	return through.updateAs(w.as(identity), identity.Name, func(r *shardingv1alpha1.ControllerInstance) { r.Spec.HashKey = (*shardingv1alpha1.HashKey)(&key) })
}

func (w *world) record(name string) *shardingv1alpha1.ControllerInstance {
	w.t.Helper()
	record := &shardingv1alpha1.ControllerInstance{}
	w.must(w.registry.Get(w.ctx, "/controllerinstances/"+name, storage.GetOptions{IgnoreNotFound: true}, record))
	return record
}

func TestAnInstanceTakesAnyKeyOnlyWhereNobodyOwnsOne(t *testing.T) {
	etcd := testserver.RunEtcd(t, nil)
	for _, ring := range []string{"workloads", "test"} {
		for _, key := range []int64{0, 5, hashkey.Max} {
			t.Run(fmt.Sprintf("%s %d", ring, key), func(t *testing.T) {
				w := newWorld(t, etcd, etcd)
				a, b, other := w.join(ring, ring+"-a"), w.join(ring, ring+"-b"), w.join("other", "other-a")
				if got := w.refusedFor(func() error { return w.take(w.registry, other, 7) }); got != "" {
					t.Fatalf("the first of another ring is refused for %q", got)
				}
				if got := w.refusedFor(func() error { return w.take(w.registry, a, key) }); got != "" {
					t.Fatalf("the first is refused for %q", got)
				}
				for _, second := range []int64{key, 0, 5, 9, hashkey.Max} {
					if got := w.refusedFor(func() error { return w.take(w.registry, b, second) }); got != reasonNotGiven {
						t.Errorf("a second one takes %d: refused for %q, want not_given", second, got)
					}
				}
				if got := w.refusedFor(func() error { return w.take(w.registry, a, key/2+1) }); got != reasonNotGiven {
					t.Errorf("the first moves its key: refused for %q, want not_given", got)
				}
				w.remove(a.Name)
				if got := w.refusedFor(func() error { return w.take(w.registry, b, key) }); got != "" {
					t.Errorf("after the first has gone, the second is refused for %q", got)
				}
			})
		}
	}
}

// That nobody owns a key must hold in the very transaction.
func TestAFirstKeyIsHeldUntilTheTransaction(t *testing.T) {
	etcd := testserver.RunEtcd(t, nil)
	const many = 30
	for what, tc := range map[string]struct {
		happens func(w *world, ring string)
		want    string
		anew    bool
	}{
		"nothing": {func(*world, string) {}, "", false},
		"another takes the same key": {func(w *world, ring string) {
			w.must(w.take(w.registry, fence.Identity{Ring: ring, Name: ring + "-b", UID: types.UID("uid-of-" + ring + "-b")}, 5))
		}, reasonNotGiven, true},
		"another takes another key": {func(w *world, ring string) {
			w.must(w.take(w.registry, fence.Identity{Ring: ring, Name: ring + "-b", UID: types.UID("uid-of-" + ring + "-b")}, hashkey.Max))
		}, reasonNotGiven, true},
		"one that registers takes a key": {func(w *world, ring string) {
			w.must(w.take(w.registry, w.join(ring, ring+"-c"), 9))
		}, reasonNotGiven, true},
		"somebody else writes another's key": {func(w *world, ring string) {
			w.update(ring+"-b", func(r *shardingv1alpha1.ControllerInstance) { r.Spec.HashKey = (*shardingv1alpha1.HashKey)(all) })
		}, reasonNotGiven, true},
		"another tells news": {func(w *world, ring string) {
			w.update(ring+"-b", func(r *shardingv1alpha1.ControllerInstance) { r.Status.Busy++ })
		}, "", true},
		"many register": {func(w *world, ring string) {
			for i := range many {
				w.join(ring, fmt.Sprintf("%s-m%d", ring, i))
			}
		}, "", true},
		"another tells news and goes": {func(w *world, ring string) {
			w.update(ring+"-b", func(r *shardingv1alpha1.ControllerInstance) { r.Status.Busy++ })
			w.remove(ring + "-b")
		}, "", false},
		"one that owned goes": {func(w *world, ring string) {
			c := w.join(ring, ring+"-c")
			w.must(w.take(w.registry, c, 9))
			w.remove(c.Name)
		}, "", false},
		"it tells news itself": {func(w *world, ring string) {
			w.update(ring+"-a", func(r *shardingv1alpha1.ControllerInstance) { r.Status.Busy++ })
		}, "", false},
	} {
		for _, ring := range []string{"workloads", "test"} {
			t.Run(what+" "+ring, func(t *testing.T) {
				w := newWorld(t, etcd, etcd)
				client := connect(t, etcd)
				pausing := &pausingKV{KV: client.KV}
				client.KV = pausing
				held := openRegistry(t, client, w.prefix)
				a := w.join(ring, ring+"-a")
				w.join(ring, ring+"-b")
				anew := w.judgedAnew()
				pausing.before = func() { tc.happens(w, ring) }
				if got := w.refusedFor(func() error { return w.take(held, a, 5) }); got != tc.want {
					t.Errorf("refused for %q, want %q", got, tc.want)
				}
				if owns := w.record(a.Name).Spec.HashKey != nil; owns != (tc.want == "") {
					t.Errorf("it owns a key: %v", owns)
				}
				if got := w.judgedAnew() - anew; (got > 0) != tc.anew {
					t.Errorf("judged anew %d times", got)
				}
			})
		}
	}
}

// Of many that take keys at the same time, while others register and tell news, one gets its key.
func TestOfManyThatTakeAKeyAtOnceOneGetsIt(t *testing.T) {
	etcd := testserver.RunEtcd(t, nil)
	w := newWorld(t, etcd, etcd)
	for round := range 10 {
		const crowd = 8
		name := func(i int) string { return fmt.Sprintf("workloads-%d-%d", round, i) }
		ctx, stop := context.WithCancel(w.ctx)
		talked := make(chan error, 1)
		w.join("workloads", "workloads-talks")
		go func() {
			var err error
			for ctx.Err() == nil && err == nil {
				err = w.updateAs(w.ctx, "workloads-talks", func(r *shardingv1alpha1.ControllerInstance) { r.Status.Busy++ })
			}
			talked <- err
		}()
		results := make(chan error, crowd)
		for i := range crowd {
			identity := w.join("workloads", name(i))
			go func() { results <- w.take(w.registry, identity, int64(i)) }()
		}
		won := 0
		for range crowd {
			if err := <-results; err == nil {
				won++
			} else if !fence.IsFenced(err) {
				t.Error(err)
			}
		}
		stop()
		w.must(<-talked)
		if won != 1 {
			t.Errorf("round %d: %d own a key, want 1", round, won)
		}
		for i := range crowd {
			w.remove(name(i))
		}
		w.remove("workloads-talks")
	}
}
