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

package ring

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/rangewatch"
	"k8s.io/client-go/tools/ring/member"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
)

// Informers are the informers of a ring in this process: one for each resource and path,
// whichever of its controllers read it.
type Informers struct {
	client kubernetes.Interface
	resync time.Duration
	byRead map[catalogue.Read]*informer
	// Sources feed all of them.
	Sources []member.Source
	// subjects are those of all controllers.
	subjects []*subjects
}

// informer follows a range of a resource, or all of it.
type informer struct {
	cache.SharedIndexInformer
	source *rangewatch.Source
	whole  bool
}

// NewInformers returns informers that list and watch with client and tell their handlers of
// all objects again every resync.
func NewInformers(client kubernetes.Interface, resync time.Duration) *Informers {
	return &Informers{client: client, resync: resync, byRead: map[catalogue.Read]*informer{}}
}

// Run runs the informers until ctx ends.
func (i *Informers) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, informer := range i.byRead {
		wg.Go(func() { informer.RunWithContext(ctx) })
	}
	wg.Wait()
}

// of returns the informer for that read.
func (i *Informers) of(ctx context.Context, read catalogue.Read) (*informer, error) {
	if shared, ok := i.byRead[read]; ok {
		return shared, nil
	}
	r, ok := resources[read.Resource]
	if !ok {
		return nil, fmt.Errorf("no informer is known for %s, which the catalogue of rings lists", read.Resource)
	}
	whole, field := read.Path == catalogue.Whole, rangewatch.FieldPath(read.Path)
	if whole {
		field = rangewatch.ByHashKey
	}
	source, err := rangewatch.NewSource(rangewatch.Config{
		Field:     field,
		ListWatch: cache.ToListWatcherWithWatchListSemantics(r.listWatch(i.client), i.client),
		Object:    r.object,
		Behind:    i.behind,
		Logger:    klog.LoggerWithValues(klog.FromContext(ctx), "informer", fmt.Sprintf("%T", r.object)),
	})
	if err != nil {
		return nil, err
	}
	shared := &informer{source.NewInformer(cache.SharedIndexInformerOptions{
		ResyncPeriod: i.resync,
		Indexers:     cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
	}), source, whole}
	if err := shared.SetTransform(r.transform); err != nil {
		return nil, err
	}
	i.byRead[read] = shared
	if whole {
		i.Sources = append(i.Sources, wholeSource{source})
	} else {
		i.Sources = append(i.Sources, source)
	}
	return shared, nil
}

// behind is called when one of the informers gets behind with its revision, and when no longer.
func (i *Informers) behind(is bool) {
	for _, s := range i.subjects {
		s.behind(is)
	}
}
