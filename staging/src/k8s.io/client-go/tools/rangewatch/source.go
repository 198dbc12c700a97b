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
	"math"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/features"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/klog/v2"
)

// FieldPath names the hash key by which objects are selected, as in a shard selector.
type FieldPath string

const (
	// ByHashKey selects objects by their own hash key.
	ByHashKey FieldPath = sharding.HashKeyPath
	// ByControllerHashKey selects objects by the hash key of their controller. An object without
	// a controller is in every range.
	ByControllerHashKey FieldPath = sharding.ControllerHashKeyPath
)

// Config is what a Source needs.
type Config struct {
	// Field is the hash key that has to lie in the ranges. Required.
	Field FieldPath
	// ListWatch lists and watches the whole collection. It must pass the options that it is given
	// to the server unchanged. Required.
	ListWatch cache.ListerWatcher
	// Object is an example of the objects, as for an informer: of their type and, if that is
	// Unstructured, of their kind. Required.
	Object runtime.Object
	// IncompleteRelists trades completeness for memory. If it is set, a relist brings the store up
	// to date object by object, and nothing is held until that is done. Otherwise the store keeps
	// its content until the new content replaces it in one step, and what has changed is in memory
	// beside it. A relist follows when the server no longer has the events that the watch needs.
	IncompleteRelists bool
	// Logger is what the Source logs to. Default: klog.Background().
	Logger klog.Logger
}

// Source feeds one informer with the objects of a set of ranges, which can be changed at any time.
// Except for NewInformer its methods may be called from any goroutine, and only WaitFor blocks.
type Source struct {
	path      sharding.KeyPath
	listWatch cache.ListerWatcherWithContext
	object    runtime.Object
	logger    klog.Logger
	store     cache.Store
	transform cache.TransformFunc
	// streams is set if the client can list as a stream.
	streams           bool
	incompleteRelists bool
	// tellsProgress is set until the server has refused to report progress on request. Only the
	// goroutine of a stream uses it.
	tellsProgress bool

	// answerTime is how long a WaitFor relies on the answer of a watch alone.
	answerTime time.Duration

	// wake has a token after want or waiters have changed. What feeds the reflector takes it.
	wake        chan struct{}
	heldChanged chan struct{}
	warnOnce    sync.Once

	mu   sync.Mutex
	want hashkey.Ranges
	// held is what the store was confirmed to have, limited to want.
	held    extent
	waiters map[*waiter]struct{}
	// questions counts the questions that were asked. A question is a request whose answer shows the
	// collection as of the moment of the request or later: a consistent list, or a watch that asks
	// how far the server is.
	questions uint64
}

// waiter is a call of WaitFor.
type waiter struct {
	ranges hashkey.Ranges
	// after is the last question before the call, whose answer may be older than the call.
	after uint64
	// revision is a revision that the collection had after the call, or unknown.
	revision uint64
	done     chan struct{}
}

// unknown is later than any revision.
const unknown uint64 = math.MaxUint64

// answerTime allows for the 100 ms that a server may take for an answer even if it has nothing else
// to do: it asks etcd for its progress no more often than that.
const answerTime = 250 * time.Millisecond

// NewSource returns a Source that holds no ranges. It fails if cfg is invalid, or if the client-go
// feature gate AtomicFIFO is off: without it, a store does not say which revision it has reached.
func NewSource(cfg Config) (*Source, error) {
	path, ok := sharding.ParseKeyPath(string(cfg.Field))
	if !ok {
		return nil, fmt.Errorf("unknown Config.Field %q: use a path of hash keys, such as %q", cfg.Field, ByHashKey)
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
	return &Source{
		path:              path,
		listWatch:         cache.ToListerWatcherWithContext(cfg.ListWatch),
		object:            cfg.Object,
		streams:           features.FeatureGates().Enabled(features.WatchListClient) && !watchlist.DoesClientNotSupportWatchListSemantics(cfg.ListWatch),
		incompleteRelists: cfg.IncompleteRelists,
		tellsProgress:     true,
		answerTime:        answerTime,
		logger:            klog.LoggerWithValues(klog.LoggerWithName(logger, "rangewatch"), "type", fmt.Sprintf("%T", cfg.Object), "field", cfg.Field),
		wake:              make(chan struct{}, 1),
		heldChanged:       make(chan struct{}, 1),
		waiters:           map[*waiter]struct{}{},
	}, nil
}

// NewInformer returns the informer that the Source feeds. It must be called once. The other methods
// may be called before it, but nothing is held until the informer runs.
func (s *Source) NewInformer(options cache.SharedIndexInformerOptions) cache.SharedIndexInformer {
	if s.store != nil {
		panic("coding error: NewInformer was called twice on one Source")
	}
	i := &informer{SharedIndexInformer: cache.NewSharedIndexInformerWithOptions(newFeed(s), s.object, options), source: s}
	s.store = i.GetStore()
	if err := i.SetTransform(nil); err != nil {
		panic(err) // the informer has not started, so this cannot happen
	}
	return i
}

// SetRanges sets the ranges to hold, and returns at once. Ranges that are left out are no longer in
// Held when SetRanges returns. Their objects leave the store soon after.
//
// One request asks for all ranges that are missing or followed, and a server refuses one for more
// than 128. So keep the number of separate ranges, old and new ones together, below that: a refused
// request is logged and retried for ever. A member of a ring follows a handful.
func (s *Source) SetRanges(r hashkey.Ranges) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.want = r
	s.setHeldLocked(s.held)
	s.wakeUp()
}

// Held returns the ranges that the store has completely, as of some recent revision, and follows.
func (s *Source) Held() hashkey.Ranges {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held.ranges
}

// HeldChanged returns a channel that has a token after Held has changed: one for all changes since
// the last token was taken. It is for one reader.
func (s *Source) HeldChanged() <-chan struct{} { return s.heldChanged }

// WaitFor returns nil once the store has every object of r as of a moment after the call: what was
// written before the call is in the store, and what was deleted is gone from it. It may be called
// before the ranges are set and before the informer runs. It fails only when ctx ends, with its
// cause. It costs one watch, opened anew to ask the server how far it is, and no list. Calls that
// come while an answer is outstanding share the next one.
func (s *Source) WaitFor(ctx context.Context, r hashkey.Ranges) error {
	w := &waiter{ranges: r, revision: unknown, done: make(chan struct{})}
	s.mu.Lock()
	w.after = s.questions
	s.waiters[w] = struct{}{}
	s.releaseLocked() // if r is empty
	s.wakeUp()
	s.mu.Unlock()
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	go s.readRevision(reading, w, s.answerTime)
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waiters, w)
		return fmt.Errorf("waiting until the informer of %T holds %s: %w", s.object, r, context.Cause(ctx))
	}
}

// readRevision reads the collection's revision for a waiter that has had no answer in time. The
// server may not know how to answer, but its events and ordinary bookmarks will reach the revision.
func (s *Source) readRevision(ctx context.Context, w *waiter, answerTime time.Duration) {
	backoff := wait.Backoff{Duration: answerTime, Factor: 2, Jitter: 0.1, Steps: 8, Cap: 30 * time.Second}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff.Step()):
		}
		revision, err := s.present(ctx)
		if err == nil {
			s.mu.Lock()
			w.revision = revision
			s.wakeUp()
			s.mu.Unlock()
			return
		}
		if ctx.Err() == nil {
			s.logger.Error(err, "Reading the present revision failed; will retry")
		}
	}
}

// ask returns the number of a question that is about to be asked.
func (s *Source) ask() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.questions++
	return s.questions
}

// wakeUp makes what feeds the reflector look at want and waiters again.
func (s *Source) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// wanted returns the ranges to hold.
func (s *Source) wanted() hashkey.Ranges {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.want
}

// setHeldLocked sets what the store holds, limited to the wanted ranges: the rest is about to
// leave.
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

// releaseLocked ends the calls of WaitFor that held satisfies.
func (s *Source) releaseLocked() {
	for w := range s.waiters {
		if s.held.satisfies(w) {
			close(w.done)
			delete(s.waiters, w)
		}
	}
}

// objectID is the store's key of an object. It needs no UID, because revisions tell apart the
// objects that have had a name one after another.
type objectID = cache.ObjectName

// noKey stands for the key of an object that lacks it.
const noKey int64 = -1

// identity is what the Source has to know of an object, without keeping it.
type identity struct {
	id       objectID
	revision uint64
	key      int64
}

// identify returns the identity of obj. It fails if obj has no metadata or no revision.
func (s *Source) identify(obj runtime.Object) (identity, error) {
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return identity{}, fmt.Errorf("the server sent a %T, which is not an object with metadata: %w", obj, err)
	}
	revision, err := parseRevision(accessor.GetResourceVersion())
	if err != nil {
		return identity{}, err
	}
	key, ok, err := s.path.KeyOf(obj)
	if err != nil {
		return identity{}, err
	}
	if !ok {
		key = noKey
	}
	return identity{id: cache.MetaObjectToName(accessor), revision: revision, key: key}, nil
}

// matches reports whether an object with that key is in r.
func matches(key int64, r hashkey.Ranges) bool {
	if key == noKey {
		return !r.Empty()
	}
	return r.Contains(key)
}

// newBookmark returns the object of a bookmark, of the type that the reflector expects.
func (s *Source) newBookmark(resourceVersion string) runtime.Object {
	bookmark := s.object.DeepCopyObject()
	bookmark.(metav1.Object).SetResourceVersion(resourceVersion)
	return bookmark
}

// firstRevision is lower than any object's revision: the first write to etcd has revision 2.
const firstRevision uint64 = 1

func parseRevision(resourceVersion string) (uint64, error) {
	revision, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resource version %q is not a number; use one that the API server gave out: %w", resourceVersion, err)
	}
	return revision, nil
}
