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
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/rangewatch"
	"k8s.io/client-go/tools/ring/member"
	"k8s.io/klog/v2"
	catalogue "k8s.io/kubernetes/pkg/controller/ring"
)

// ringInformers are the informers of a ring, which its controllers in this process share.
type ringInformers struct {
	// reader is for lists and watches.
	reader    kubernetes.Interface
	informers informers.SharedInformerFactory
	// followed has the resources of which a range is followed.
	followed map[schema.GroupResource]followed
	// sources are the sources of all of them.
	sources []member.Source
}

// followed is a resource of which a range is followed, by path.
type followed struct {
	path   string
	source *rangewatch.Source
}

// run runs the informers until ctx ends.
func (i *ringInformers) run(ctx context.Context) {
	i.informers.StartWithContext(ctx)
	<-ctx.Done()
	i.informers.Shutdown()
}

// ringBuilder is what a controller on a ring is built from.
type ringBuilder struct {
	*ringInformers
	controller catalogue.Controller
	// filtered are the informers for the controller.
	filtered *filteredInformers
	// writer is for the controller's own requests, which obey the gate's deadline.
	writer kubernetes.Interface
	gate   *member.Door
	// reads are the resources that the controller has been given in its range.
	reads sets.Set[schema.GroupResource]
}

// inRange makes the factory's informer for object's type follow a range, by the path
// that the catalogue has for the resource. It shares the informer that another controller
// has made for the same resource and path.
func inRange[L runtime.Object](ctx context.Context, b *ringBuilder, resource schema.GroupResource, object runtime.Object, client interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}) error {
	path := b.controller.PathOf(resource)
	if path == "" {
		return fmt.Errorf("the catalogue of rings does not say by which path %s reads %s", b.controller.Name, resource)
	}
	b.reads.Insert(resource)
	if shared, ok := b.followed[resource]; ok {
		if shared.path != path {
			return fmt.Errorf("%s reads %s by %s, and another controller of the ring by %s", b.controller.Name, resource, path, shared.path)
		}
		b.filtered.add(object, shared.source)
		return nil
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
	b.followed[resource] = followed{path, source}
	b.sources = append(b.sources, source)
	b.filtered.add(object, source)
	return nil
}

// trimManagedFields keeps informers small: no controller reads managed fields.
func trimManagedFields(obj interface{}) (interface{}, error) {
	if accessor, err := meta.Accessor(obj); err == nil && accessor.GetManagedFields() != nil {
		accessor.SetManagedFields(nil)
	}
	return obj, nil
}
