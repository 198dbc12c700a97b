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

package history

import (
	"context"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"go.etcd.io/etcd/client/v3/kubernetes"
)

// WrapStorage returns what stands in for s, whose client c is: once this process stores the
// registry of rings, it reads and writes no object before the history of its etcd is known, or
// cannot be. With the feature gate ControllerRing off it returns s.
func WrapStorage(s storage.Interface, c *kubernetes.Client, config storagebackend.ConfigForResource) storage.Interface {
	if !utilfeature.DefaultFeatureGate.Enabled(features.ControllerRing) || IsEvents(config.GroupResource) {
		return s
	}
	etcd := follow(c.Client, config.Transport.ServerList, config.Prefix)
	if config.GroupResource.Group == shardingv1alpha1.GroupName {
		start()
	}
	return &store{Interface: s, etcd: etcd}
}

// IsEvents says whether a resource is that of events: nobody works from them, so neither a restore
// of an etcd that has them alone, nor who owns their objects, is of interest.
func IsEvents(resource schema.GroupResource) bool {
	return resource.Resource == "events" && (resource.Group == "" || resource.Group == "events.k8s.io")
}

// store is the storage of a resource.
type store struct {
	storage.Interface
	etcd *etcd
}

// Create implements storage.Interface.
func (s *store) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	if err := s.etcd.wait(ctx); err != nil {
		return err
	}
	return s.Interface.Create(ctx, key, obj, out, ttl)
}

// Delete implements storage.Interface.
func (s *store) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validateDeletion storage.ValidateObjectFunc, cachedExistingObject runtime.Object, opts storage.DeleteOptions) error {
	if err := s.etcd.wait(ctx); err != nil {
		return err
	}
	return s.Interface.Delete(ctx, key, out, preconditions, validateDeletion, cachedExistingObject, opts)
}

// GuaranteedUpdate implements storage.Interface.
func (s *store) GuaranteedUpdate(ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cachedExistingObject runtime.Object) error {
	if err := s.etcd.wait(ctx); err != nil {
		return err
	}
	return s.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, tryUpdate, cachedExistingObject)
}

// Get implements storage.Interface.
func (s *store) Get(ctx context.Context, key string, opts storage.GetOptions, into runtime.Object) error {
	if err := s.etcd.wait(ctx); err != nil {
		return err
	}
	return s.Interface.Get(ctx, key, opts, into)
}

// GetList implements storage.Interface.
func (s *store) GetList(ctx context.Context, key string, opts storage.ListOptions, into runtime.Object) error {
	if err := s.etcd.wait(ctx); err != nil {
		return err
	}
	return s.Interface.GetList(ctx, key, opts, into)
}

// Watch implements storage.Interface.
func (s *store) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	if err := s.etcd.wait(ctx); err != nil {
		return nil, err
	}
	return s.Interface.Watch(ctx, key, opts)
}
