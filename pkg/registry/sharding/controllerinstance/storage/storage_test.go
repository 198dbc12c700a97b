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
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistrytest "k8s.io/apiserver/pkg/registry/generic/testing"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
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
			ControllerName:       "replicaset-controller",
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

func (r *testRegistry) update(name string, change func(*sharding.ControllerInstance)) {
	r.t.Helper()
	r.updateBy(r.REST, contextFor("update", ""), name, change)
}

func (r *testRegistry) updateStatus(name string, change func(*sharding.ControllerInstance)) {
	r.t.Helper()
	r.updateBy(r.status, contextFor("update", "status"), name, change)
}

func (r *testRegistry) updateBy(updater rest.Updater, ctx context.Context, name string, change func(*sharding.ControllerInstance)) {
	r.t.Helper()
	info := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
		instance := old.DeepCopyObject().(*sharding.ControllerInstance)
		change(instance)
		return instance, nil
	})
	if _, _, err := updater.Update(ctx, name, info, rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// lease returns the etcd lease of the object. It fails the test if there is none, if another
// object shares it, or if it was not granted for want seconds.
func (r *testRegistry) lease(name string, want int64) clientv3.LeaseID {
	r.t.Helper()
	ctx := context.Background()
	resp, err := r.etcd.Get(ctx, r.prefix+name)
	if err != nil {
		r.t.Fatal(err)
	}
	if len(resp.Kvs) != 1 {
		r.t.Fatalf("%s is not in etcd", r.prefix+name)
	}
	lease := clientv3.LeaseID(resp.Kvs[0].Lease)
	if lease == clientv3.NoLease {
		r.t.Fatalf("%s has no lease", name)
	}
	left, err := r.etcd.TimeToLive(ctx, lease, clientv3.WithAttachedKeys())
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
	invalid.Spec.ControllerName = ""
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
		[]fields.Set{{"metadata.name": "foo"}, {"spec.controllerName": "replicaset-controller"}},
		[]fields.Set{{"metadata.name": "bar"}, {"spec.controllerName": "job-controller"}},
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
	r.updateStatus("a", func(i *sharding.ControllerInstance) { i.Status.Workloads = 1 })
	r.updateStatus("b", func(i *sharding.ControllerInstance) { i.Status.Workloads = 1 })
	check("a", "b")
	r.update("b", func(i *sharding.ControllerInstance) { i.Spec.NextHashKey = ptr.To[int64](5) })
	r.create(newInstance("c"))
	check("a", "b", "c")
}

// Every write that the registry can make leaves the object under a lease that begins with
// that write and lasts as long as the object then says.
func TestLeaseOfEveryWrite(t *testing.T) {
	r := newTestRegistry(t)
	r.create(newInstance("a"))
	last := r.lease("a", 60)
	renewed := func(what string, want int64) {
		t.Helper()
		lease := r.lease("a", want)
		if lease == last {
			t.Errorf("%s did not renew the lease", what)
		}
		last = lease
	}

	now := metav1.NowMicro()
	r.updateStatus("a", func(i *sharding.ControllerInstance) { i.Status.RenewTime = &now })
	renewed("a heartbeat", 60)
	r.update("a", func(i *sharding.ControllerInstance) { i.Spec.HashKey = ptr.To[int64](5) })
	renewed("a change of the spec", 60)
	r.update("a", func(i *sharding.ControllerInstance) { i.Spec.LeaseDurationSeconds = 10 })
	renewed("a change of the lease", 10)
	r.update("a", func(i *sharding.ControllerInstance) { i.Labels = map[string]string{"a": "b"} })
	renewed("a label", 10)
	r.update("a", func(i *sharding.ControllerInstance) { i.Finalizers = []string{"example.com/hold"} })
	renewed("a finalizer", 10)

	if _, gone, err := r.Delete(contextFor("delete", ""), "a", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); err != nil || gone {
		t.Fatalf("deleted at once: %v (%v), want the finalizer to hold it", gone, err)
	}
	renewed("the mark of deletion", 10)

	r.update("a", func(i *sharding.ControllerInstance) { i.Finalizers = nil })
	if _, err := r.Get(contextFor("get", ""), "a", &metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("without its finalizer: %v, want not found", err)
	}
}

// An object that is not renewed disappears, even with finalizers.
func TestExpiry(t *testing.T) {
	r := newTestRegistry(t)
	w, err := r.Watch(contextFor("watch", ""), &internalversion.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	left := sets.New("dead", "held")
	for name := range left {
		instance := newInstance(name)
		instance.Spec.LeaseDurationSeconds = 2
		if name == "held" {
			instance.Finalizers = []string{"example.com/hold"}
		}
		r.create(instance)
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
				if instance.Spec.ControllerName != "replicaset-controller" {
					t.Errorf("the DELETED event of %s lacks the object: %+v", instance.Name, instance)
				}
				left.Delete(instance.Name)
			}
		case <-timeout:
			t.Fatalf("not expired: %v", sets.List(left))
		}
	}
}

// The options that other resources use do not change.
func TestLeasedOptions(t *testing.T) {
	config := storagebackend.NewDefaultConfig("/registry", nil).ForResource(sharding.Resource("controllerinstances"))
	before := config.LeaseManagerConfig
	decorate := func(*storagebackend.ConfigForResource, string, func(runtime.Object) (string, error), func() runtime.Object, func() runtime.Object,
		storage.AttrFunc, storage.IndexerFuncs, *cache.Indexers) (storage.Interface, factory.DestroyFunc, error) {
		return nil, func() {}, nil
	}
	options, err := leasedOptions{generic.RESTOptions{StorageConfig: config, Decorator: decorate}}.GetRESTOptions(sharding.Resource("controllerinstances"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if config.LeaseManagerConfig != before {
		t.Errorf("the configuration given was changed to %+v", config.LeaseManagerConfig)
	}
	if options.StorageConfig.LeaseManagerConfig != leasePerWrite {
		t.Errorf("leases are managed by %+v, want %+v", options.StorageConfig.LeaseManagerConfig, leasePerWrite)
	}
	s, _, err := options.Decorator(options.StorageConfig, "", nil, nil, nil, nil, nil, nil)
	if _, ok := s.(leasedStorage); err != nil || !ok {
		t.Errorf("the storage is a %T (%v)", s, err)
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
