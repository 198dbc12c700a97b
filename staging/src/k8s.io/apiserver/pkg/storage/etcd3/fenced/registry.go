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
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/ring"
)

// registry is where the ControllerInstances of an API server are stored, and what has been
// seen of them.
type registry struct {
	storage              storage.Interface
	client               *kubernetes.Client
	backend              *backend
	codec                runtime.Encoder
	newFunc, newListFunc func() runtime.Object
	// resourcePrefix begins the keys of storage, etcdPrefix those of the same records in
	// etcd.
	resourcePrefix, etcdPrefix string

	// lists are those with quorum.
	lists shared[*rings]

	// presences are those of instances at this server.
	presences *presences

	start sync.Once
	lock  sync.RWMutex
	seen  *rings
}

// listTimeout bounds a list of the registry. The requests that wait for it do not.
const listTimeout = 30 * time.Second

// newRegistry returns the registry in that storage. What it reads for several requests ends with
// the client.
func newRegistry(s storage.Interface, client *kubernetes.Client) *registry {
	r := &registry{storage: s, client: client, seen: newRings()}
	r.lists = shared[*rings]{ctx: client.Ctx(), timeout: listTimeout, read: r.readAll}
	return r
}

// etcdKey returns the key of a record in etcd.
func (r *registry) etcdKey(name string) string { return path.Join(r.etcdPrefix, name) }

// nameOf returns the name of the record with that key in etcd.
func (r *registry) nameOf(key []byte) string {
	return strings.TrimPrefix(string(key), r.etcdPrefix+"/")
}

// get reads an instance with quorum. It returns nil if there is none.
func (r *registry) get(ctx context.Context, name string) (*instance, error) {
	record, err := r.record(ctx, name)
	if record == nil || err != nil {
		return nil, err
	}
	return newInstance(record)
}

// record reads the record of that name with quorum. It returns nil if there is none.
func (r *registry) record(ctx context.Context, name string) (*shardingv1alpha1.ControllerInstance, error) {
	// What the request notes about the lease of its own object is not about this one.
	return r.leased(ctx, name, nil)
}

// leased does so, and notes the lease of the record if lease is not nil.
func (r *registry) leased(ctx context.Context, name string, lease *Lease) (*shardingv1alpha1.ControllerInstance, error) {
	object := r.newFunc()
	err := r.storage.Get(WithLease(ctx, lease), path.Join(r.resourcePrefix, name), storage.GetOptions{}, object)
	if storage.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return r.convert(object)
}

// list returns all records, read with quorum after the call began. They must not be changed:
// requests that ask at the same time share one list.
func (r *registry) list(ctx context.Context) (*rings, error) { return r.lists.get(ctx) }

// readAll reads all records with quorum.
func (r *registry) readAll(ctx context.Context) (*rings, error) {
	quorumReads.WithContext(ctx).Inc()
	list, err := r.listObjects(ctx)
	if err != nil {
		return nil, err
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	all := newRings()
	if all.revision, err = strconv.ParseInt(accessor.GetResourceVersion(), 10, 64); err != nil {
		return nil, fmt.Errorf("the list of the registry has resource version %q, want a number: %w", accessor.GetResourceVersion(), err)
	}
	for _, object := range objects {
		i, err := r.read(object)
		if err != nil {
			return nil, err
		}
		all.put(i)
	}
	return all, nil
}

func (r *registry) listObjects(ctx context.Context) (runtime.Object, error) {
	list := r.newListFunc()
	err := r.storage.GetList(ctx, r.resourcePrefix, storage.ListOptions{Predicate: storage.Everything, Recursive: true}, list)
	return list, err
}

// convert returns an object of the registry in the version that this package knows.
func (r *registry) convert(object runtime.Object) (*shardingv1alpha1.ControllerInstance, error) {
	record := &shardingv1alpha1.ControllerInstance{}
	return record, convert(r.codec, object, record)
}

// convert sets into from an object of a storage with that codec, which knows how the object is
// stored.
func convert(codec runtime.Encoder, object, into runtime.Object) error {
	data, err := runtime.Encode(codec, object)
	if err != nil {
		return err
	}
	return runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), data, into)
}

// read takes an instance from an object of the registry.
func (r *registry) read(object runtime.Object) (*instance, error) {
	record, err := r.convert(object)
	if err != nil {
		return nil, err
	}
	return newInstance(record)
}

// follow begins to follow the registry, if nothing does so yet, until the client is closed.
// An API server without rings has nothing to follow.
func (r *registry) follow() {
	r.start.Do(func() {
		lw := &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
				return r.listObjects(ctx)
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return r.storage.Watch(ctx, r.resourcePrefix, storage.ListOptions{
					ResourceVersion: options.ResourceVersion, Predicate: storage.Everything, Recursive: true,
				})
			},
		}
		reflector := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, listFirst{}), r.newFunc(), (*seenRings)(r),
			cache.ReflectorOptions{Name: "fence"})
		go reflector.RunWithContext(r.client.Ctx())
	})
}

// listFirst tells the reflector not to ask for a list in a watch, which saves nothing here.
type listFirst struct{}

func (listFirst) IsWatchListSemanticsUnSupported() bool { return true }

// withSeen calls f with what has been seen of the registry. f must not keep it.
func (r *registry) withSeen(f func(*rings)) {
	r.lock.RLock()
	defer r.lock.RUnlock()
	f(r.seen)
}

// seenRings is the registry as the store of its reflector.
type seenRings registry

var _ cache.ReflectorStore = &seenRings{}

func (s *seenRings) Add(object any) error {
	i, err := (*registry)(s).read(object.(runtime.Object))
	if err != nil {
		return err
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	s.seen.put(i)
	return nil
}

func (s *seenRings) Update(object any) error { return s.Add(object) }

func (s *seenRings) Delete(object any) error {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	s.seen.remove(accessor.GetName())
	return nil
}

// Replace takes a whole list at once: a mixture of two moments could show owners that never
// were.
func (s *seenRings) Replace(objects []any, _ string) error {
	all := newRings()
	for _, object := range objects {
		i, err := (*registry)(s).read(object.(runtime.Object))
		if err != nil {
			return err
		}
		all.put(i)
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	s.seen = all
	return nil
}

func (s *seenRings) Resync() error { return nil }

// instance is a record, with what it says of the writes of its controllers.
type instance struct {
	ring.Record
	controllers []string
	governs     []shardingv1alpha1.Governs
}

func newInstance(record *shardingv1alpha1.ControllerInstance) (*instance, error) {
	i := &instance{controllers: record.Spec.Controllers, governs: record.Spec.Governs}
	var err error
	i.Record, err = ring.NewRecord(record)
	return i, err
}

// rings holds instances by name, and the view that they form of each ring.
type rings struct {
	// revision is that of etcd at which they were listed; 0 where they are followed.
	revision  int64
	instances map[string]*instance
	views     map[string]*ring.View
}

func newRings() *rings {
	return &rings{instances: map[string]*instance{}, views: map[string]*ring.View{}}
}

// view returns the ring of that name, an empty one if it has no instance.
func (r *rings) view(name string) *ring.View {
	if view, ok := r.views[name]; ok {
		return view
	}
	return ring.NewView(0)
}

func (r *rings) put(i *instance) {
	r.instances[i.Name] = i
	r.views[i.Ring] = r.view(i.Ring).With(i.Record)
}

func (r *rings) remove(name string) {
	i, ok := r.instances[name]
	if !ok {
		return
	}
	delete(r.instances, name)
	if r.views[i.Ring] = r.views[i.Ring].Without(name); len(r.views[i.Ring].Records()) == 0 {
		delete(r.views, i.Ring)
	}
}
