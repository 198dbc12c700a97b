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
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
)

// stream is the watch that the reflector holds. Only one goroutine touches delivered. Lists, and
// the opening of watches, run beside it, so that events keep flowing.
//
//	          SetRanges: what leaves is DELETED, then what is missing is listed
//	        ┌──────────────────────────────────────────────────────────────┐
//	        │                                                              ▼
//	┌───────┴──────┐   listed: a watch of everything      ┌───────────────────────┐
//	│ following    │◀─────────────────────────────────────│ following and listing │
//	└───────┬──────┘                                      └───────────────────────┘
//	        │    ▲
//	        └────┘ WaitFor: the watch is opened anew, and asks how far the server is
//
// Growing without a gap. The ranges R are followed, and D is to be added. The base B is the
// revision that the watch of R has reached when the list of D begins. The list is consistent, at a
// revision L that is not before B. Its objects that have not changed since B are delivered, one by
// one. Those that have changed are left to a watch of R and D together, which is opened at B, and D
// is pending until that watch has reached L. So each object's revisions come in order, and the
// store's content for R is as of its resource version, as with any watch. What the new watch
// repeats for R is recognized by its revision and dropped. If R is empty, B is L: everything comes
// from the list.
//
// Questions. The watch of a quiet collection reports its progress once a minute only, and does not
// say how old that progress is. If a growth or a WaitFor needs to know, the watch is opened anew
// and asks: a server that knows hash keys sends a marked bookmark as soon as it has sent everything
// up to the revision that etcd had after the request. What is followed is then as of a moment after
// the question, which satisfies the waiters that came before it. Those that come while an answer
// is outstanding share the next question. It waits for that answer, else waiters that come faster
// than answers would keep replacing the watch. Nothing is listed.
type stream struct {
	*Source
	*delivered
	ctx    context.Context
	cancel context.CancelFunc
	out    chan watch.Event
	done   chan struct{}

	// target is the wanted ranges that the stream works towards.
	target hashkey.Ranges

	// following is the server's watch whose events are passed on, or nil. It selects selected, and
	// its answer to question is outstanding, unless that is 0.
	following watch.Interface
	selected  hashkey.Ranges
	question  uint64
	// since is when following was opened, lively whether it has brought anything.
	since  time.Time
	lively bool
	// opening is the watch that is to replace following.
	opening    *opening
	watchRetry retry

	// listing is the list of a growth. It runs, or is complete and waits for its watch.
	listing   *listing
	listRetry retry
}

// opening is a watch that is being opened.
type opening struct {
	ranges hashkey.Ranges
	from   uint64
	// question is the number of the question that the watch asks, or 0.
	question uint64
	result   chan opened
	cancel   context.CancelFunc
}

type opened struct {
	watch watch.Interface
	err   error
}

// listing is a list that runs beside the watch. Its part has the ranges and, once listed, the
// revision.
type listing struct {
	part
	// number is that of the question that the list is.
	number uint64
	// base is the revision up to which objects are delivered from the list.
	base uint64
	// left has the objects that the watch has seen leave meanwhile. The list may have them in an
	// older state.
	left sets.Set[objectID]
	// listed is set once the list is complete.
	listed  bool
	objects chan listedObject
	ended   chan listEnd
	cancel  context.CancelFunc
}

// listedObject is an object of a list or, with ended set, one that was deleted during the list.
type listedObject struct {
	runtime.Object
	ended bool
}

// listEnd is the outcome of a list.
type listEnd struct {
	revision uint64
	err      error
}

// retry spaces out attempts that fail one after another.
type retry struct {
	backoff wait.Backoff
	timer   <-chan time.Time
}

// succeeded resets the back-off and allows the next attempt.
func (r *retry) succeeded() {
	r.timer = nil
	r.backoff = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: 30 * time.Second}
}

// failed forbids attempts for the next step of the back-off.
func (r *retry) failed() { r.timer = time.After(r.backoff.Step()) }

// allowed reports whether an attempt may be made.
func (r *retry) allowed() bool { return r.timer == nil }

// newStream starts a stream that continues from state.
func newStream(ctx context.Context, source *Source, state *delivered) *stream {
	ctx, cancel := context.WithCancel(ctx)
	st := &stream{
		Source:    source,
		delivered: state,
		ctx:       ctx,
		cancel:    cancel,
		out:       make(chan watch.Event),
		done:      make(chan struct{}),
	}
	go st.run()
	return st
}

// ResultChan implements watch.Interface.
func (st *stream) ResultChan() <-chan watch.Event { return st.out }

// Stop implements watch.Interface.
func (st *stream) Stop() { st.cancel() }

func (st *stream) run() {
	defer close(st.done)
	defer close(st.out)
	defer st.cancel()
	defer st.stopFollowing()
	defer st.cancelOpening()
	if err := st.serve(); err != nil && st.ctx.Err() == nil {
		// The error makes the reflector relist, which replaces everything in one step.
		var status apierrors.APIStatus
		if !errors.As(err, &status) {
			status = apierrors.NewInternalError(err)
		}
		object := status.Status()
		select {
		case st.out <- watch.Event{Type: watch.Error, Object: &object}:
		case <-st.ctx.Done():
		}
	}
}

// serve feeds the reflector until it stops the watch, or until only a relist can help.
func (st *stream) serve() error {
	if err := st.retarget(st.wanted()); err != nil {
		return err
	}
	for {
		if err := st.advance(); err != nil {
			return err
		}
		var events <-chan watch.Event
		if st.following != nil {
			events = st.following.ResultChan()
		}
		var result <-chan opened
		if st.opening != nil {
			result = st.opening.result
		}
		var objects <-chan listedObject
		var ended <-chan listEnd
		if st.listing != nil {
			objects, ended = st.listing.objects, st.listing.ended
		}
		var err error
		select {
		case <-st.ctx.Done():
			return st.ctx.Err()
		case <-st.wake:
		case <-st.watchRetry.timer:
			st.watchRetry.timer = nil
		case <-st.listRetry.timer:
			st.listRetry.timer = nil
		case o := <-result:
			err = st.follow(o)
		case event, ok := <-events:
			err = st.receive(event, ok)
		case o := <-objects:
			err = st.takeObject(o)
		case end := <-ended:
			err = st.endList(end)
		}
		if err != nil {
			return err
		}
	}
}

// advance starts what is to be done next, and passes progress on to the store and to WaitFor.
func (st *stream) advance() error {
	if want := st.wanted(); !want.Equal(st.target) {
		if err := st.retarget(want); err != nil {
			return err
		}
	}
	st.startList()
	st.startWatch()
	completed := st.completed()
	if reached := completed.reached(); reached > st.last {
		if err := st.bookmark(strconv.FormatUint(reached, 10), reached); err != nil {
			return err
		}
	}
	return st.settle(completed)
}

// retarget gives up a change to other ranges that is in progress, and removes the objects that are
// no longer wanted at once.
func (st *stream) retarget(want hashkey.Ranges) error {
	if !want.Equal(st.ranges) {
		st.logger.V(2).Info("Changing ranges", "from", st.ranges, "to", want)
	}
	st.target = want
	st.cancelListing()
	st.cancelOpening()
	st.listRetry.succeeded()
	st.watchRetry.succeeded()
	at := st.completed().reached()
	st.restrict(st.ranges.Intersect(want))
	if st.ranges.Empty() {
		st.stopFollowing()
	}
	var leaving []objectID
	for id, e := range st.known {
		if !matches(e.key, want) {
			leaving = append(leaving, id)
		}
	}
	if err := st.remove(leaving, at); err != nil {
		return err
	}
	if len(leaving) > len(st.known) { // deleting does not shrink a map
		known := make(map[objectID]entry, len(st.known))
		maps.Copy(known, st.known)
		st.known = known
	}
	return nil
}

// completed returns what is complete in the store once it has processed everything.
func (d *delivered) completed() extent {
	return extent{ranges: d.ranges.Minus(d.pending.ranges), revision: d.revision, parts: slices.Clone(d.past), answered: d.answered}
}

// startList starts the list of the ranges that are missing.
func (st *stream) startList() {
	missing := st.target.Minus(st.ranges)
	if st.listing != nil || missing.Empty() || !st.listRetry.allowed() {
		return
	}
	ctx, cancel := context.WithCancel(st.ctx)
	l := &listing{
		part:    part{ranges: missing},
		number:  st.ask(),
		base:    math.MaxUint64,
		left:    sets.New[objectID](),
		objects: make(chan listedObject),
		ended:   make(chan listEnd, 1),
		cancel:  cancel,
	}
	if !st.ranges.Empty() {
		l.base = st.revision
	}
	st.listing = l
	go func() {
		revision, err := st.list(ctx, missing, func(obj runtime.Object, ended bool) error {
			select {
			case l.objects <- listedObject{obj, ended}:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		l.ended <- listEnd{revision, err}
	}()
}

// takeObject delivers an object of the list, unless the watch brings it.
func (st *stream) takeObject(o listedObject) error {
	l := st.listing
	object, err := st.identify(o.Object)
	if err != nil {
		return err
	}
	old, known := st.known[object.id]
	switch {
	case !known && l.left.Has(object.id):
		return nil // the watch brings any later state
	case o.ended || !matches(object.key, l.ranges):
		if !o.ended {
			st.warnUnselected()
		}
		old.seen = 0 // so that endList removes it
	case matches(object.key, st.ranges) || object.revision > l.base || known && old.revision >= object.revision:
		old.seen = l.number
	default:
		return st.put(known, o.Object, object, l.number)
	}
	if known {
		st.known[object.id] = old
	}
	return nil
}

// endList ends a list. It removes objects that an earlier growth delivered before it was given up,
// and that the list does not have: they are gone.
func (st *stream) endList(end listEnd) error {
	l := st.listing
	if end.err != nil {
		st.listFailed(end.err)
		return nil
	}
	l.listed, l.revision, l.base = true, end.revision, min(l.base, end.revision)
	if st.ranges.Empty() {
		st.answered = l.number // else what is followed already may be older
	}
	st.listRetry.succeeded()
	var gone []objectID
	for id, e := range st.known {
		if e.seen != l.number && matches(e.key, l.ranges) && !matches(e.key, st.ranges) {
			gone = append(gone, id)
		}
	}
	if err := st.remove(gone, l.base); err != nil {
		return err
	}
	st.cancelOpening() // the next watch includes the growth
	return nil
}

// listFailed keeps everything as it is and schedules another attempt.
func (st *stream) listFailed(err error) {
	st.logger.Error(err, "Listing ranges failed; will retry, and what is held stays held", "ranges", st.listing.ranges, "held", st.Held())
	st.cancelListing()
	st.listRetry.failed()
}

func (st *stream) cancelListing() {
	if st.listing != nil {
		st.listing.cancel()
		st.listing = nil
	}
}

// startWatch opens a watch if there is none or another one is needed.
func (st *stream) startWatch() {
	ranges, from, waits := st.ranges, st.revision, !st.pending.ranges.Empty()
	grows := st.listing != nil && st.listing.listed
	if grows {
		ranges, from = ranges.Union(st.listing.ranges), st.listing.base
		waits = waits || st.pendingUntil(st.listing.revision) > from
	}
	asks := st.tellsProgress && (waits || st.awaited(ranges))
	if st.following != nil && !grows && (st.selected.Equal(ranges) || !st.target.Equal(ranges)) && (!asks || st.question > 0) {
		return // it will do, at least until the growth has been listed or the question answered
	}
	if ranges.Empty() || st.opening != nil || !st.watchRetry.allowed() {
		return
	}
	timeout := watchTimeout()
	options := metav1.ListOptions{
		ShardSelector:       ranges.Selector(st.path.String()),
		ResourceVersion:     strconv.FormatUint(from, 10),
		TimeoutSeconds:      &timeout,
		AllowWatchBookmarks: true,
	}
	ctx, cancel := context.WithCancel(st.ctx)
	o := &opening{ranges: ranges, from: from, result: make(chan opened), cancel: cancel}
	if asks {
		o.question = st.ask()
		no := false
		options.SendInitialEvents, options.ResourceVersionMatch = &no, metav1.ResourceVersionMatchNotOlderThan
	}
	st.opening = o
	go func() {
		w, err := st.listWatch.WatchWithContext(ctx, options)
		select {
		case o.result <- opened{watch: w, err: err}:
		case <-ctx.Done():
			if err == nil {
				w.Stop()
			}
		}
	}()
}

// awaited reports whether a waiter needs the answer to another question about ranges.
func (st *stream) awaited(ranges hashkey.Ranges) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	for w := range st.waiters {
		if w.after >= st.answered && ranges.Covers(w.ranges) {
			return true
		}
	}
	return false
}

// pendingUntil returns the revision that the watch has to reach before pending, or a growth that
// was listed as of revision, can be held. It is not below the store's resource version, which never
// goes back and must not claim for these ranges what holds only for others.
func (d *delivered) pendingUntil(revision uint64) uint64 {
	return max(revision, d.pending.revision, d.revision, d.last)
}

func (st *stream) cancelOpening() {
	if st.opening != nil {
		st.opening.cancel()
		st.opening = nil
	}
}

func (st *stream) stopFollowing() {
	if st.following != nil {
		st.following.Stop()
		st.following = nil
	}
}

// follow switches to the watch that was opened.
func (st *stream) follow(result opened) error {
	o := st.opening
	st.opening = nil
	if result.err != nil {
		if o.question > 0 && isRefused(result.err) {
			st.logger.V(2).Info("Watching without requesting progress, because the server does not report it", "err", result.err)
			st.tellsProgress = false
			return nil
		}
		return st.watchFailed(result.err)
	}
	st.stopFollowing()
	st.following, st.selected, st.question, st.since, st.lively = result.watch, o.ranges, o.question, time.Now(), false
	// The new watch repeats what lies between its start and the revision that the old one reached.
	if !st.ranges.Empty() {
		st.past = append(st.past, part{ranges: st.ranges, revision: st.revision})
	}
	if l := st.listing; l != nil && l.listed {
		st.logger.V(2).Info("Ranges grew", "by", l.ranges, "revision", l.revision, "base", l.base)
		st.pending = part{ranges: st.pending.ranges.Union(l.ranges), revision: st.pendingUntil(l.revision)}
		st.ranges = o.ranges
		st.listing = nil
	}
	st.moveTo(o.from)
	return nil
}

// moveTo sets the revision that the watch has reached.
func (d *delivered) moveTo(revision uint64) {
	d.revision = revision
	d.past = slices.DeleteFunc(d.past, func(p part) bool { return p.revision <= revision })
	if max(d.pending.revision, d.last) <= revision {
		d.pending = part{}
	}
}

// restrict drops all ranges but those in keep.
func (d *delivered) restrict(keep hashkey.Ranges) {
	d.ranges = d.ranges.Intersect(keep)
	for i := range d.past {
		d.past[i].ranges = d.past[i].ranges.Intersect(keep)
	}
	d.pending.ranges = d.pending.ranges.Intersect(keep)
}

// watchFailed schedules another attempt, or a relist if the server no longer has the events that
// the watch needs.
func (st *stream) watchFailed(err error) error {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		if st.incompleteRelists {
			st.logger.V(2).Info("Relisting ranges object by object", "ranges", st.ranges, "err", err)
			st.cancelListing()
			st.cancelOpening()
			st.restrict(nil)
			return nil
		}
		return err
	}
	st.logger.Error(err, "Watching ranges failed; will retry, and what is held stays held", "ranges", st.ranges, "revision", st.revision)
	st.watchRetry.failed()
	return nil
}

// receive handles an event of the server's watch, or its end if ok is false.
func (st *stream) receive(event watch.Event, ok bool) error {
	switch {
	case !ok:
		st.stopFollowing()
		if time.Since(st.since) < time.Second && !st.lively {
			st.watchRetry.failed() // avoid a busy loop
		}
		return nil
	case event.Type == watch.Error:
		st.stopFollowing()
		return st.watchFailed(apierrors.FromObject(event.Object))
	}
	object, err := st.identify(event.Object)
	if err != nil {
		return err
	}
	if event.Type != watch.Bookmark {
		if event.Type != watch.Deleted && !matches(object.key, st.selected) {
			st.warnUnselected()
		}
		if err := st.apply(event, object); err != nil {
			return err
		}
	}
	st.moveTo(max(st.revision, object.revision))
	if event.Type == watch.Bookmark && st.question > 0 {
		bookmark, err := meta.Accessor(event.Object)
		if err != nil {
			return err
		}
		if _, answers := bookmark.GetAnnotations()[sharding.ProgressAnnotation]; answers {
			st.answered, st.question = st.question, 0
		}
	}
	if !st.lively {
		st.lively = true
		st.watchRetry.succeeded()
	}
	return nil
}

// apply delivers a change that is news as what it means for the ranges, since the server may have
// watched other ranges, or all.
func (st *stream) apply(event watch.Event, object identity) error {
	old, known := st.known[object.id]
	followed := known && matches(old.key, st.ranges)
	deleted := event.Type == watch.Deleted
	switch {
	case known && (object.revision < old.revision || object.revision == old.revision && !deleted):
		return nil
	case !deleted && matches(object.key, st.ranges) && !st.isPast(object):
		return st.put(known, event.Object, object, old.seen)
	case !followed:
		return nil
	case deleted:
		if err := st.send(watch.Deleted, event.Object, object.revision); err != nil {
			return err
		}
		delete(st.known, object.id)
	default:
		if err := st.remove([]objectID{object.id}, object.revision); err != nil {
			return err
		}
	}
	if st.listing != nil {
		st.listing.left.Insert(object.id)
	}
	return nil
}

// isPast reports whether the watch repeats an outdated state of an object, whose range has been
// delivered as of the same or a later revision.
func (d *delivered) isPast(object identity) bool {
	return slices.ContainsFunc(d.past, func(p part) bool {
		return object.revision <= p.revision && matches(object.key, p.ranges)
	})
}

// put delivers an object, as added or, if it is known, as modified.
func (st *stream) put(known bool, obj runtime.Object, object identity, seen uint64) error {
	t := watch.Added
	if known {
		t = watch.Modified
	}
	if err := st.send(t, obj, object.revision); err != nil {
		return err
	}
	st.known[object.id] = entry{revision: object.revision, key: object.key, seen: seen}
	return nil
}

// remove reports objects that left the ranges at revision as deleted, in their last known state.
// That is the store's, so the store must have processed it. As in events of the API server, the
// object carries the revision of the event.
func (st *stream) remove(ids []objectID, revision uint64) error {
	if len(ids) == 0 {
		return nil
	}
	if err := st.confirm(); err != nil {
		return err
	}
	for _, id := range ids {
		stored, exists, err := st.store.GetByKey(id.String())
		if err != nil {
			return err
		}
		if exists { // it does not if the informer's transform failed on it
			at := max(revision, st.known[id].revision)
			// A copy, because the informer transforms what it gets, and readers have the original.
			obj := stored.(runtime.Object).DeepCopyObject()
			obj.(metav1.Object).SetResourceVersion(strconv.FormatUint(at, 10))
			if err := st.send(watch.Deleted, obj, at); err != nil {
				return err
			}
		}
		delete(st.known, id)
	}
	return nil
}

// send gives the reflector an event, after which the store is at revision or later. The informer
// owns the object from then on.
func (st *stream) send(t watch.EventType, obj runtime.Object, revision uint64) error {
	select {
	case st.out <- watch.Event{Type: t, Object: obj}:
		st.unconfirmed = true
		st.last = max(st.last, revision)
		return nil
	case <-st.ctx.Done():
		return st.ctx.Err()
	}
}

func (st *stream) bookmark(resourceVersion string, revision uint64) error {
	return st.send(watch.Bookmark, st.newBookmark(resourceVersion), revision)
}

// settle publishes what is complete, once the store has it too.
func (st *stream) settle(completed extent) error {
	if !st.isNews(completed) {
		return nil
	}
	if err := st.confirm(); err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.setHeldLocked(completed)
	return nil
}

// isNews reports whether completed would change Held or release a WaitFor.
func (st *stream) isNews(completed extent) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if !completed.ranges.Intersect(st.want).Equal(st.held.ranges) {
		return true
	}
	for w := range st.waiters {
		if completed.satisfies(w) {
			return true
		}
	}
	return false
}

// confirm waits until the store has processed everything that was sent: it sends a bookmark and
// waits until the store has it. Events pass the reflector and the informer's queue in order, and
// with AtomicFIFO so do bookmarks, so everything sent before is then in the store. Nothing is sent
// meanwhile that could replace the bookmark. Its revision may equal an earlier one, so the bookmark
// is recognized by the memory of its string, which was made for it and is passed on uncopied.
func (st *stream) confirm() error {
	if !st.unconfirmed {
		return nil
	}
	revision := max(st.completed().reached(), st.last)
	marker := strings.Clone(strconv.FormatUint(revision, 10))
	if err := st.bookmark(marker, revision); err != nil {
		return err
	}
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for unsafe.StringData(st.store.LastStoreSyncResourceVersion()) != unsafe.StringData(marker) {
		select {
		case <-ticker.C:
		case <-st.ctx.Done():
			return st.ctx.Err()
		}
	}
	st.unconfirmed = false
	return nil
}
