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

package storage

import (
	"context"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/controllerring"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistrytest "k8s.io/apiserver/pkg/registry/generic/testing"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/kubernetes/pkg/apis/sharding"
	_ "k8s.io/kubernetes/pkg/apis/sharding/install"
	"k8s.io/kubernetes/pkg/registry/registrytest"
	"k8s.io/utils/ptr"
)

// testRegistry is a registry with its own etcd.
type testRegistry struct {
	t *testing.T
	*REST
	status *StatusREST
	etcd   *clientv3.Client
	prefix string
}

func newTestRegistry(t *testing.T) *testRegistry {
	config, server := registrytest.NewEtcdStorageForResource(t, sharding.Resource("controllerinstances"))
	config.LeaseManagerConfig = etcd3.NewDefaultLeaseManagerConfig() // the default of a server
	instances, status, err := NewREST(generic.RESTOptions{
		StorageConfig:           config,
		Decorator:               generic.UndecoratedStorage,
		EnableGarbageCollection: true,
		DeleteCollectionWorkers: 1,
		ResourcePrefix:          "controllerinstances",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(instances.DestroyFunc)
	return &testRegistry{t: t, REST: instances, status: status, etcd: server.V3Client.Client, prefix: config.Prefix + "/controllerinstances/"}
}

func (r *testRegistry) tester() *genericregistrytest.Tester {
	test := genericregistrytest.New(r.t, r.Store).ClusterScope()
	test.SetRequestInfo(requestInfo("", ""))
	return test
}

func requestInfo(verb, subresource string) *genericapirequest.RequestInfo {
	return &genericapirequest.RequestInfo{APIGroup: "sharding.k8s.io", APIVersion: "v1alpha1", Resource: "controllerinstances", Subresource: subresource, Verb: verb}
}

func contextFor(verb, subresource string) context.Context {
	return genericapirequest.WithRequestInfo(genericapirequest.WithNamespace(genericapirequest.NewContext(), metav1.NamespaceNone), requestInfo(verb, subresource))
}

func newInstance(name string) *sharding.ControllerInstance {
	return &sharding.ControllerInstance{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: sharding.ControllerInstanceSpec{
			Ring:                 "test",
			HolderIdentity:       "host1",
			LeaseDurationSeconds: 60,
		},
	}
}

func (r *testRegistry) create(instance *sharding.ControllerInstance) {
	r.t.Helper()
	if _, err := r.Create(contextFor("create", ""), instance, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *testRegistry) get(name string) *sharding.ControllerInstance {
	r.t.Helper()
	obj, err := r.Get(contextFor("get", ""), name, &metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return obj.(*sharding.ControllerInstance)
}

func (r *testRegistry) wantGone(name string) {
	r.t.Helper()
	if _, err := r.Get(contextFor("get", ""), name, &metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		r.t.Errorf("%s: %v, want not found", name, err)
	}
}

// delete deletes the object, and checks whether it is gone at once.
func (r *testRegistry) delete(name string, ctx context.Context, grace *int64, wantGone bool) {
	r.t.Helper()
	_, gone, err := r.Delete(ctx, name, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{GracePeriodSeconds: grace})
	if err != nil || gone != wantGone {
		r.t.Fatalf("%s is gone at once: %v (%v), want %v", name, gone, err, wantGone)
	}
}

func (r *testRegistry) update(name string, change func(*sharding.ControllerInstance)) {
	r.t.Helper()
	r.mustUpdate(r.REST, contextFor("update", ""), name, change)
}

func (r *testRegistry) updateStatus(name string, change func(*sharding.ControllerInstance)) {
	r.t.Helper()
	r.mustUpdate(r.status, contextFor("update", "status"), name, change)
}

func (r *testRegistry) mustUpdate(updater rest.Updater, ctx context.Context, name string, change func(*sharding.ControllerInstance), dryRun ...string) {
	r.t.Helper()
	if err := r.updateBy(updater, ctx, name, change, dryRun...); err != nil {
		r.t.Fatal(err)
	}
}

func (r *testRegistry) updateBy(updater rest.Updater, ctx context.Context, name string, change func(*sharding.ControllerInstance), dryRun ...string) error {
	info := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
		instance := old.DeepCopyObject().(*sharding.ControllerInstance)
		change(instance)
		return instance, nil
	})
	_, _, err := updater.Update(ctx, name, info, rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{DryRun: dryRun})
	return err
}

// stored returns the object as it is in etcd.
func (r *testRegistry) stored(name string) *mvccpb.KeyValue {
	r.t.Helper()
	resp, err := r.etcd.Get(context.Background(), r.prefix+name)
	if err != nil {
		r.t.Fatal(err)
	}
	if len(resp.Kvs) != 1 {
		r.t.Fatalf("%s is not in etcd", r.prefix+name)
	}
	return resp.Kvs[0]
}

// left returns the whole seconds that the object's lease has left.
func (r *testRegistry) left(name string) int64 {
	r.t.Helper()
	left, err := r.etcd.TimeToLive(context.Background(), clientv3.LeaseID(r.stored(name).Lease))
	if err != nil {
		r.t.Fatal(err)
	}
	return left.TTL
}

func (r *testRegistry) waitUntilLeft(name string, seconds int64) {
	r.t.Helper()
	err := wait.PollUntilContextTimeout(r.t.Context(), 50*time.Millisecond, wait.ForeverTestTimeout, true, func(context.Context) (bool, error) {
		return r.left(name) <= seconds, nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// lease returns the etcd lease of the object. It fails the test if there is none, if another
// object shares it, or if it was not granted for want seconds.
func (r *testRegistry) lease(name string, want int64) clientv3.LeaseID {
	r.t.Helper()
	lease := clientv3.LeaseID(r.stored(name).Lease)
	if lease == clientv3.NoLease {
		r.t.Fatalf("%s has no lease", name)
	}
	left, err := r.etcd.TimeToLive(context.Background(), lease, clientv3.WithAttachedKeys())
	if err != nil {
		r.t.Fatal(err)
	}
	if len(left.Keys) != 1 || string(left.Keys[0]) != r.prefix+name {
		r.t.Errorf("the lease of %s has the keys %q", name, left.Keys)
	}
	if left.GrantedTTL != want {
		r.t.Errorf("the lease of %s was granted for %d s, want %d", name, left.GrantedTTL, want)
	}
	return lease
}

func TestCreate(t *testing.T) {
	r := newTestRegistry(t)
	valid, invalid := newInstance(""), newInstance("foo")
	valid.ObjectMeta = metav1.ObjectMeta{GenerateName: "foo"}
	invalid.Spec.Ring = ""
	r.tester().TestCreate(valid, invalid)
}

func TestUpdate(t *testing.T) {
	r := newTestRegistry(t)
	r.tester().TestUpdate(newInstance("foo"),
		func(obj runtime.Object) runtime.Object {
			obj.(*sharding.ControllerInstance).Spec.HashKey = ptr.To[int64](7)
			return obj
		},
		func(obj runtime.Object) runtime.Object {
			obj.(*sharding.ControllerInstance).Spec.HashKey = ptr.To[int64](-7)
			return obj
		},
	)
}

func TestDelete(t *testing.T) {
	newTestRegistry(t).tester().TestDelete(newInstance("foo"))
}

func TestGet(t *testing.T) {
	newTestRegistry(t).tester().TestGet(newInstance("foo"))
}

func TestList(t *testing.T) {
	newTestRegistry(t).tester().TestList(newInstance("foo"))
}

func TestWatch(t *testing.T) {
	newTestRegistry(t).tester().TestWatch(newInstance("foo"),
		[]labels.Set{},
		[]labels.Set{{"foo": "bar"}},
		[]fields.Set{{"metadata.name": "foo"}, {"spec.ring": "test"}},
		[]fields.Set{{"metadata.name": "bar"}, {"spec.ring": "claims"}},
	)
}

func TestShortNames(t *testing.T) {
	registrytest.AssertShortNames(t, newTestRegistry(t).REST, []string{"ci"})
}

// No two objects share a lease, whatever the order of their writes.
func TestLeasePerObject(t *testing.T) {
	r := newTestRegistry(t)
	owner := map[clientv3.LeaseID]string{}
	check := func(names ...string) {
		t.Helper()
		for _, name := range names {
			lease := r.lease(name, 60)
			if other, ok := owner[lease]; ok && other != name {
				t.Errorf("%s and %s share lease %x", name, other, lease)
			}
			owner[lease] = name
		}
	}
	r.create(newInstance("a"))
	r.create(newInstance("b"))
	check("a", "b")
	r.updateStatus("a", func(i *sharding.ControllerInstance) { i.Status.Weight = 1 })
	r.updateStatus("b", func(i *sharding.ControllerInstance) { i.Status.Weight = 1 })
	r.create(newInstance("c"))
	check("a", "b", "c")
	if len(owner) != 3 {
		t.Errorf("three objects have had %d leases", len(owner))
	}
}

func TestAnApplyThatCreatesIsUnderALeaseOfItsOwn(t *testing.T) {
	r := newTestRegistry(t)
	applied := newInstance("applied")
	_, created, err := r.Update(contextFor("patch", ""), applied.Name, rest.DefaultUpdatedObjectInfo(applied),
		rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, true, &metav1.UpdateOptions{})
	if err != nil || !created {
		t.Fatalf("created: %v, %v", created, err)
	}
	r.lease("applied", 60)
}

// An object stays under the lease that it was created with. No write renews it, and none,
// that which marks it as deleted included, takes the object off it.
func TestWritesLeaveAnObjectOnItsLease(t *testing.T) {
	r := newTestRegistry(t)
	r.create(newInstance("a"))
	first := r.lease("a", 60)
	r.waitUntilLeft("a", 58)
	written := r.stored("a").ModRevision
	kept := func(what string) {
		t.Helper()
		if lease := r.lease("a", 60); lease != first {
			t.Errorf("%s put it under another lease", what)
		}
		if left := r.left("a"); left > 58 {
			t.Errorf("%s renewed the lease: %d seconds are left", what, left)
		}
		if now := r.stored("a").ModRevision; now == written {
			t.Errorf("%s was not stored", what)
		} else {
			written = now
		}
	}

	r.updateStatus("a", func(i *sharding.ControllerInstance) { i.Status.Weight = 1 })
	kept("news")
	r.update("a", func(i *sharding.ControllerInstance) { i.Spec.HashKey = ptr.To[int64](5) })
	kept("a change of the spec")
	r.update("a", func(i *sharding.ControllerInstance) { i.Labels = map[string]string{"a": "b"} })
	kept("a label")
	r.update("a", func(i *sharding.ControllerInstance) { i.Finalizers = []string{"example.com/hold"} })
	kept("a finalizer")
	r.delete("a", contextFor("delete", ""), nil, false)
	kept("the mark of deletion")
	r.delete("a", contextFor("delete", ""), ptr.To[int64](0), false)
	kept("a delete at once, held by the finalizer")

	r.update("a", func(i *sharding.ControllerInstance) { i.Finalizers = nil })
	r.wantGone("a")
}

// An update of the status that changes nothing renews the lease and stores nothing. One of
// the object itself, and one that is a dry run, do neither.
func TestOnlyAStatusUpdateThatChangesNothingRenews(t *testing.T) {
	nothing := func(*sharding.ControllerInstance) {}
	for name, test := range map[string]struct {
		update    func(r *testRegistry)
		wantRenew bool
	}{
		"status": {update: func(r *testRegistry) { r.updateStatus("a", nothing) }, wantRenew: true},
		"object": {update: func(r *testRegistry) { r.update("a", nothing) }},
		"dry run": {update: func(r *testRegistry) {
			r.mustUpdate(r.status, contextFor("update", "status"), "a", nothing, metav1.DryRunAll)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestRegistry(t)
			r.create(newInstance("a"))
			lease, written := r.lease("a", 60), r.stored("a").ModRevision
			r.waitUntilLeft("a", 56)
			test.update(r)
			if renewed := r.left("a") > 56; renewed != test.wantRenew {
				t.Errorf("renewed: %v, want %v", renewed, test.wantRenew)
			}
			if r.lease("a", 60) != lease || r.stored("a").ModRevision != written {
				t.Error("something was stored")
			}
		})
	}
}

// A renewal of an object that has lost its lease is a conflict with a cause of its own, whether
// the lease ended between the read and the renewal or somebody took the object off it.
func TestARenewalWithoutALeaseIsAConflict(t *testing.T) {
	r := newTestRegistry(t)
	check := func(what string, err error) {
		t.Helper()
		if !apierrors.IsConflict(err) || !fence.IsLeaseLost(err) {
			t.Errorf("%s: got %v, want a conflict with cause %s", what, err, fence.CauseLeaseLost)
		}
	}
	r.create(newInstance("a"))
	lease := r.lease("a", 60)
	check("revoked", r.updateBy(r.status, contextFor("update", "status"), "a", func(*sharding.ControllerInstance) {
		if _, err := r.etcd.Revoke(context.Background(), lease); err != nil {
			t.Error(err)
		}
	}))

	r.create(newInstance("b"))
	if _, err := r.etcd.Put(context.Background(), r.prefix+"b", string(r.stored("b").Value)); err != nil {
		t.Fatal(err)
	}
	check("taken off", r.updateBy(r.status, contextFor("update", "status"), "b", func(*sharding.ControllerInstance) {}))
}

// An update of the status that names another UID is a conflict. Where the object is gone, it
// is not found.
func TestAStatusUpdateOfAnotherRegistrationIsAConflict(t *testing.T) {
	r := newTestRegistry(t)
	r.create(newInstance("a"))
	another := func(i *sharding.ControllerInstance) { i.UID = "another" }
	if err := r.updateBy(r.status, contextFor("update", "status"), "a", another); !apierrors.IsConflict(err) || fence.IsLeaseLost(err) {
		t.Errorf("another's UID: got %v, want a conflict without a cause", err)
	}
	if err := r.updateBy(r.status, contextFor("update", "status"), "b", another); !apierrors.IsNotFound(err) {
		t.Errorf("nobody's name: got %v, want not found", err)
	}
}

// The record of an instance that owns a range stays, marked, until the instance itself deletes
// it, or somebody who does not wait. No other delete hurries that, or begins it anew.
func TestADeletedOwnerStaysUntilItHasLeft(t *testing.T) {
	for name, end := range map[string]func(r *testRegistry, self fence.Identity){
		"its own delete": func(r *testRegistry, self fence.Identity) {
			r.delete("a", controllerring.NewContext(contextFor("delete", ""), self), nil, true)
		},
		"its own delete, in a hurry": func(r *testRegistry, self fence.Identity) {
			r.delete("a", controllerring.NewContext(contextFor("delete", ""), self), ptr.To[int64](30), true)
		},
		"no grace period": func(r *testRegistry, _ fence.Identity) {
			r.delete("a", contextFor("delete", ""), ptr.To[int64](0), true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestRegistry(t)
			instance := newInstance("a")
			instance.Spec.HashKey = ptr.To[int64](5)
			r.create(instance)
			created := r.get("a")
			self := fence.Identity{Ring: "test", Name: "a", UID: created.UID}
			r.delete("a", contextFor("delete", ""), nil, false)
			marked := r.get("a")
			if marked.DeletionTimestamp == nil || *marked.DeletionGracePeriodSeconds != 60 || marked.Generation != created.Generation+1 {
				t.Fatalf("after the first delete: %+v, want it marked for as long as its lease", marked.ObjectMeta)
			}
			r.delete("a", contextFor("delete", ""), nil, false)
			r.delete("a", contextFor("delete", ""), ptr.To[int64](600), false)
			if _, err := r.DeleteCollection(contextFor("deletecollection", ""), rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}, &internalversion.ListOptions{}); err != nil {
				t.Fatal(err)
			}
			other := fence.Identity{Ring: "test", Name: "b", UID: created.UID}
			r.delete("a", controllerring.NewContext(contextFor("delete", ""), other), nil, false)
			predecessor := fence.Identity{Ring: "test", Name: "a", UID: "another"}
			if _, _, err := r.Delete(controllerring.NewContext(contextFor("delete", ""), predecessor), "a", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("the delete of a predecessor: %v, want a conflict", err)
			}
			if got := r.get("a"); got.ResourceVersion != marked.ResourceVersion {
				t.Errorf("after more deletes: %+v, want it as it was: %+v", got.ObjectMeta, marked.ObjectMeta)
			}
			end(r, self)
			r.wantGone("a")
		})
	}
}

func TestAnOwnersOwnDeleteIsImmediate(t *testing.T) {
	r := newTestRegistry(t)
	for _, finalizers := range [][]string{nil, {"example.com/hold"}} {
		instance := newInstance("a")
		instance.Spec.HashKey = ptr.To[int64](5)
		instance.Finalizers = finalizers
		r.create(instance)
		self := fence.Identity{Ring: "test", Name: "a", UID: r.get("a").UID}
		r.delete("a", controllerring.NewContext(contextFor("delete", ""), self), nil, true)
		r.wantGone("a")
	}
}

func TestADeleteOfACollectionAsksOwnersToLeave(t *testing.T) {
	r := newTestRegistry(t)
	owner := newInstance("a")
	owner.Spec.HashKey = ptr.To[int64](5)
	r.create(owner)
	r.create(newInstance("b"))
	if _, err := r.DeleteCollection(contextFor("deletecollection", ""), rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}, &internalversion.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := r.get("a"); got.DeletionTimestamp == nil {
		t.Error("the owner is not marked")
	}
	r.wantGone("b")
}

// An object that is not renewed disappears, even with finalizers, and while it is leaving.
func TestExpiry(t *testing.T) {
	r := newTestRegistry(t)
	w, err := r.Watch(contextFor("watch", ""), &internalversion.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	left := sets.New("dead", "held", "leaving")
	for name := range left {
		instance := newInstance(name)
		instance.Spec.LeaseDurationSeconds = 5
		if name == "held" {
			instance.Finalizers = []string{"example.com/hold"}
		}
		if name == "leaving" {
			instance.Spec.HashKey = ptr.To[int64](5)
		}
		r.create(instance)
		if name == "leaving" {
			r.delete(name, contextFor("delete", ""), nil, false)
		}
	}
	timeout := time.After(wait.ForeverTestTimeout)
	for len(left) > 0 {
		select {
		case event := <-w.ResultChan():
			instance, ok := event.Object.(*sharding.ControllerInstance)
			if !ok {
				t.Fatalf("event %s with a %T", event.Type, event.Object)
			}
			if event.Type == watch.Deleted {
				if instance.Spec.Ring != "test" {
					t.Errorf("the DELETED event of %s lacks the object: %+v", instance.Name, instance)
				}
				left.Delete(instance.Name)
			}
		case <-timeout:
			t.Fatalf("not expired: %v", sets.List(left))
		}
	}
}

func TestTimeToLive(t *testing.T) {
	instance := newInstance("a")
	if ttl, err := timeToLive(instance); err != nil || ttl != 60 {
		t.Errorf("got %d (%v), want 60", ttl, err)
	}
	for _, seconds := range []int32{0, -1} {
		instance.Spec.LeaseDurationSeconds = seconds
		if ttl, err := timeToLive(instance); err == nil {
			t.Errorf("%d s gave %d, want an error: storage takes 0 for no expiry", seconds, ttl)
		}
	}
	if _, err := timeToLive(&metav1.Status{}); err == nil {
		t.Error("another type has a time to live")
	}
}
