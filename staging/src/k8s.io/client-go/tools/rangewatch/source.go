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
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/client-go/features"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/klog/v2"
)

// FieldPath names the hash key by which objects are selected, as in a shard
// selector.
type FieldPath string

const (
	// ByHashKey selects objects by their own hash key.
	ByHashKey FieldPath = sharding.HashKeyPath
	// ByControllerHashKey selects objects by the hash key of their controller. An
	// object without one is in every range.
	ByControllerHashKey FieldPath = sharding.ControllerHashKeyPath
)

// Config is what a Source needs.
type Config struct {
	// Field is the hash key that the ranges are about.
	Field FieldPath
	// ListWatch lists and watches the whole collection, with the options that it is
	// given handed on to the server unchanged.
	ListWatch cache.ListerWatcher
	// Object is an example of the objects, as for an informer: of their type, and,
	// where that is Unstructured, of their kind.
	Object runtime.Object
	// IncompleteRelists gives up completeness for memory: where the server no longer
	// has the events that were missed, the store is brought up to date object by
	// object, and nothing is held until that is done. Otherwise the store keeps what
	// it has until the new replaces it in one step, and holds besides what has changed.
	IncompleteRelists bool
	// Logger is used for what has no better one. Default: klog.Background().
	Logger klog.Logger
}

// Source feeds one informer with the objects of a set of ranges that can be
// changed at any time. Its methods may be called from any goroutine and do not
// block, WaitFor apart.
type Source struct {
	field     FieldPath
	listWatch cache.ListerWatcherWithContext
	object    runtime.Object
	logger    klog.Logger
	store     cache.Store
	transform cache.TransformFunc
	// streams is set where lists may be asked for as streams.
	streams           bool
	incompleteRelists bool
	// tellsProgress is set until a server has refused to say where a watch stands.
	tellsProgress bool

	// wake tells whoever feeds the reflector that want or waiters have changed.
	wake        chan struct{}
	heldChanged chan struct{}
	warnOnce    sync.Once

	mu   sync.Mutex
	want hashkey.Ranges
	// held is what the store holds, as far as that has been made sure of.
	held    extent
	waiters map[*waiter]struct{}
}

// waiter is a call of WaitFor.
type waiter struct {
	ranges   hashkey.Ranges
	revision uint64
	done     chan struct{}
}

// NewSource returns a Source that holds no ranges. It fails where cfg lacks
// something, and where the client-go feature AtomicFIFO is off: without it a store
// does not say which revision it has reached.
func NewSource(cfg Config) (*Source, error) {
	if cfg.Field != ByHashKey && cfg.Field != ByControllerHashKey {
		return nil, fmt.Errorf("unknown hash key field %q: use %q or %q", cfg.Field, ByHashKey, ByControllerHashKey)
	}
	if cfg.ListWatch == nil || cfg.Object == nil {
		return nil, errors.New("a list-watch and an example object are needed")
	}
	if _, ok := cfg.Object.(metav1.Object); !ok {
		return nil, fmt.Errorf("the example object is a %T: it must be an object with metadata", cfg.Object)
	}
	if !features.FeatureGates().Enabled(features.AtomicFIFO) {
		return nil, fmt.Errorf("the client-go feature %s is off: turn it on (unset KUBE_FEATURE_%s), an informer that follows a range needs it", features.AtomicFIFO, features.AtomicFIFO)
	}
	logger := cfg.Logger
	if logger.GetSink() == nil {
		logger = klog.Background()
	}
	return &Source{
		field:             cfg.Field,
		listWatch:         cache.ToListerWatcherWithContext(cfg.ListWatch),
		object:            cfg.Object,
		streams:           features.FeatureGates().Enabled(features.WatchListClient) && !watchlist.DoesClientNotSupportWatchListSemantics(cfg.ListWatch),
		incompleteRelists: cfg.IncompleteRelists,
		tellsProgress:     true,
		logger:            klog.LoggerWithValues(klog.LoggerWithName(logger, "rangewatch"), "type", fmt.Sprintf("%T", cfg.Object), "field", cfg.Field),
		wake:              make(chan struct{}, 1),
		heldChanged:       make(chan struct{}, 1),
		waiters:           map[*waiter]struct{}{},
	}, nil
}

// NewInformer returns the informer that the Source feeds. It must be called once,
// and before the other methods can have an effect.
func (s *Source) NewInformer(options cache.SharedIndexInformerOptions) cache.SharedIndexInformer {
	if s.store != nil {
		panic("coding error: a Source has one informer")
	}
	i := &informer{SharedIndexInformer: cache.NewSharedIndexInformerWithOptions(newFeed(s), s.object, options), source: s}
	s.store = i.GetStore()
	if err := i.SetTransform(nil); err != nil {
		panic(err) // only of an informer that has started
	}
	return i
}

// SetRanges sets the ranges that are to be held, and returns at once. What a change
// leaves out is no longer in Held when SetRanges returns; it leaves the store
// soon after.
func (s *Source) SetRanges(r hashkey.Ranges) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.want = r
	s.setHeldLocked(s.held)
	s.wakeUp()
}

// Held returns the ranges of which the store has every object as of some recent
// revision, and follows what happens to them.
func (s *Source) Held() hashkey.Ranges {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held.ranges
}

// HeldChanged returns a channel that has a token after Held has changed, one for
// all changes since the last was taken. It is for one reader.
func (s *Source) HeldChanged() <-chan struct{} { return s.heldChanged }

// WaitFor returns nil once the store has every object of r as of revision or
// later. It may be called before the ranges are set and before the informer runs.
// Where the watch does not bring a revision by itself, the server is asked how far it is.
// revision is a resource version from the same storage as the collection's, or ""
// for whatever the store has. The error is ctx's, or says that revision is no
// number.
func (s *Source) WaitFor(ctx context.Context, r hashkey.Ranges, revision string) error {
	w := &waiter{ranges: r, done: make(chan struct{})}
	if revision != "" {
		var err error
		if w.revision, err = parseRevision(revision); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.waiters[w] = struct{}{}
	s.releaseLocked()
	s.wakeUp()
	s.mu.Unlock()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waiters, w)
		s.wakeUp()
		return fmt.Errorf("waiting until the informer of %T holds %s at revision %q: %w", s.object, r, revision, context.Cause(ctx))
	}
}

// wakeUp makes the feeder look at want and waiters again.
func (s *Source) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// wanted returns the ranges that are to be held.
func (s *Source) wanted() hashkey.Ranges {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.want
}

// setHeldLocked sets what the store holds, limited to what it is to hold: the rest
// is about to leave.
func (s *Source) setHeldLocked(held extent) {
	held.ranges = held.ranges.Intersect(s.want)
	changed := !held.ranges.Equal(s.held.ranges)
	s.held = held
	s.releaseLocked()
	if changed {
		select {
		case s.heldChanged <- struct{}{}:
		default:
		}
	}
}

// releaseLocked ends the calls of WaitFor that have what they wait for.
func (s *Source) releaseLocked() {
	for w := range s.waiters {
		if s.held.holds(w.ranges, w.revision) {
			close(w.done)
			delete(s.waiters, w)
		}
	}
}

// objectID is how the store tells objects apart. It has no UID: revisions order
// the objects that had a name one after another.
type objectID = cache.ObjectName

// noKey stands for the key of an object that has none: an object without
// controller, by ControllerHashKey.
const noKey int64 = -1

// identity is what is known of an object without keeping it.
type identity struct {
	id       objectID
	revision uint64
	key      int64
}

// identify reads obj's identity.
func (s *Source) identify(obj runtime.Object) (identity, error) {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return identity{}, fmt.Errorf("%T from the server is no object: %w", obj, err)
	}
	revision, err := parseRevision(accessor.GetResourceVersion())
	if err != nil {
		return identity{}, err
	}
	return identity{id: cache.MetaObjectToName(accessor), revision: revision, key: s.keyOf(accessor)}, nil
}

func (s *Source) keyOf(obj metav1.Object) int64 {
	if s.field == ByHashKey {
		return metav1.HashKeyOf(obj)
	}
	if key, ok := metav1.HashKeyOfController(obj); ok {
		return key
	}
	return noKey
}

// matches says whether an object with that key is in r.
func matches(key int64, r hashkey.Ranges) bool {
	if key == noKey {
		return !r.Empty()
	}
	return r.Contains(key)
}

// newBookmark returns a bookmark's object, of the type that the reflector expects.
func (s *Source) newBookmark(resourceVersion string) runtime.Object {
	bookmark := s.object.DeepCopyObject()
	bookmark.(metav1.Object).SetResourceVersion(resourceVersion)
	return bookmark
}

// firstRevision is older than every object: etcd's first write has revision 2.
const firstRevision uint64 = 1

func parseRevision(resourceVersion string) (uint64, error) {
	revision, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resource version %q is not the number that an API server gives: %w", resourceVersion, err)
	}
	return revision, nil
}
