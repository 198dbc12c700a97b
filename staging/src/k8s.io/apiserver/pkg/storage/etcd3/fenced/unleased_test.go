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
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage/etcd3/testserver"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/component-base/metrics/testutil"
)

// registerLeased creates a record under a lease, as the registry does.
func (w *world) registerLeased(name string, seconds int32) {
	w.t.Helper()
	record := &shardingv1alpha1.ControllerInstance{}
	record.Name, record.UID = name, "uid-of-"+"leased"
	record.Spec.Ring, record.Spec.HolderIdentity, record.Spec.LeaseDurationSeconds = "test", "host_1", seconds
	w.must(w.registry.Create(WithLease(w.ctx, &Lease{TTL: 600}), "/controllerinstances/"+name, record, nil, 0))
}

// copyKey writes the key of a record as who copies keys does, and returns the revision: its lease
// is not copied.
func (w *world) copyKey(name string, opts ...clientv3.OpOption) int64 {
	w.t.Helper()
	key := w.prefix + "/controllerinstances/" + name
	stored, err := w.etcd.KV.Get(w.ctx, key)
	w.must(err)
	if len(stored.Kvs) != 1 {
		w.t.Fatalf("%s is not stored", key)
	}
	put, err := w.etcd.KV.Put(w.ctx, key, string(stored.Kvs[0].Value), opts...)
	w.must(err)
	return put.Header.Revision
}

func (w *world) isThere(name string) bool { return w.record(name).Name != "" }

func (w *world) removed() int {
	w.t.Helper()
	n, err := testutil.GetCounterMetricValue(unleasedRemoved)
	w.must(err)
	return int(n)
}

// No version of a record is ever without its lease, so none can be taken for one that has been
// copied.
func TestEveryWriteOfARecordIsUnderItsLease(t *testing.T) {
	etcd := testserver.RunEtcd(t, nil)
	w := newWorld(t, etcd, etcd)
	events := etcd.Watch(w.ctx, w.prefix+"/controllerinstances/", clientv3.WithPrefix(), clientv3.WithRev(1))
	w.registerLeased("a", 600)
	for range 3 {
		w.must(w.updateAs(WithLease(w.ctx, &Lease{}), "a", func(r *shardingv1alpha1.ControllerInstance) { r.Status.Busy++ }))
	}
	var leases []int64
	for len(leases) < 4 {
		for _, event := range (<-events).Events {
			leases = append(leases, event.Kv.Lease)
		}
	}
	for _, lease := range leases {
		if lease == 0 || lease != leases[0] {
			t.Errorf("its versions were written under the leases %x, want one", leases)
		}
	}
}

// Each API server looks at its start, and all who watch the registry see what it removes.
func TestARecordWithoutALeaseIsRemovedAsIfItHadOne(t *testing.T) {
	etcd := testserver.RunEtcd(t, nil)
	w := newWorld(t, etcd, etcd)
	w.registerLeased("copied", 2)
	w.registerLeased("leased", 2)
	revision := w.copyKey("copied")
	before := w.removed()
	copied := deploymentOf(w.prefix).registry().etcdKey("copied")
	events := etcd.Watch(w.ctx, w.prefix+"/controllerinstances/", clientv3.WithPrefix(), clientv3.WithRev(revision+1))
	began := time.Now()
	for range 3 {
		openRegistry(t, connect(t, etcd), w.prefix)
	}
	select {
	case got := <-events:
		if len(got.Events) != 1 || got.Events[0].Type != clientv3.EventTypeDelete || string(got.Events[0].Kv.Key) != copied {
			t.Errorf("the watch has %+v, want that %s is gone", got.Events, copied)
		}
	case <-time.After(wait.ForeverTestTimeout):
		t.Fatal("the record is there still")
	}
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("it was removed after %v, before its instance had to stop", took)
	}
	if w.isThere("copied") || !w.isThere("leased") {
		t.Errorf("the record without a lease is there: %v; the one with a lease: %v", w.isThere("copied"), w.isThere("leased"))
	}
	// The counter rises after the watch has told.
	err := wait.PollUntilContextTimeout(w.ctx, 10*time.Millisecond, wait.ForeverTestTimeout, true, func(context.Context) (bool, error) {
		return w.removed() > before, nil
	})
	if n := w.removed() - before; err != nil || n != 1 {
		t.Errorf("%d removals were counted, want 1", n)
	}
}

func TestARecordIsRemovedOnlyAfterItHasBeenWithoutALeaseForThatLong(t *testing.T) {
	const lease = 600
	begin := time.Now()
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	etcd := testserver.RunEtcd(t, nil)
	for what, tc := range map[string]struct {
		happens func(w *world)
		look    time.Time
		there   bool
	}{
		"not so long":       {func(*world) {}, at(lease - 1), true},
		"so long":           {func(*world) {}, at(lease), false},
		"and is written to": {func(w *world) { w.update("a", func(r *shardingv1alpha1.ControllerInstance) { r.Status.Busy++ }) }, at(lease), false},
		"but another takes its name": {func(w *world) {
			w.remove("a")
			w.registerLeased("a", lease)
			w.copyKey("a")
		}, at(lease), true},
		"but gets a lease": {func(w *world) {
			granted, err := w.etcd.Grant(w.ctx, lease)
			w.must(err)
			w.copyKey("a", clientv3.WithLease(granted.ID))
		}, at(2 * lease), true},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, etcd, etcd)
			r, seen := deploymentOf(w.prefix).registry(), map[string]unleased{}
			w.registerLeased("a", lease)
			w.must(r.lookForUnleased(w.ctx, seen, at(-1)))
			if len(seen) != 0 {
				t.Errorf("a record with a lease is seen as %v", seen)
			}
			w.copyKey("a")
			w.must(r.lookForUnleased(w.ctx, seen, at(0)))
			tc.happens(w)
			w.must(r.lookForUnleased(w.ctx, seen, tc.look))
			if there := w.isThere("a"); there != tc.there {
				t.Errorf("it is there: %v", there)
			}
			if !tc.there {
				w.must(r.lookForUnleased(w.ctx, seen, tc.look))
			}
			if known := what == "not so long" || what == "but another takes its name"; (len(seen) == 1) != known {
				t.Errorf("%v is remembered", seen)
			}
		})
	}
}

// What has changed since it was looked at may have a lease by now.
func TestARemovalComparesTheModRevisionAndTheLease(t *testing.T) {
	etcd := testserver.RunEtcd(t, nil)
	w := newWorld(t, etcd, etcd)
	r := deploymentOf(w.prefix).registry()
	w.registerLeased("a", 600)
	copied := w.copyKey("a")
	granted, err := etcd.Grant(w.ctx, 600)
	w.must(err)
	leased := w.copyKey("a", clientv3.WithLease(granted.ID))
	before := w.removed()
	for _, revision := range []int64{copied, leased} {
		w.must(r.removeUnleased(w.ctx, "a", revision))
	}
	again := w.copyKey("a")
	w.must(r.removeUnleased(w.ctx, "a", copied))
	if !w.isThere("a") || w.removed() != before {
		t.Errorf("the record is there: %v; %d removals were counted", w.isThere("a"), w.removed()-before)
	}
	w.must(r.removeUnleased(w.ctx, "a", again))
	if w.isThere("a") || w.removed()-before != 1 {
		t.Errorf("the record is there: %v; %d removals were counted", w.isThere("a"), w.removed()-before)
	}
}

// Its instance may still be at work: it removes the record itself, once it is not.
func TestARenewalFindsNoLeaseAndLeavesTheRecordToItsInstance(t *testing.T) {
	etcd := testserver.RunEtcd(t, nil)
	w := newWorld(t, etcd, etcd)
	w.registerLeased("a", 600)
	renew := func() error {
		lease := &Lease{}
		w.must(w.updateAs(WithLease(w.ctx, lease), "a", func(*shardingv1alpha1.ControllerInstance) {}))
		return lease.KeepAlive(w.ctx)
	}
	w.must(renew())
	w.copyKey("a")
	before := w.removed()
	if err := renew(); !errors.Is(err, ErrLeaseNotFound) {
		t.Errorf("got %v, want %v", err, ErrLeaseNotFound)
	}
	if !w.isThere("a") || w.removed() != before {
		t.Errorf("the record is there: %v; %d removals were counted", w.isThere("a"), w.removed()-before)
	}
}

func TestWithTheFeatureGateOffNobodyLooksForRecords(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.ControllerRing, false)
	etcd := testserver.RunEtcd(t, nil)
	w := newWorld(t, etcd, etcd)
	if deploymentOf(w.prefix).registry() != nil {
		t.Error("there is a registry")
	}
}
