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
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/rangewatch/follower"
)

// Filter keeps from event handlers what is none of their business, for a controller that shares the
// keys with others: it works on a key while a gate is open for it, looks at everything in the store
// when that opens, and forgets what it knew when it is shut. Handlers run behind the store, and a
// change of ranges looks to them like changes of objects. They are told
//
//   - ADDED and MODIFIED, for a key that is open, of what is newer than the opening, or has come
//     back with a restored server. What the store had at the opening is known. Something older that
//     came late would be taken for the arrival, or the end, of what the controller has created or
//     deleted since.
//   - MODIFIED without a change, by a resync or a relist, and MODIFIED back to an older state.
//   - DELETED, for a key that is held, open or not, of what the store does not have, unless that is
//     known to be older than the opening. What has left with a range is not deleted, and may have
//     come back already.
//
// They are told nothing of keys that are not wanted. An object without a key is in all ranges. A
// Filter may be used from any goroutine.
type Filter struct {
	source *Source

	mu sync.Mutex
	// open are the ranges that are open, each since its opening.
	open []since
}

// since is ranges that were opened when the store was at a revision.
type since struct {
	ranges   hashkey.Ranges
	revision uint64
}

// NewFilter returns a Filter for handlers of the informer that s feeds, which lets nothing through
// until Open. It reads keys from what the informer's transform has made, so that must keep them.
func (s *Source) NewFilter() *Filter {
	f := &Filter{source: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.filters = append(s.filters, f)
	return f
}

// Open lets pass what happens in ranges from now on. It must be called when WaitFor has returned
// for them, before a gate opens. What is open stays open since its own opening: nobody else has
// worked there in between. Ranges that SetRanges leaves out are shut.
func (f *Filter) Open(ranges hashkey.Ranges) {
	f.mu.Lock()
	defer f.mu.Unlock()
	// The store never goes back, so whatever a handler was not told of is in it now.
	revision, err := parseRevision(f.source.store.LastStoreSyncResourceVersion())
	if err != nil {
		f.source.logger.Error(err, "Opening the filter of event handlers although the store is empty", "ranges", ranges)
	}
	for _, o := range f.open {
		ranges = ranges.Minus(o.ranges)
	}
	if !ranges.Empty() {
		f.open = append(f.open, since{ranges, revision})
	}
}

// Shut lets nothing of ranges pass any more.
func (f *Filter) Shut(ranges hashkey.Ranges) { f.keep(hashkey.All().Minus(ranges)) }

// keep shuts everything but ranges.
func (f *Filter) keep(ranges hashkey.Ranges) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keepLocked(ranges)
}

func (f *Filter) keepLocked(ranges hashkey.Ranges) {
	open := f.open
	f.open = nil
	for _, o := range open {
		if o.ranges = o.ranges.Intersect(ranges); !o.ranges.Empty() {
			f.open = append(f.open, o)
		}
	}
}

// Wrap returns a handler that passes on to h what the Filter lets through.
func (f *Filter) Wrap(h cache.ResourceEventHandler) cache.ResourceEventHandler {
	return filtered{f, h}
}

// Informer returns an informer that is i, but for the handlers that are added to it: they are
// behind the Filter. i must be the one that the Source feeds.
func (f *Filter) Informer(i cache.SharedIndexInformer) cache.SharedIndexInformer {
	return filteredInformer{i, f}
}

type filteredInformer struct {
	cache.SharedIndexInformer
	filter *Filter
}

// AddEventHandler implements cache.SharedInformer.
func (i filteredInformer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandler(i.filter.Wrap(h))
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (i filteredInformer) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, resyncPeriod time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(i.filter.Wrap(h), resyncPeriod)
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (i filteredInformer) AddEventHandlerWithOptions(h cache.ResourceEventHandler, options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithOptions(i.filter.Wrap(h), options)
}

// filtered is an event handler behind a Filter.
type filtered struct {
	*Filter
	handler cache.ResourceEventHandler
}

// OnAdd implements cache.ResourceEventHandler.
func (h filtered) OnAdd(obj any, isInInitialList bool) {
	if revision, ok := h.openedAt(obj); ok && !h.isOlder(obj, revision) {
		h.handler.OnAdd(obj, isInInitialList)
	}
}

// OnUpdate implements cache.ResourceEventHandler.
func (h filtered) OnUpdate(oldObj, newObj any) {
	revision, open := h.openedAt(newObj)
	if !open {
		revision, open = h.openedAt(oldObj)
	}
	if open && (!goesOn(oldObj, newObj) || !h.isOlder(newObj, revision)) {
		h.handler.OnUpdate(oldObj, newObj)
	}
}

// OnDelete implements cache.ResourceEventHandler.
func (h filtered) OnDelete(obj any) {
	last := obj
	tombstone, missed := obj.(cache.DeletedFinalStateUnknown)
	if missed {
		last = tombstone.Obj
	}
	key, known := h.source.keyOf(last)
	if held := h.source.Held(); known && !key.In(held) || held.Empty() || h.source.has(last) {
		return
	}
	// What a watch has reported as deleted has the revision of that.
	if revision, open := h.openedAt(last); open && !missed && h.isOlder(last, revision) {
		return
	}
	h.handler.OnDelete(obj)
}

// isOlder says whether the object was in the store as it is, or gone from it, when the store was at
// that revision.
func (f *Filter) isOlder(obj any, revision uint64) bool {
	r := revisionOf(obj)
	return r > 0 && r <= revision && !f.source.wasRestored(obj)
}

// goesOn says whether the new object is of a later revision than the old one.
func goesOn(oldObj, newObj any) bool {
	from := revisionOf(oldObj)
	return from > 0 && from < revisionOf(newObj)
}

// openedAt returns the store's revision when the Filter was opened for the key of obj, and whether
// it is open.
func (f *Filter) openedAt(obj any) (uint64, bool) {
	key, known := f.source.keyOf(obj)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range f.open {
		if !known || key.In(o.ranges) {
			return o.revision, true
		}
	}
	return 0, false
}

// keyOf returns the key of an object that may have been transformed, and whether it can be seen.
func (s *Source) keyOf(obj any) (follower.Key, bool) {
	object, ok := obj.(runtime.Object)
	if !ok {
		return follower.Key{}, false
	}
	key, ok, err := s.path.KeyOf(object)
	if !ok || err != nil {
		return follower.Key{}, err == nil
	}
	return follower.KeyOf(key), true
}

// has reports whether the store has an object with the name and the UID of obj.
func (s *Source) has(obj any) bool {
	name, err := cache.ObjectToName(obj)
	if err != nil {
		return false
	}
	stored, exists, err := s.store.GetByKey(name.String())
	if err != nil || !exists {
		return false
	}
	return uidOf(stored) == uidOf(obj)
}

func uidOf(obj any) types.UID {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return accessor.GetUID()
}
