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

package rangewatch

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/rangewatch/follower"
)

// informer transforms the objects of a list as they arrive, not once the list is complete.
type informer struct {
	cache.SharedIndexInformer
	source *Source
}

// SetTransform implements cache.SharedInformer. On a relist, an object that has not changed stays
// the one in the store and is not transformed again.
func (i *informer) SetTransform(transform cache.TransformFunc) error {
	// This fails once the informer has started.
	if err := i.SharedIndexInformer.SetTransform(i.source.transformed); err != nil {
		return err
	}
	i.source.transform = transform
	return nil
}

// prepared wraps an object of a list in the state in which the store is to have it: already
// transformed, or the store's own.
type prepared struct{ object any }

func (*prepared) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }
func (p *prepared) DeepCopyObject() runtime.Object { return p }

// keep keeps what the store is to have for obj, an object of a list.
func (d *driver) keep(id follower.ID, obj runtime.Object) error {
	p, err := d.prepare(id, obj)
	if err != nil {
		return err
	}
	if d.kept == nil {
		d.kept = map[follower.ID]*prepared{}
	}
	d.kept[id] = p
	return nil
}

func (s *Source) prepare(id follower.ID, obj runtime.Object) (*prepared, error) {
	stored, exists, err := s.store.GetByKey(cache.ObjectName(id).String())
	if err != nil {
		return nil, err
	}
	if exists && isSame(stored, obj) {
		return &prepared{stored}, nil
	}
	object, err := s.transformed(obj)
	return &prepared{object}, err
}

// transformed is the informer's transform.
func (s *Source) transformed(obj any) (any, error) {
	if p, ok := obj.(*prepared); ok {
		return p.object, nil
	}
	if tombstone, ok := s.departed.LoadAndDelete(obj); ok {
		return tombstone, nil
	}
	if s.transform == nil {
		return obj, nil
	}
	result, err := s.transform(obj)
	if err != nil {
		return nil, err
	}
	if _, ok := result.(metav1.Object); !ok {
		if _, err := cache.DeletionHandlingMetaNamespaceKeyFunc(result); err != nil {
			return nil, fmt.Errorf("the informer's transform made a %T of a %T, for which a store has no name: keep the metadata: %w", result, obj, err)
		}
	}
	return result, nil
}

// isSame reports whether stored is obj in the same state: with its UID and resource version.
func isSame(stored any, obj runtime.Object) bool {
	a, err := meta.Accessor(stored)
	if err != nil {
		return false
	}
	b, ok := obj.(metav1.Object)
	return ok && a.GetUID() == b.GetUID() && a.GetResourceVersion() == b.GetResourceVersion()
}
