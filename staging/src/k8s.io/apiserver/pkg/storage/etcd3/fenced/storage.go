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
	"k8s.io/apiserver/pkg/controllerring"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/ring/fence"
)

var controllerInstances = schema.GroupResource{Group: shardingv1alpha1.GroupName, Resource: "controllerinstances"}

// WrapStorage returns what stands in for s, whose client is WrapClient's: it judges each write
// in the name of a controller instance, and is the same otherwise. Events are not judged:
// nobody works from them, and an instance that is fenced must be able to say so.
func WrapStorage(s storage.Interface, client *kubernetes.Client, config storagebackend.ConfigForResource, resourcePrefix string, newFunc, newListFunc func() runtime.Object) storage.Interface {
	if !utilfeature.DefaultFeatureGate.Enabled(features.ControllerRing) {
		return s
	}
	resource := config.GroupResource
	if resource.Resource == "events" && (resource.Group == "" || resource.Group == "events.k8s.io") {
		return s
	}
	registerMetrics()
	d := deploymentOf(config.Prefix)
	wrapped := &store{
		Interface:  s,
		client:     client,
		resource:   resource,
		servers:    config.Transport.ServerList,
		deployment: d,
		backend:    d.backend(fmt.Sprintf("%v", config.Transport)),
	}
	if resource != controllerInstances {
		d.add(wrapped)
		return wrapped
	}
	d.open(&registry{
		storage: s, client: client, backend: wrapped.backend,
		codec: config.Codec, newFunc: newFunc, newListFunc: newListFunc,
		resourcePrefix: resourcePrefix, etcdPrefix: path.Join("/", config.Prefix, resourcePrefix),
		seen: newRings(),
	})
	return wrapped
}

// store is the storage of a resource.
type store struct {
	storage.Interface
	client     *kubernetes.Client
	resource   schema.GroupResource
	servers    []string
	deployment *deployment
	backend    *backend
}

func (s *store) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	ctx, w, err := s.write(ctx)
	if err != nil {
		return err
	}
	if w != nil {
		if err := w.from(nil).to(ctx, obj); err != nil {
			return err
		}
	}
	return s.Interface.Create(ctx, key, obj, out, ttl)
}

func (s *store) GuaranteedUpdate(ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cachedExistingObject runtime.Object) error {
	ctx, w, err := s.write(ctx)
	if err != nil {
		return err
	}
	if w != nil {
		update := tryUpdate
		tryUpdate = func(input runtime.Object, res storage.ResponseMeta) (runtime.Object, *uint64, error) {
			// The update may change its input.
			change := w.from(input)
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
	ctx, w, err := s.write(ctx)
	if err != nil {
		return err
	}
	if w != nil {
		validate := validateDeletion
		validateDeletion = func(ctx context.Context, obj runtime.Object) error {
			if err := validate(ctx, obj); err != nil {
				return err
			}
			return w.from(obj).to(ctx, nil)
		}
	}
	return s.Interface.Delete(ctx, key, out, preconditions, validateDeletion, cachedExistingObject, opts)
}

// write returns what judges a write in the name of a controller instance, and the context for
// it; nil for any other write.
func (s *store) write(ctx context.Context) (context.Context, *write, error) {
	identity, named := controllerring.FromContext(ctx)
	if !named {
		return ctx, nil, nil
	}
	w := &write{identity: identity, store: s, registry: s.deployment.registry()}
	if w.registry == nil {
		return ctx, nil, w.refuse(ctx, "", &refusal{reasonUnknown, fmt.Sprintf("this API server does not store the registry of controller instances (%s), so it cannot judge what ControllerInstance %s writes; send such requests without the header %s", controllerInstances, identity.Name, fence.Header)})
	}
	apart, err := s.apart(ctx, w.registry)
	if err != nil {
		return ctx, nil, apierrors.NewInternalError(err)
	}
	w.condition.apart = apart
	return context.WithValue(ctx, conditionKey{}, &w.condition), w, nil
}
