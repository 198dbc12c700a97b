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
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/sharding"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Whole are the informers of what a process holds all of, whatever its ranges: one for each
// resource, whichever of its rings read it.
type Whole struct {
	ctx    context.Context
	client kubernetes.Interface
	resync time.Duration

	lock      sync.Mutex
	informers map[schema.GroupResource]*wholeInformer
}

// NewWhole returns informers that list and watch with client and tell their handlers of all
// objects again every resync. Each runs from its first use until ctx ends. It holds its objects
// while one of the rings has a range.
func NewWhole(ctx context.Context, client kubernetes.Interface, resync time.Duration) *Whole {
	return &Whole{ctx: ctx, client: client, resync: resync, informers: map[schema.GroupResource]*wholeInformer{}}
}

// part returns a ring's part in the informer of a resource. behind is called when that informer
// gets behind with its revision, and when no longer.
func (w *Whole) part(resource schema.GroupResource, behind func(bool)) (*wholePart, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	shared, ok := w.informers[resource]
	if !ok {
		shared = &wholeInformer{parts: map[*wholePart]struct{}{}}
		feed, err := newInformer(w.ctx, w.client, resource, sharding.HashKeyPath, w.resync, shared.tellBehind)
		if err != nil {
			return nil, err
		}
		shared.informer = feed
		w.informers[resource] = shared
		go shared.RunWithContext(w.ctx)
		go shared.tellHeld(w.ctx)
	}
	return &wholePart{wholeInformer: shared, resource: resource, behind: behind, heldChanged: make(chan struct{}, 1)}, nil
}

// wholeInformer is an informer of all objects of a resource.
type wholeInformer struct {
	*informer

	lock sync.Mutex
	// parts are those of the rings that take part now.
	parts map[*wholePart]struct{}
	// lags says that the informer is behind with its revision.
	lags bool
}

func (w *wholeInformer) tellBehind(is bool) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.lags = is
	for part := range w.parts {
		part.behind(is)
	}
}

func (w *wholeInformer) tellHeld(ctx context.Context) {
	for {
		select {
		case <-w.source.HeldChanged():
		case <-ctx.Done():
			return
		}
		w.lock.Lock()
		for part := range w.parts {
			part.tellHeld()
		}
		w.lock.Unlock()
	}
}

// followLocked has everything held while a part has a range.
func (w *wholeInformer) followLocked() {
	var ranges hashkey.Ranges
	if slices.ContainsFunc(slices.Collect(maps.Keys(w.parts)), func(p *wholePart) bool { return p.wants }) {
		ranges = hashkey.All()
	}
	w.source.SetRanges(ranges)
}

// wholePart is a ring's part in an informer of all objects: the informer as the ring's controllers
// have it, and a source of the ring. For each range it waits as a source of that range does: what
// the previous owner has seen of the resource is then in the store.
type wholePart struct {
	*wholeInformer
	resource    schema.GroupResource
	behind      func(bool)
	heldChanged chan struct{}
	// wants says that the ring has a range. The wholeInformer's lock guards it.
	wants bool
	// handlers are those of the ring's controllers.
	handlers []cache.ResourceEventHandlerRegistration
}

// run takes part until ctx ends.
func (p *wholePart) run(ctx context.Context) {
	p.lock.Lock()
	p.parts[p] = struct{}{}
	p.followLocked()
	if p.lags {
		p.behind(true)
	}
	p.lock.Unlock()
	<-ctx.Done()
	p.lock.Lock()
	defer p.lock.Unlock()
	delete(p.parts, p)
	p.followLocked()
}

// close takes the handlers of the ring's controllers from the informer.
func (p *wholePart) close() {
	for _, handler := range p.handlers {
		if err := p.RemoveEventHandler(handler); err != nil {
			utilruntime.HandleError(fmt.Errorf("removing an event handler of a ring that this process is not in: %w", err))
		}
	}
}

func (p *wholePart) tellHeld() {
	select {
	case p.heldChanged <- struct{}{}:
	default:
	}
}

// AddEventHandler implements cache.SharedInformer.
func (p *wholePart) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return p.AddEventHandlerWithOptions(h, cache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (p *wholePart) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, resyncPeriod time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return p.AddEventHandlerWithOptions(h, cache.HandlerOptions{ResyncPeriod: &resyncPeriod})
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (p *wholePart) AddEventHandlerWithOptions(h cache.ResourceEventHandler, options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	registered, err := p.wholeInformer.AddEventHandlerWithOptions(h, options)
	if err == nil {
		p.handlers = append(p.handlers, registered)
	}
	return registered, err
}

// String returns what is read.
func (p *wholePart) String() string { return p.resource.String() + ", all" }

// SetRanges implements member.Source.
func (p *wholePart) SetRanges(ranges hashkey.Ranges) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.wants = !ranges.Empty()
	p.followLocked()
	p.tellHeld()
}

// Held implements member.Source.
func (p *wholePart) Held() hashkey.Ranges {
	if held := p.source.Held(); held.Covers(hashkey.All()) {
		return held
	}
	return nil
}

// HeldChanged implements member.Source.
func (p *wholePart) HeldChanged() <-chan struct{} { return p.heldChanged }

// Diverged implements member.Source.
func (p *wholePart) Diverged() string { return p.source.Diverged() }

// Waits implements member.Source.
func (p *wholePart) Waits() string { return p.source.Waits() }

// WaitFor implements member.Source.
func (p *wholePart) WaitFor(ctx context.Context, ranges hashkey.Ranges) error {
	if ranges.Empty() {
		return nil
	}
	return p.source.WaitFor(ctx, hashkey.All())
}

// Keys implements member.Source. The objects are no load of a range.
func (p *wholePart) Keys(hashkey.Ranges) []int64 { return nil }
