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

package app

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/rangewatch"
	"k8s.io/client-go/tools/ring/member"
	"k8s.io/klog/v2"
	catalogue "k8s.io/kubernetes/pkg/controller/ring"
)

// ringBuilder is what a controller on a ring is built from.
type ringBuilder struct {
	controller catalogue.Controller
	// reader is for lists and watches, writer for the controller's own requests, which
	// obey the gate's deadline.
	reader, writer kubernetes.Interface
	gate           *member.Gate
	informers      informers.SharedInformerFactory
	// sources are the informers that follow a range.
	sources []member.Source
}

// runInformers runs the informers until ctx ends.
func (b *ringBuilder) runInformers(ctx context.Context) {
	b.informers.StartWithContext(ctx)
	<-ctx.Done()
	b.informers.Shutdown()
}

// inRange makes the factory's informer for object's type follow a range, by the path
// that the catalogue has for the resource.
func inRange[L runtime.Object](ctx context.Context, b *ringBuilder, resource schema.GroupResource, object runtime.Object, client interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}) error {
	path := b.controller.PathOf(resource)
	if path == "" {
		return fmt.Errorf("the catalogue of rings does not say by which path %s reads %s", b.controller.Name, resource)
	}
	source, err := rangewatch.NewSource(rangewatch.Config{
		Field: rangewatch.FieldPath(path),
		ListWatch: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return client.List(ctx, options)
			},
			WatchFuncWithContext: client.Watch,
		},
		Object: object,
		Logger: klog.LoggerWithValues(klog.FromContext(ctx), "informer", fmt.Sprintf("%T", object)),
	})
	if err != nil {
		return err
	}
	b.informers.InformerFor(object, func(_ kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return source.NewInformer(cache.SharedIndexInformerOptions{
			ResyncPeriod: resync,
			Indexers:     cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		})
	})
	b.sources = append(b.sources, source)
	return nil
}

// trimManagedFields keeps informers small: no controller reads managed fields.
func trimManagedFields(obj interface{}) (interface{}, error) {
	if accessor, err := meta.Accessor(obj); err == nil && accessor.GetManagedFields() != nil {
		accessor.SetManagedFields(nil)
	}
	return obj, nil
}
