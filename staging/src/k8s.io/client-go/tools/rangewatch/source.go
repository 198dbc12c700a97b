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
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/features"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/rangewatch/follower"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/klog/v2"
)

// Config is what a Source needs.
type Config struct {
	// Field is the field path of the hash key that has to lie in the ranges, such as
	// sharding.HashKeyPath. Required.
	Field string
	// ListWatch lists and watches the whole collection. It must pass the options that it is given
	// to the server unchanged. Required.
	ListWatch cache.ListerWatcher
	// Object is an example of the objects, as for an informer: of their type and, if that is
	// Unstructured, of their kind. Required.
	Object runtime.Object
	// PageSize is the number of objects in a page of a list, where the server does not stream lists.
	// Default: 500, as in client-go's pager.
	PageSize int64
	// Behind is called with true when an informer's store begins to stay at its revision: a list of
	// everything is under way, and handlers hear of what is newer than that. It is called with false
	// when the store is as of everything that they have heard of. They hear of nothing then, so
	// whoever has waited for a revision has to look again. It must not block. Optional.
	Behind func(bool)
	// Logger is what the Source logs to. Default: klog.Background().
	Logger klog.Logger
}

// Source feeds one informer, or one stream, with the objects of a set of ranges, which can be
// changed at any time. Except for NewInformer and Stream its methods may be called from any
// goroutine, and only WaitFor blocks.
type Source struct {
	path      sharding.KeyPath
	listWatch cache.ListerWatcherWithContext
	object    runtime.Object
	logger    klog.Logger
	pageSize  int64
	// streams is set if the client can list as a stream.
	streams bool
	// overdue is for how long something may be lacking until people are told, and until what a watch
	// does not bring is listed.
	overdue time.Duration
	backoff wait.Backoff

	// used is set once something is fed.
	used bool
	// store is nil for a stream.
	store     revisionStore
	stored    stored
	transform cache.TransformFunc
	behind    func(bool)
	// departed has the tombstones that transformed makes of stand-ins.
	departed sync.Map

	// wake has a token while there is news. What drives the Follower takes it.
	wake chan struct{}
	// urged has a token while somebody has begun to wait since the requests were hurried last.
	urged       chan struct{}
	heldChanged chan struct{}
	warnOnce    sync.Once

	mu   sync.Mutex
	want hashkey.Ranges
	// held is what the store was confirmed to have, limited to want.
	held hashkey.Ranges
	// diverged is why nothing that was ever held can be relied on; "" if it can.
	diverged string
	// news is what the Follower has yet to be told.
	news []func(*follower.Follower)
	// filters are those of event handlers.
	filters []*Filter
	// restored has the objects that came back when the server was restored last.
	restored map[follower.ID]any
	lacking  lacking
	// waiting has the calls of WaitFor, whose channels are closed at their end.
	waiting map[follower.Waiter]chan struct{}
	waiters follower.Waiter
}

// revisionStore is the store of an informer.
type revisionStore interface {
	cache.Store
	cache.RevisionControl
}

// stored says how far the store is.
type stored struct {
	// bookmarks is the number of bookmarks that the store has had, and bookmarked has a token after
	// one.
	bookmarks  atomic.Int64
	bookmarked chan struct{}
}

func (s *stored) bookmark() {
	s.bookmarks.Add(1)
	select {
	case s.bookmarked <- struct{}{}:
	default:
	}
}

// NewSource returns a Source that holds no ranges. It fails if cfg is invalid, or if the client-go
// feature gate AtomicFIFO is off: without it, a store does not say which revision it has reached.
func NewSource(cfg Config) (*Source, error) {
	path, ok := sharding.ParseKeyPath(cfg.Field)
	if !ok {
		return nil, fmt.Errorf("unknown Config.Field %q: use a path of hash keys, such as %q", cfg.Field, sharding.HashKeyPath)
	}
	if cfg.ListWatch == nil || cfg.Object == nil {
		return nil, errors.New("Config.ListWatch and Config.Object must be set")
	}
	if _, ok := cfg.Object.(metav1.Object); !ok {
		return nil, fmt.Errorf("Config.Object is a %T: it must be an object with metadata", cfg.Object)
	}
	if !features.FeatureGates().Enabled(features.AtomicFIFO) {
		return nil, fmt.Errorf("the client-go feature gate %s is off, but an informer that follows ranges needs it: unset KUBE_FEATURE_%s", features.AtomicFIFO, features.AtomicFIFO)
	}
	logger := cfg.Logger
	if logger.GetSink() == nil {
		logger = klog.Background()
	}
	if cfg.PageSize < 0 {
		return nil, fmt.Errorf("Config.PageSize is %d: it must not be negative", cfg.PageSize)
	}
	return &Source{
		path:        path,
		listWatch:   cache.ToListerWatcherWithContext(cfg.ListWatch),
		object:      cfg.Object,
		pageSize:    cmp.Or(cfg.PageSize, defaultPageSize),
		streams:     features.FeatureGates().Enabled(features.WatchListClient) && !watchlist.DoesClientNotSupportWatchListSemantics(cfg.ListWatch),
		overdue:     overdue,
		backoff:     backoff,
		behind:      cfg.Behind,
		stored:      stored{bookmarked: make(chan struct{}, 1)},
		logger:      klog.LoggerWithValues(klog.LoggerWithName(logger, "rangewatch"), "type", fmt.Sprintf("%T", cfg.Object), "field", cfg.Field),
		wake:        make(chan struct{}, 1),
		urged:       make(chan struct{}, 1),
		heldChanged: make(chan struct{}, 1),
		waiting:     map[follower.Waiter]chan struct{}{},
	}, nil
}

// NewInformer returns the informer that the Source feeds. It must be called once. The other methods
// may be called before it, but nothing is held until the informer runs.
func (s *Source) NewInformer(options cache.SharedIndexInformerOptions) cache.SharedIndexInformer {
	s.useOnce("NewInformer")
	i := &informer{SharedIndexInformer: cache.NewSharedIndexInformerWithOptions(newFeed(s), s.object, options), source: s}
	s.store = i.GetStore().(revisionStore) // that of a shared informer always is
	s.store.OnBookmark(s.stored.bookmark)
	if err := i.SetTransform(nil); err != nil {
		panic(err) // the informer has not started, so this cannot happen
	}
	return i
}

// useOnce panics if the Source feeds somebody already.
func (s *Source) useOnce(method string) {
	if s.used {
		panic("coding error: " + method + " was called on a Source that feeds an informer or a stream already")
	}
	s.used = true
}

// SetRanges sets the ranges to hold, and returns at once. Ranges that are left out are no longer in
// Held when SetRanges returns. Their objects leave the store soon after. Ranges may overlap or
// touch. Their number is not limited, but a server takes only 128 in a request. For more, it is
// asked for what lies in the narrowest gaps between them too, which is dropped here.
func (s *Source) SetRanges(r hashkey.Ranges) {
	r = hashkey.NewRanges(r...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.want = r
	s.setHeldLocked(s.held)
	for _, f := range s.filters {
		f.keep(r)
	}
	s.tellLocked(func(f *follower.Follower) { f.Want(r) })
}

// Held returns the ranges that the store has completely, as of some recent revision, and follows.
func (s *Source) Held() hashkey.Ranges {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// Diverged returns why nothing of what was held can be relied on; "" if all can. The server then
// has another history than the store: it was restored to an earlier state, without raising its
// revision. Nothing is held from then on, until all has been listed at a later revision than
// before; but what was made of the old objects stays wrong, so the process should exit. HeldChanged
// tells of it.
func (s *Source) Diverged() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.diverged
}

// HeldChanged returns a channel that has a token after Held or Diverged has changed: one for all
// changes since the last token was taken. It is for one reader.
func (s *Source) HeldChanged() <-chan struct{} { return s.heldChanged }

// Keys returns the hash keys in r of the objects in the store, one for each object, in any order.
// Objects without a key are left out. It is for an informer, and takes as long as there are
// objects.
func (s *Source) Keys(r hashkey.Ranges) []int64 {
	var keys []int64
	for _, obj := range s.store.List() {
		object, ok := obj.(runtime.Object)
		if !ok {
			continue
		}
		if key, ok, err := s.path.KeyOf(object); ok && err == nil && r.Contains(key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// WaitFor returns nil once the store has every object of r as of a moment after the call: what was
// written before the call is in the store, and what was deleted is gone from it. It may be called
// before the ranges are set and before the informer runs. It fails only when ctx ends, with its
// cause. It costs one watch, opened anew to ask the server how far it is, and no list; where a
// server does not answer, a list of everything. Calls that come while an answer is outstanding
// share the next one.
func (s *Source) WaitFor(ctx context.Context, r hashkey.Ranges) error {
	if r = hashkey.NewRanges(r...); r.Empty() {
		return nil
	}
	done := make(chan struct{})
	s.mu.Lock()
	s.waiters++
	number := s.waiters
	s.waiting[number] = done
	s.tellLocked(func(f *follower.Follower) { f.Wait(number, r) })
	s.mu.Unlock()
	select {
	case s.urged <- struct{}{}:
	default:
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waiting, number)
		s.tellLocked(func(f *follower.Follower) { f.StopWaiting(number) })
		return fmt.Errorf("waiting until the informer of %T holds %s: %w", s.object, r, context.Cause(ctx))
	}
}

// tellLocked has the Follower told something.
func (s *Source) tellLocked(news func(*follower.Follower)) {
	s.news = append(s.news, news)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// takeNews tells f what there is to tell.
func (s *Source) takeNews(f *follower.Follower) {
	s.mu.Lock()
	news := s.news
	s.news = nil
	s.mu.Unlock()
	for _, tell := range news {
		tell(f)
	}
}

// report publishes what the store was confirmed to have, and ends the calls of WaitFor that it
// satisfies.
func (s *Source) report(held hashkey.Ranges, satisfied []follower.Waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setHeldLocked(held)
	for _, number := range satisfied {
		if done := s.waiting[number]; done != nil {
			close(done)
			delete(s.waiting, number)
		}
	}
}

// setHeldLocked sets what the store holds, limited to the wanted ranges: the rest is about to
// leave.
func (s *Source) setHeldLocked(held hashkey.Ranges) {
	held = held.Intersect(s.want)
	if held.Equal(s.held) {
		return
	}
	s.held = held
	s.signalLocked()
}

func (s *Source) signalLocked() {
	select {
	case s.heldChanged <- struct{}{}:
	default:
	}
}

// selector returns the selector for objects in r, or for all if r is empty.
func (s *Source) selector(r hashkey.Ranges) string { return r.Selector(s.path.String()) }

// identify returns what the Follower has to know of obj. It fails if obj has no metadata or no
// revision.
func (s *Source) identify(obj runtime.Object) (follower.Object, error) {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return follower.Object{}, fmt.Errorf("the server sent a %T, which is not an object with metadata: %w", obj, err)
	}
	revision, err := parseRevision(accessor.GetResourceVersion())
	if err != nil {
		return follower.Object{}, err
	}
	object := follower.Object{ID: follower.ID(cache.MetaObjectToName(accessor)), Revision: revision}
	key, ok, err := s.path.KeyOf(obj)
	if err != nil {
		return follower.Object{}, err
	}
	if ok {
		object.Key = follower.KeyOf(key)
	}
	return object, nil
}

func parseRevision(resourceVersion string) (uint64, error) {
	revision, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resource version %q is not a number; use one that the API server gave out: %w", resourceVersion, err)
	}
	return revision, nil
}
