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
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// fakeServer is a collection of pods with revisions, selectors, pages and watches
// that behave as an API server's do: lists are consistent, and watches tell what
// enters and leaves their selection.
type fakeServer struct {
	field FieldPath

	mu       sync.Mutex
	changed  *sync.Cond
	revision uint64
	pods     map[string]*v1.Pod
	history  []change
	// lost is the revision up to which history is forgotten.
	lost uint64
	// cut is the generation of watches: those of older ones end.
	cut int
	// shown is how many events of history watches get; negative: all.
	shown int
	// sent is the number of events that a watch has taken.
	sent int
	// open is the number of watches that are open.
	open int
	// old makes the server ignore selectors. It does not say where a watch stands when it
	// is asked to: it refuses or, with streams, says nothing. Its watches tell by and by
	// what others do each minute.
	old bool
	// streams makes the server give lists as streams too.
	streams   bool
	snapshots map[string]*v1.PodList

	// failLists and failWatches make that many requests fail.
	failLists, failWatches int
	// onPage is called, without a lock, before each page of a list is answered, and as
	// often during the stream of one.
	onPage func(ctx context.Context, page int)

	requests []request
}

type change struct {
	revision uint64
	before   *v1.Pod
	after    *v1.Pod
}

// request is a request that the server got.
type request struct {
	watch    bool
	selector string
	from     string
	objects  int
}

func newFakeServer(field FieldPath) *fakeServer {
	s := &fakeServer{field: field, revision: 100, shown: -1, pods: map[string]*v1.Pod{}, snapshots: map[string]*v1.PodList{}}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// write makes a change: pod replaces whatever has its name, or ends if gone is set.
func (s *fakeServer) write(pod *v1.Pod, gone bool) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Broadcast()
	s.revision++
	before := s.pods[pod.Name]
	c := change{revision: s.revision, before: before}
	if gone {
		delete(s.pods, pod.Name)
	} else {
		c.after = pod.DeepCopy()
		c.after.ResourceVersion = strconv.FormatUint(s.revision, 10)
		s.pods[pod.Name] = c.after
	}
	s.history = append(s.history, c)
	return s.revision
}

// touch raises the revision by a change to something else.
func (s *fakeServer) touch() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Broadcast()
	s.revision++
	return s.revision
}

// bookmark tells all watches the present revision.
func (s *fakeServer) bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Broadcast()
	s.history = append(s.history, change{revision: s.revision})
}

// cutWatches ends all watches, as they are.
func (s *fakeServer) cutWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Broadcast()
	s.cut++
}

// forget makes the server forget all events, and ends all watches.
func (s *fakeServer) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Broadcast()
	s.revision++
	s.lost = s.revision
	s.cut++
}

// hold holds back all events to come.
func (s *fakeServer) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown = len(s.history)
}

// release lets all events go.
func (s *fakeServer) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Broadcast()
	s.shown = -1
}

// releaseOne lets one more event go.
func (s *fakeServer) releaseOne() {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Broadcast()
	s.shown++
}

// replaced says whether the last request was for a watch, and the one before is
// closed. It is for has.
func (s *fakeServer) replaced() bool {
	n := len(s.requests)
	return s.open == 1 && n > 0 && s.requests[n-1].watch
}

func (s *fakeServer) setOnPage(onPage func(ctx context.Context, page int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onPage = onPage
}

// setFailing makes requests to come fail.
func (s *fakeServer) setFailing(lists, watches int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failLists, s.failWatches = lists, watches
}

// has says whether the server's state is as condition has it.
func (s *fakeServer) has(condition func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return condition()
}

// taken returns the requests since the last call.
func (s *fakeServer) taken() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests := s.requests
	s.requests = nil
	return requests
}

// content returns the pods in r.
func (s *fakeServer) content(r hashkey.Ranges) map[string]*v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	pods := map[string]*v1.Pod{}
	for name, pod := range s.pods {
		if s.matches(pod, r) {
			pods[name] = pod
		}
	}
	return pods
}

func (s *fakeServer) matches(pod *v1.Pod, r hashkey.Ranges) bool {
	if pod == nil || r.Empty() {
		return false
	}
	if s.field == ByHashKey {
		return r.Contains(metav1.HashKeyOf(pod))
	}
	key, ok := metav1.HashKeyOfController(pod)
	return !ok || r.Contains(key)
}

var selectorForm = regexp.MustCompile(`shardRange\(([^,]*), '0x([0-9a-f]{16})', '0x([0-9a-f]{16})'\)`)

// selected parses a selector.
func (s *fakeServer) selected(selector string) (hashkey.Ranges, error) {
	var ranges []hashkey.Range
	for _, m := range selectorForm.FindAllStringSubmatch(selector, -1) {
		if m[1] != string(s.field) {
			return nil, fmt.Errorf("selector of %s", m[1])
		}
		start, err := strconv.ParseUint(m[2], 16, 64)
		if err != nil {
			return nil, err
		}
		end, err := strconv.ParseUint(m[3], 16, 64)
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, hashkey.Range{Start: start, End: end})
	}
	if len(ranges) == 0 {
		return nil, fmt.Errorf("no selector in %q", selector)
	}
	return hashkey.NewRanges(ranges...), nil
}

func (s *fakeServer) List(options metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), options)
}

func (s *fakeServer) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	ranges, err := s.selected(options.ShardSelector)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if options.ResourceVersion != "" {
		return nil, apierrors.NewBadRequest("not a consistent list")
	}
	s.mu.Lock()
	page, onPage := 0, s.onPage
	if options.Continue != "" {
		page = 1
	}
	s.mu.Unlock()
	if onPage != nil {
		onPage(ctx, page)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failLists > 0 {
		s.failLists--
		return nil, apierrors.NewInternalError(fmt.Errorf("lists fail"))
	}
	var all *v1.PodList
	if options.Continue != "" {
		all = s.snapshots[options.Continue]
		delete(s.snapshots, options.Continue)
	} else {
		all = &v1.PodList{}
		all.ResourceVersion = strconv.FormatUint(s.revision, 10)
		if s.old {
			ranges = hashkey.All()
		} else {
			all.ShardInfo = &metav1.ShardInfo{Selector: options.ShardSelector}
		}
		for _, pod := range s.pods {
			if s.old || s.matches(pod, ranges) {
				all.Items = append(all.Items, *pod)
			}
		}
		slices.SortFunc(all.Items, func(a, b v1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	}
	list := &v1.PodList{ListMeta: all.ListMeta, Items: all.Items}
	// Few objects make a page here, so that lists have several.
	if limit := int(min(options.Limit, 7)); limit > 0 && len(list.Items) > limit {
		list.Items = all.Items[:limit]
		list.Continue = fmt.Sprintf("%d-%d", s.revision, len(s.requests))
		s.snapshots[list.Continue] = &v1.PodList{ListMeta: all.ListMeta, Items: all.Items[limit:]}
	}
	s.requests = append(s.requests, request{selector: options.ShardSelector, objects: len(list.Items)})
	return list.DeepCopy(), nil
}

func (s *fakeServer) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), options)
}

func (s *fakeServer) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	ranges, err := s.selected(options.ShardSelector)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if options.SendInitialEvents != nil && *options.SendInitialEvents {
		return s.listStream(ctx, options, ranges)
	}
	from, err := strconv.ParseUint(options.ResourceVersion, 10, 64)
	if err != nil || !options.AllowWatchBookmarks || options.TimeoutSeconds == nil {
		return nil, apierrors.NewBadRequest("a watch wants a revision, bookmarks and a timeout")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	asks := options.SendInitialEvents != nil
	if asks && options.ResourceVersionMatch != metav1.ResourceVersionMatchNotOlderThan || asks && s.old && !s.streams {
		return nil, apierrors.NewBadRequest("progress is not told")
	}
	if s.failWatches > 0 {
		s.failWatches--
		return nil, apierrors.NewInternalError(fmt.Errorf("watches fail"))
	}
	if from < s.lost {
		return nil, apierrors.NewResourceExpired("too old")
	}
	s.requests = append(s.requests, request{watch: true, selector: options.ShardSelector, from: options.ResourceVersion})
	if s.old {
		ranges = nil
	}
	w := &fakeWatch{server: s, ranges: ranges, cut: s.cut, events: make(chan watch.Event), from: from, told: from}
	if asks && !s.old {
		w.told, w.tells, w.tellsAfter = 0, s.revision, len(s.history)
	}
	// Bookmarks of the past are not repeated.
	w.next = len(s.history)
	for w.next > 0 && s.history[w.next-1].revision > from {
		w.next--
	}
	s.open++
	w.start(ctx)
	return w, nil
}

// listStream begins a list as a stream of events.
func (s *fakeServer) listStream(ctx context.Context, options metav1.ListOptions, ranges hashkey.Ranges) (watch.Interface, error) {
	if options.ResourceVersion != "" || options.ResourceVersionMatch != metav1.ResourceVersionMatchNotOlderThan || !options.AllowWatchBookmarks || options.TimeoutSeconds == nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("the stream of a consistent list wants other options than %v", options))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.streams {
		return nil, apierrors.NewBadRequest("lists are not streamed")
	}
	if s.failLists > 0 {
		s.failLists--
		return nil, apierrors.NewInternalError(fmt.Errorf("lists fail"))
	}
	if s.old {
		ranges = nil
	}
	w := &fakeWatch{server: s, isList: true, ranges: ranges, cut: s.cut, events: make(chan watch.Event), from: s.revision, next: len(s.history)}
	for _, pod := range s.pods {
		if ranges == nil || s.matches(pod, ranges) {
			w.initial = append(w.initial, pod)
		}
	}
	s.requests = append(s.requests, request{selector: options.ShardSelector, objects: len(w.initial)})
	w.start(ctx)
	return w, nil
}

// fakeWatch sends the events of one watch.
type fakeWatch struct {
	server *fakeServer
	// isList is set for the stream of a list, initial are its objects still to come.
	isList  bool
	initial []*v1.Pod
	// ranges are nil for all objects.
	ranges hashkey.Ranges
	cut    int
	from   uint64
	next   int
	// tells is the revision that the watch tells after tellsAfter events of history, 0
	// when it has.
	tells      uint64
	tellsAfter int
	// told is the revision that the watch of an old server has told.
	told   uint64
	events chan watch.Event
	ctx    context.Context
	cancel context.CancelFunc
}

func (w *fakeWatch) ResultChan() <-chan watch.Event { return w.events }
func (w *fakeWatch) Stop()                          { w.cancel() }

func (w *fakeWatch) start(ctx context.Context) {
	w.ctx, w.cancel = context.WithCancel(ctx)
	context.AfterFunc(w.ctx, w.server.changed.Broadcast)
	go w.run()
}

func (w *fakeWatch) run() {
	defer func() {
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		if !w.isList {
			w.server.open--
		}
		close(w.events)
	}()
	for n := 0; ; n++ {
		if w.isList && n%7 == 0 {
			w.server.mu.Lock()
			onPage := w.server.onPage
			w.server.mu.Unlock()
			if onPage != nil {
				onPage(w.ctx, min(n/7, 1))
			}
		}
		event, ok := w.take()
		if !ok {
			return
		}
		if event == nil {
			continue
		}
		select {
		case w.events <- *event:
		case <-w.ctx.Done():
			return
		}
	}
}

// take waits for the next change, and returns what it is for the watch.
func (w *fakeWatch) take() (*watch.Event, bool) {
	s := w.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.isList && w.cut == s.cut && w.ctx.Err() == nil {
		if event := w.takeListed(); event != nil {
			return event, true
		}
	}
	if revision := w.progress(); revision > 0 && w.cut == s.cut && w.ctx.Err() == nil {
		w.tells, w.told = 0, revision
		return &watch.Event{Type: watch.Bookmark, Object: &v1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.FormatUint(revision, 10)}}}, true
	}
	for w.cut == s.cut && w.ctx.Err() == nil && w.progress() == 0 && (w.next == len(s.history) || s.shown >= 0 && w.next >= s.shown) {
		s.changed.Wait()
	}
	if w.cut != s.cut || w.ctx.Err() != nil {
		return nil, false
	}
	if w.progress() > 0 {
		return nil, true
	}
	c := s.history[w.next]
	w.next++
	if !w.isList {
		s.sent = w.next
	}
	if c.revision <= w.from {
		return nil, true
	}
	in := func(pod *v1.Pod) bool { return pod != nil && (w.ranges == nil || s.matches(pod, w.ranges)) }
	revision := strconv.FormatUint(c.revision, 10)
	switch {
	case c.before == nil && c.after == nil:
		return &watch.Event{Type: watch.Bookmark, Object: &v1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: revision}}}, true
	case in(c.before) && in(c.after):
		return &watch.Event{Type: watch.Modified, Object: c.after.DeepCopy()}, true
	case in(c.after):
		return &watch.Event{Type: watch.Added, Object: c.after.DeepCopy()}, true
	case in(c.before):
		last := c.before.DeepCopy()
		last.ResourceVersion = revision
		return &watch.Event{Type: watch.Deleted, Object: last}, true
	}
	return nil, true
}

// progress returns the revision that the watch is to tell now, or 0.
func (w *fakeWatch) progress() uint64 {
	s := w.server
	switch {
	case w.isList || s.shown >= 0 && s.shown < len(s.history):
		return 0
	case w.tells > 0 && w.next >= w.tellsAfter:
		return w.tells
	case s.old && w.next == len(s.history) && w.told < s.revision:
		return s.revision
	}
	return 0
}

// takeListed returns the next object of a list, and after the last and what has
// happened since, its end.
func (w *fakeWatch) takeListed() *watch.Event {
	s := w.server
	switch {
	case len(w.initial) > 0:
		pod := w.initial[0]
		w.initial = w.initial[1:]
		return &watch.Event{Type: watch.Added, Object: pod.DeepCopy()}
	case w.next == len(s.history):
		w.from = s.revision
	case s.shown < 0 || w.next < s.shown:
		return nil
	case w.next > 0:
		w.from = max(w.from, s.history[w.next-1].revision)
	}
	end := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: strconv.FormatUint(w.from, 10),
		Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}
	return &watch.Event{Type: watch.Bookmark, Object: end}
}

var uids atomic.Int64

// newPod returns a pod of that name, with a UID of its own, whose hash key is
// percent of the way along the line; with a controller of that key by
// ByControllerHashKey, and with none if percent is negative.
func newPod(field FieldPath, name string, percent int) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name:          name,
		UID:           types.UID(fmt.Sprintf("uid-%d", uids.Add(1))),
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "test"}},
	}}
	pod.HashKey = metav1.HashKeyOf(pod)
	setPercent(field, pod, percent)
	return pod
}

func setPercent(field FieldPath, pod *v1.Pod, percent int) {
	key := int64(percent)*(math.MaxInt64/100) + 1
	switch {
	case field == ByHashKey:
		pod.HashKey = key
	case percent < 0:
		pod.OwnerReferences = nil
	default:
		yes := true
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "owner", UID: types.UID(fmt.Sprintf("owner-%d", percent)), HashKey: key, Controller: &yes}}
	}
}

// percents returns the range from start to end percent of the line.
func percents(start, end int) hashkey.Ranges {
	at := func(percent int) uint64 {
		if percent == 100 {
			return hashkey.Limit
		}
		return uint64(percent) * (math.MaxInt64 / 100)
	}
	return hashkey.NewRanges(hashkey.Range{Start: at(start), End: at(end)})
}
