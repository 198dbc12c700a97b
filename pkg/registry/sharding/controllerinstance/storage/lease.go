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
	"errors"
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3/fenced"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/kubernetes/pkg/apis/sharding"
)

// leasedOptions turns the options of any resource into those of ControllerInstances: each
// object has an etcd lease of its own.
type leasedOptions struct {
	generic.RESTOptionsGetter
	// prefix is set to that of the storage in etcd.
	prefix *string
}

func (o leasedOptions) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := o.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil {
		return generic.RESTOptions{}, err
	}
	options.Decorator = decorateWithLease(options.Decorator)
	*o.prefix = options.StorageConfig.Prefix
	return options, nil
}

func decorateWithLease(decorate generic.StorageDecorator) generic.StorageDecorator {
	return func(config *storagebackend.ConfigForResource, resourcePrefix string, keyFunc func(runtime.Object) (string, error),
		newFunc, newListFunc func() runtime.Object, attrs storage.AttrFunc, trigger storage.IndexerFuncs, indexers *cache.Indexers) (storage.Interface, factory.DestroyFunc, error) {
		s, destroy, err := decorate(config, resourcePrefix, keyFunc, newFunc, newListFunc, attrs, trigger, indexers)
		if err != nil {
			return nil, nil, err
		}
		return leasedStorage{Interface: s}, destroy, nil
	}
}

// leasedStorage keeps each object under one etcd lease of spec.leaseDurationSeconds for all
// its life. The registry's own time to live (genericregistry.Store.TTLFunc) would not: it puts
// each write under a lease that many objects share, and leaves the mark of deletion without.
type leasedStorage struct {
	storage.Interface
	// renews says that an update that changes nothing renews the object's lease.
	renews bool
}

func (s leasedStorage) Create(ctx context.Context, key string, obj, out runtime.Object, _ uint64) error {
	ttl, err := timeToLive(obj)
	if err != nil {
		return err
	}
	return s.Interface.Create(fenced.WithLease(ctx, &fenced.Lease{TTL: ttl}), key, obj, out, 0)
}

func (s leasedStorage) GuaranteedUpdate(ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cachedExistingObject runtime.Object) error {
	lease := &fenced.Lease{}
	// An object that is stored in an old encoding is written though nothing has changed.
	changed := false
	update := func(input runtime.Object, res storage.ResponseMeta) (runtime.Object, *uint64, error) {
		before := input.DeepCopyObject()
		output, ttl, err := tryUpdate(input, res)
		changed = err == nil && !apiequality.Semantic.DeepEqual(before, output)
		if err == nil && before.(*sharding.ControllerInstance).UID == "" {
			// A server-side apply creates what is not there.
			lease.TTL, err = timeToLive(output)
		}
		return output, ttl, err
	}
	err := s.Interface.GuaranteedUpdate(fenced.WithLease(ctx, lease), key, destination, ignoreNotFound, preconditions, update, cachedExistingObject)
	if err != nil || changed || !s.renews {
		return err
	}
	if err := lease.KeepAlive(ctx); errors.Is(err, fenced.ErrLeaseNotFound) {
		return leaseLost(destination)
	} else if err != nil {
		return err
	}
	return nil
}

// leaseLost is the answer to a renewal that came too late.
func leaseLost(obj runtime.Object) error {
	const message = "its etcd lease has ended; register anew"
	conflict := apierrors.NewConflict(sharding.Resource("controllerinstances"), obj.(*sharding.ControllerInstance).Name, errors.New(message))
	conflict.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: fence.CauseLeaseLost, Message: message}}
	return conflict
}

// timeToLive returns the time that a ControllerInstance lives without a renewal, in seconds.
func timeToLive(obj runtime.Object) (int64, error) {
	instance, ok := obj.(*sharding.ControllerInstance)
	if !ok {
		return 0, fmt.Errorf("%T is not a ControllerInstance", obj)
	}
	if instance.Spec.LeaseDurationSeconds <= 0 {
		return 0, fmt.Errorf("ControllerInstance %q has no time to live: set spec.leaseDurationSeconds", instance.Name)
	}
	return int64(instance.Spec.LeaseDurationSeconds), nil
}
