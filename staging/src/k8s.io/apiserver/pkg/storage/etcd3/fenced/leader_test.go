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
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	coordinationv1 "k8s.io/api/coordination/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3/testserver"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/utils/ptr"
)

const leaderKey = "/leases/kube-system/kube-controller-manager"

var signed = ring.SignLeader("host_1", []string{"*", "-" + controller})

// leaderWorld is a world with leases.
type leaderWorld struct {
	*world
	// pausing is the KV that leases are written with.
	pausing *pausingKV
	leases  storage.Interface
}

// newLeaderWorld puts leases into one etcd and the registry into another, which may be the same.
func newLeaderWorld(t *testing.T, leasesIn, registryIn *kubernetes.Client) *leaderWorld {
	return newLeaderWorldThrough(t, leasesIn, registryIn, func(kv clientv3.KV) clientv3.KV { return kv })
}

func newLeaderWorldThrough(t *testing.T, leasesIn, registryIn *kubernetes.Client, between func(clientv3.KV) clientv3.KV) *leaderWorld {
	w := newWorldThrough(t, registryIn, registryIn, between)
	client := connect(t, leasesIn)
	pausing := &pausingKV{KV: between(client.KV)}
	client.KV = pausing
	return &leaderWorld{world: w, pausing: pausing, leases: open(t, client, w.prefix, leases, coordinationv1.SchemeGroupVersion,
		func() runtime.Object { return &coordinationv1.Lease{} }, func() runtime.Object { return &coordinationv1.LeaseList{} })}
}

func lease(holder string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: leaderName, Namespace: leaderNamespace, UID: "lease"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
	}
}

func (w *leaderWorld) createLease(ctx context.Context, key, holder string) error {
	return w.leases.Create(ctx, key, lease(holder), nil, 0)
}

// hold has the holder take or renew the Lease, which counts how often. cached is what an API
// server has seen of the Lease; nil: that is not used.
func (w *leaderWorld) hold(ctx context.Context, holder string, cached runtime.Object) error {
	return w.leases.GuaranteedUpdate(ctx, leaderKey, &coordinationv1.Lease{}, true, nil,
		storage.SimpleUpdate(func(object runtime.Object) (runtime.Object, error) {
			after := lease(holder)
			after.ResourceVersion = object.(*coordinationv1.Lease).ResourceVersion
			after.Spec.LeaseTransitions = ptr.To(ptr.Deref(object.(*coordinationv1.Lease).Spec.LeaseTransitions, 0) + 1)
			return after, nil
		}), cached)
}

func (w *leaderWorld) lease() *coordinationv1.Lease {
	w.t.Helper()
	got := &coordinationv1.Lease{}
	w.must(w.leases.Get(w.ctx, leaderKey, storage.GetOptions{IgnoreNotFound: true}, got))
	return got
}

func (w *leaderWorld) holder() string {
	w.t.Helper()
	return ptr.Deref(w.lease().Spec.HolderIdentity, "")
}

// wantRefused requires that the Lease was refused because of that record, and that it was counted.
func (w *leaderWorld) wantRefused(write func() error, record string) {
	w.t.Helper()
	count := func() float64 {
		n, err := testutil.GetCounterMetricValue(refusals.WithLabelValues(reasonUnsignedLeader))
		w.must(err)
		return n
	}
	before := count()
	err := write()
	if !apierrors.IsConflict(err) || !fence.IsRingsRunning(err) || fence.IsFenced(err) || !strings.Contains(err.Error(), "ControllerInstance "+record+" is registered") {
		w.t.Errorf("got %v, want a conflict that names %s", err, record)
	}
	if n := count() - before; n != 1 {
		w.t.Errorf("%v refusals were counted, want 1", n)
	}
}

// eachWay runs the test where one transaction compares the records and where none can.
func eachWay(t *testing.T, test func(t *testing.T, w *leaderWorld)) {
	etcd, other := testserver.RunEtcd(t, nil), testserver.RunEtcd(t, nil)
	t.Run("in one etcd", func(t *testing.T) { test(t, newLeaderWorld(t, etcd, etcd)) })
	t.Run("in another etcd", func(t *testing.T) { test(t, newLeaderWorld(t, other, etcd)) })
	t.Run("without such transactions", func(t *testing.T) {
		test(t, newLeaderWorldThrough(t, etcd, etcd, func(kv clientv3.KV) clientv3.KV { return simpleKV{kv} }))
	})
}

func TestAHolderWithoutRingsGetsTheLeadersLeaseOnlyWhileNoInstanceIsRegistered(t *testing.T) {
	eachWay(t, func(t *testing.T, w *leaderWorld) {
		w.register("workloads-b", nil)
		w.register("workloads-a", nil)
		w.wantRefused(func() error { return w.createLease(w.ctx, leaderKey, "stock") }, "workloads-a")
		w.wantRefused(func() error { return w.hold(w.ctx, "stock", nil) }, "workloads-a")
		if got := w.lease(); got.UID != "" {
			t.Fatalf("there is a Lease, held by %q", *got.Spec.HolderIdentity)
		}
		w.must(w.createLease(w.ctx, "/leases/kube-system/kube-scheduler", "stock"))
		w.must(w.createLease(w.ctx, "/leases/other/kube-controller-manager", "stock"))

		w.must(w.hold(w.ctx, signed, nil))
		w.wantRefused(func() error { return w.hold(w.ctx, "stock", nil) }, "workloads-a")
		w.must(w.hold(w.ctx, "", nil))
		w.wantRefused(func() error { return w.hold(w.ctx, "stock", nil) }, "workloads-a")
		w.remove("workloads-a")
		w.wantRefused(func() error { return w.hold(w.ctx, "stock", nil) }, "workloads-b")
		w.remove("workloads-b")
		w.register("operators-a", nil)
		w.register("workload-a", nil)
		w.register("workloads", nil)
		w.must(w.hold(w.ctx, "stock", nil))

		for _, ring := range ring.ManagerRings {
			w.register(ring+"-a", nil)
			w.must(w.hold(w.ctx, "stock", nil))
			w.wantRefused(func() error { return w.hold(w.ctx, "another", nil) }, ring+"-a")
			w.remove(ring + "-a")
		}
		w.register("workloads-a", nil)
		w.must(w.hold(w.ctx, signed, nil))
		if got := w.holder(); got != signed {
			t.Errorf("the holder is %q, want %q", got, signed)
		}
		w.must(w.leases.Delete(w.ctx, leaderKey, &coordinationv1.Lease{}, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}))
		w.wantRefused(func() error { return w.createLease(w.ctx, leaderKey, "stock") }, "workloads-a")
		w.must(w.createLease(w.ctx, leaderKey, ""))
	})
}

// Whatever registers or goes until the transaction, the transaction knows.
func TestTheTransactionThatStoresTheLeadersLeaseFindsTheRecords(t *testing.T) {
	etcd := testserver.RunEtcd(t, nil)
	for what, write := range map[string]func(*leaderWorld) error{
		"create": func(w *leaderWorld) error { return w.createLease(w.ctx, leaderKey, "stock") },
		"update": func(w *leaderWorld) error { return w.hold(w.ctx, "stock", nil) },
	} {
		t.Run(what, func(t *testing.T) {
			w := newLeaderWorld(t, etcd, etcd)
			if what == "update" {
				w.must(w.createLease(w.ctx, leaderKey, signed))
			}
			w.pausing.before = func() { w.register("claims-a", nil) }
			w.wantRefused(func() error { return write(w) }, "claims-a")
			if got := w.holder(); got == "stock" {
				t.Error("it has the Lease")
			}
			w.pausing.before = func() { w.remove("claims-a") }
			w.must(write(w))
			if got := w.holder(); got != "stock" {
				t.Errorf("the holder is %q, want stock", got)
			}
		})
	}
}

// A record that goes between the transaction and the look at the registry is in nobody's way.
func TestARecordThatGoesAfterTheTransactionLeadsToAnotherTry(t *testing.T) {
	etcd := testserver.RunEtcd(t, nil)
	w := newLeaderWorld(t, etcd, etcd)
	w.register("workloads-a", nil)
	anew := w.judgedAnew()
	reader := w.world.deploymentRegistry()
	reader.storage = &goingStorage{Interface: reader.storage, before: func() { w.remove("workloads-a") }}
	w.must(w.createLease(w.ctx, leaderKey, "stock"))
	if got := w.judgedAnew() - anew; got != 1 {
		t.Errorf("judged anew %d times, want once", got)
	}
}

func (w *world) deploymentRegistry() *registry { return deploymentOf(w.prefix).registry() }

// goingStorage calls before the first list what a test has put there.
type goingStorage struct {
	storage.Interface
	before func()
}

func (s *goingStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if before := s.before; before != nil {
		s.before = nil
		before()
	}
	return s.Interface.GetList(ctx, key, opts, list)
}

// An API server that has not seen the last change of the Lease takes a renewal for a change of
// the holder.
func TestARenewalOnAnOldLookAtTheLeaseIsNotRefused(t *testing.T) {
	etcd := testserver.RunEtcd(t, nil)
	w := newLeaderWorld(t, etcd, etcd)
	w.must(w.createLease(w.ctx, leaderKey, signed))
	old := w.lease()
	w.must(w.hold(w.ctx, "stock", nil))
	w.register("workloads-a", nil)
	w.must(w.hold(w.ctx, "stock", old))
	w.wantRefused(func() error { return w.hold(w.ctx, "another", old) }, "workloads-a")
}

// A write of the Lease in the name of an instance has to pass both.
func TestTheLeadersLeaseWrittenByAnInstanceIsFencedToo(t *testing.T) {
	eachWay(t, func(t *testing.T, w *leaderWorld) {
		operator := w.register("operators-a", all)
		w.update("operators-a", func(r *shardingv1alpha1.ControllerInstance) {
			r.Spec.Governs = []shardingv1alpha1.Governs{{Controller: "*", Group: leases.Group, Resource: leases.Resource, By: shardingv1alpha1.GoverningKeyOwn}}
		})
		w.must(w.hold(w.as(operator), "stock", nil))
		w.register("claims-a", nil)
		w.must(w.hold(w.as(operator), "stock", nil))
		w.wantRefused(func() error { return w.hold(w.as(operator), "another", nil) }, "claims-a")
		replaced := operator
		replaced.UID = types.UID("another")
		if got := w.refusedFor(func() error { return w.hold(w.as(replaced), "stock", nil) }); got != reasonReplaced {
			t.Errorf("refused for %q, want replaced", got)
		}
		w.remove("claims-a")
		w.must(w.hold(w.as(operator), "another", nil))
		w.remove("operators-a")
		if got := w.refusedFor(func() error { return w.hold(w.as(operator), "another", nil) }); got != reasonGone {
			t.Errorf("refused for %q, want gone", got)
		}
	})
}

// One transaction finds out both.
func TestATransactionWithTwoConditionsFindsEither(t *testing.T) {
	etcd := testserver.RunEtcd(t, nil)
	w := newLeaderWorld(t, etcd, etcd)
	operator := w.register("operators-a", all)
	w.update("operators-a", func(r *shardingv1alpha1.ControllerInstance) {
		r.Spec.Governs = []shardingv1alpha1.Governs{{Controller: "*", Group: "*", Resource: "*", By: shardingv1alpha1.GoverningKeyOwn}}
	})
	w.must(w.hold(w.as(operator), signed, nil))
	w.pausing.before = func() {
		w.update("operators-a", func(r *shardingv1alpha1.ControllerInstance) { r.Status.Busy++ })
		w.register("workloads-a", nil)
	}
	w.wantRefused(func() error { return w.hold(w.as(operator), "stock", nil) }, "workloads-a")
	w.pausing.before = func() {
		w.remove("workloads-a")
		w.remove("operators-a")
	}
	if got := w.refusedFor(func() error { return w.hold(w.as(operator), "stock", nil) }); got != reasonGone {
		t.Errorf("refused for %q, want gone", got)
	}
	if got := w.holder(); got != signed {
		t.Errorf("the holder is %q, want %q", got, signed)
	}
	w.must(w.hold(w.ctx, "stock", nil))
}

func TestWithoutARegistryTheLeadersLeaseIsStoredAsItIs(t *testing.T) {
	etcd := testserver.RunEtcd(t, nil)
	client := connect(t, etcd)
	w := &leaderWorld{world: &world{t: t, ctx: t.Context()}, leases: open(t, client, "/"+t.Name(), leases, coordinationv1.SchemeGroupVersion,
		func() runtime.Object { return &coordinationv1.Lease{} }, func() runtime.Object { return &coordinationv1.LeaseList{} })}
	w.must(w.createLease(w.ctx, leaderKey, "stock"))
	w.must(w.hold(w.ctx, "another", nil))
}
