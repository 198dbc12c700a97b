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

	"go.etcd.io/etcd/client/v3/kubernetes"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/controllerring"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3/history"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/ring/fence"
)

var controllerInstances = schema.GroupResource{Group: shardingv1alpha1.GroupName, Resource: "controllerinstances"}

// WrapStorage returns what stands in for s, whose client is WrapClient's: it judges each write
// in the name of a controller instance, and each of the leader's Lease; it is the same
// otherwise. Events are not judged:
// nobody works from them, and an instance that is fenced must be able to say so.
func WrapStorage(s storage.Interface, client *kubernetes.Client, config storagebackend.ConfigForResource, resourcePrefix string, newFunc, newListFunc func() runtime.Object) storage.Interface {
	if !utilfeature.DefaultFeatureGate.Enabled(features.ControllerRing) {
		return s
	}
	resource := config.GroupResource
	if history.IsEvents(resource) {
		return s
	}
	registerMetrics()
	d := deploymentOf(config.Prefix)
	wrapped := &store{
		Interface:  s,
		client:     client,
		resource:   resource,
		codec:      config.Codec,
		servers:    config.Transport.ServerList,
		deployment: d,
		backend:    d.backend(fmt.Sprintf("%v", config.Transport)),
	}
	if resource != controllerInstances {
		d.add(wrapped)
		return wrapped
	}
	r := newRegistry(s, client)
	r.backend, r.codec, r.newFunc, r.newListFunc = wrapped.backend, config.Codec, newFunc, newListFunc
	r.resourcePrefix, r.etcdPrefix = resourcePrefix, path.Join("/", config.Prefix, resourcePrefix)
	r.presences = newPresences(r, config.Prefix)
	d.open(r)
	return wrapped
}

// store is the storage of a resource.
type store struct {
	storage.Interface
	client     *kubernetes.Client
	resource   schema.GroupResource
	codec      runtime.Encoder
	servers    []string
	deployment *deployment
	backend    *backend
}

func (s *store) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	ctx, judges, err := s.judges(ctx, key)
	if err != nil {
		return err
	}
	if judges != nil {
		if err := judges.from(nil).to(ctx, obj); err != nil {
			return err
		}
	}
	return s.Interface.Create(ctx, key, obj, out, ttl)
}

func (s *store) GuaranteedUpdate(ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cachedExistingObject runtime.Object) error {
	ctx, judges, err := s.judges(ctx, key)
	if err != nil {
		return err
	}
	if judges != nil {
		update := tryUpdate
		tryUpdate = func(input runtime.Object, res storage.ResponseMeta) (runtime.Object, *uint64, error) {
			// The update may change its input.
			change := judges.from(input)
			output, ttl, err := update(input, res)
			if err != nil {
				return nil, nil, err
			}
			if err := change.to(ctx, output); err != nil {
				return nil, nil, err
			}
			return output, ttl, nil
		}
	}
	return s.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, tryUpdate, cachedExistingObject)
}

func (s *store) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validateDeletion storage.ValidateObjectFunc, cachedExistingObject runtime.Object, opts storage.DeleteOptions) error {
	ctx, judges, err := s.judges(ctx, key)
	if err != nil {
		return err
	}
	if judges != nil {
		validate := validateDeletion
		validateDeletion = func(ctx context.Context, obj runtime.Object) error {
			if err := validate(ctx, obj); err != nil {
				return err
			}
			return judges.from(obj).to(ctx, nil)
		}
	}
	return s.Interface.Delete(ctx, key, out, preconditions, validateDeletion, cachedExistingObject, opts)
}

// Watch refuses a watch that asks how far it is. It comes here only where there is no watch cache.
func (s *store) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	if storage.AsksForProgress(opts) {
		return nil, storage.NewProgressUnknown("it has no watch cache for " + s.resource.String())
	}
	return s.Interface.Watch(ctx, key, opts)
}

// judge judges one write of one object, and may set a condition for its storage.
type judge interface {
	// from begins to judge a change of the object; nil if the write creates it. What counts of
	// the object is read before from returns.
	from(before runtime.Object) change
}

// change is the write of one object that is being judged.
type change interface {
	// to judges it. The object is nil if the write deletes it.
	to(ctx context.Context, after runtime.Object) error
}

// judges is all that judge a write, one after the other.
type judges []judge

func (j judges) from(before runtime.Object) change {
	var all changes
	for _, judge := range j {
		all = append(all, judge.from(before))
	}
	return all
}

type changes []change

func (c changes) to(ctx context.Context, after runtime.Object) error {
	for _, change := range c {
		if err := change.to(ctx, after); err != nil {
			return err
		}
	}
	return nil
}

// judges returns what judges a write of the object at that key, and the context for it; nil
// for a write that nothing does.
func (s *store) judges(ctx context.Context, key string) (context.Context, judges, error) {
	identity, named := controllerring.FromContext(ctx)
	leads := s.storesLeader(key)
	if !named && !leads {
		return ctx, nil, nil
	}
	r := s.deployment.registry()
	w := &write{identity: identity, store: s, registry: r}
	if r == nil {
		if named {
			return ctx, nil, w.refuse(ctx, "", &refusal{reasonUnknown, fmt.Sprintf("this API server does not store the registry of controller instances (%s), so it cannot judge what ControllerInstance %s writes; send such requests without the header %s", controllerInstances, identity.Name, fence.Header)})
		}
		// It has no rings either.
		return ctx, nil, nil
	}
	var all judges
	var conditions []*condition
	if named {
		var err error
		if w.condition.apart, err = s.apart(ctx, r); err != nil {
			return ctx, nil, apierrors.NewInternalError(err)
		}
		all, conditions = append(all, w), append(conditions, &w.condition)
	}
	if leads {
		l := &leaderWrite{store: s, registry: r}
		all, conditions = append(all, l), append(conditions, &l.condition)
	}
	return withConditions(ctx, conditions), all, nil
}
