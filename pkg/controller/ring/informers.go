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

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/rangewatch"
	"k8s.io/client-go/tools/ring/guard"
	"k8s.io/client-go/tools/ring/member"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
)

// Informers are the informers of a ring in this process: one for each resource and path,
// whichever of its controllers read it.
type Informers struct {
	client kubernetes.Interface
	resync time.Duration
	whole  *Whole
	byRead map[catalogue.Read]*informer
	parts  map[schema.GroupResource]*wholePart
	// readers has the controllers that read each of them.
	readers map[catalogue.Read]*readers
	// Sources feed all of them.
	Sources []member.Source
	// subjects are those of all controllers.
	subjects []*guard.Subjects
}

// informer follows ranges of a resource.
type informer struct {
	cache.SharedIndexInformer
	source *rangewatch.Source
}

// namedSource is the source of an informer, as people see it.
type namedSource struct {
	*rangewatch.Source
	read catalogue.Read
}

// String returns what is read, and by which key it is divided.
func (s namedSource) String() string { return fmt.Sprintf("%s by %s", s.read.Resource, s.read.Path) }

// readers are the subjects of the controllers that read an informer.
type readers struct{ subjects []*guard.Subjects }

// behind is called when the informer gets behind with its revision, and when no longer.
func (r *readers) behind(is bool) {
	for _, s := range r.subjects {
		s.Behind(is)
	}
}

// NewInformers returns informers that list and watch with client and tell their handlers of
// all objects again every resync. What the ring holds all of is in whole, which the process's
// rings share.
func NewInformers(client kubernetes.Interface, resync time.Duration, whole *Whole) *Informers {
	return &Informers{
		client: client, resync: resync, whole: whole,
		byRead: map[catalogue.Read]*informer{}, parts: map[schema.GroupResource]*wholePart{}, readers: map[catalogue.Read]*readers{},
	}
}

// Run runs the informers until ctx ends.
func (i *Informers) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, informer := range i.byRead {
		wg.Go(func() { informer.RunWithContext(ctx) })
	}
	for _, part := range i.parts {
		wg.Go(func() { part.run(ctx) })
	}
	wg.Wait()
}

// Close takes the handlers of the ring's controllers from what the process's rings share. It must
// be called whether or not the informers have run.
func (i *Informers) Close() {
	for _, part := range i.parts {
		part.close()
	}
}

// of returns the informer for that read, and its source, nil if it holds all objects. Who reads it
// is added to its readers before it runs.
func (i *Informers) of(ctx context.Context, read catalogue.Read) (cache.SharedIndexInformer, *rangewatch.Source, error) {
	if i.readers[read] == nil {
		i.readers[read] = &readers{}
	}
	behind := i.readers[read].behind
	if read.Path == catalogue.Whole {
		if part, ok := i.parts[read.Resource]; ok {
			return part, nil, nil
		}
		part, err := i.whole.part(read.Resource, behind)
		if err != nil {
			return nil, nil, err
		}
		i.parts[read.Resource] = part
		i.Sources = append(i.Sources, part)
		return part, nil, nil
	}
	shared, ok := i.byRead[read]
	if !ok {
		var err error
		shared, err = newInformer(ctx, i.client, read.Resource, read.Path, i.resync, behind)
		if err != nil {
			return nil, nil, err
		}
		i.byRead[read] = shared
		i.Sources = append(i.Sources, namedSource{shared.source, read})
	}
	return shared, shared.source, nil
}

// Describe says for people what has that hash key: a namespace or, on a ring by the objects' own
// keys, an object that a controller works on.
func (i *Informers) Describe(key int64) string {
	for _, s := range i.subjects {
		if text, ok := s.Describe(key); ok {
			return text
		}
	}
	return "hash key " + hashkey.Format(key)
}

// newInformer returns an informer of a resource, of which it keeps what controllers read.
func newInformer(ctx context.Context, client kubernetes.Interface, of schema.GroupResource, field string, resync time.Duration, behind func(bool)) (*informer, error) {
	r, ok := resources[of]
	if !ok {
		return nil, fmt.Errorf("no informer is known for %s, which the catalogue of rings lists", of)
	}
	source, err := rangewatch.NewSource(rangewatch.Config{
		Field:     field,
		ListWatch: cache.ToListWatcherWithWatchListSemantics(r.listWatch(client), client),
		Object:    r.object,
		Behind:    behind,
		Logger:    klog.LoggerWithValues(klog.FromContext(ctx), "informer", fmt.Sprintf("%T", r.object)),
	})
	if err != nil {
		return nil, err
	}
	shared := &informer{source.NewInformer(cache.SharedIndexInformerOptions{
		ResyncPeriod: resync,
		Indexers:     cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
	}), source}
	return shared, shared.SetTransform(r.transform(shared.GetStore()))
}
