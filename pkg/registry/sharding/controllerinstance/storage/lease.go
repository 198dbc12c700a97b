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
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/apis/sharding"
)

// leasePerWrite makes etcd3's lease manager grant a lease for each write. By default many
// objects share a lease and expire at one revision, and a watch that resumes at that
// revision misses some of them. The default would also lengthen the time to live, to reuse
// leases.
var leasePerWrite = etcd3.LeaseManagerConfig{ReuseDurationSeconds: 0, MaxObjectCount: 1}

// leasedOptions turns the options of any resource into those of ControllerInstances: each
// write of an object gets a lease of its own.
type leasedOptions struct {
	generic.RESTOptionsGetter
}

func (o leasedOptions) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := o.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil {
		return generic.RESTOptions{}, err
	}
	config := *options.StorageConfig
	config.LeaseManagerConfig = leasePerWrite
	options.StorageConfig = &config
	options.Decorator = decorateWithLease(options.Decorator)
	return options, nil
}

func decorateWithLease(decorate generic.StorageDecorator) generic.StorageDecorator {
	return func(config *storagebackend.ConfigForResource, resourcePrefix string, keyFunc func(runtime.Object) (string, error),
		newFunc, newListFunc func() runtime.Object, attrs storage.AttrFunc, trigger storage.IndexerFuncs, indexers *cache.Indexers) (storage.Interface, factory.DestroyFunc, error) {
		s, destroy, err := decorate(config, resourcePrefix, keyFunc, newFunc, newListFunc, attrs, trigger, indexers)
		if err != nil {
			return nil, nil, err
		}
		return leasedStorage{s}, destroy, nil
	}
}

// leasedStorage puts every write under a lease of spec.leaseDurationSeconds. The registry's
// time to live (genericregistry.Store.TTLFunc) is not enough: the write that marks an object
// with finalizers as deleted has none, and in etcd a write without a lease takes the key off
// the lease that it had.
type leasedStorage struct {
	storage.Interface
}

func (s leasedStorage) Create(ctx context.Context, key string, obj, out runtime.Object, _ uint64) error {
	ttl, err := timeToLive(obj)
	if err != nil {
		return err
	}
	return s.Interface.Create(ctx, key, obj, out, ttl)
}

func (s leasedStorage) GuaranteedUpdate(ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cachedExistingObject runtime.Object) error {
	leasedUpdate := func(input runtime.Object, res storage.ResponseMeta) (runtime.Object, *uint64, error) {
		output, _, err := tryUpdate(input, res)
		if err != nil {
			return nil, nil, err
		}
		ttl, err := timeToLive(output)
		if err != nil {
			return nil, nil, err
		}
		return output, &ttl, nil
	}
	return s.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, leasedUpdate, cachedExistingObject)
}

// timeToLive returns the time that a ControllerInstance lives after a write, in seconds.
func timeToLive(obj runtime.Object) (uint64, error) {
	instance, ok := obj.(*sharding.ControllerInstance)
	if !ok {
		return 0, fmt.Errorf("%T is not a ControllerInstance", obj)
	}
	if instance.Spec.LeaseDurationSeconds <= 0 {
		return 0, fmt.Errorf("ControllerInstance %q has no time to live: set spec.leaseDurationSeconds", instance.Name)
	}
	return uint64(instance.Spec.LeaseDurationSeconds), nil
}
