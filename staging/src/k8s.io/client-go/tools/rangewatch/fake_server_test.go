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
	"maps"
	"regexp"
	"slices"
	"strconv"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/watch"
)

// fakeServer is a collection of pods whose revisions, selectors, pages and watches behave as an API
// server's do: lists are consistent, and watches report what enters and leaves their selection.
type fakeServer struct {
	field string

	mu       sync.Mutex
	changed  *sync.Cond
	revision uint64
	pods     map[string]*v1.Pod
	history  []change
	// lost is the revision below which no watch can start.
	lost uint64
	// cut is the generation of watches. Those of older generations end.
	cut int
	// shown is how many events of history watches get, or negative for all.
	shown int
	// sent is how many events of history the last watch to move has taken.
	sent int
	// open is the number of open watches.
	open int
	// old makes the server ignore selectors. It does not report progress on request: it refuses or,
	// with streams, ignores that. Its watches report progress after every change, in place of the
	// bookmark of each minute.
	old bool
	// refuses makes an old server refuse selectors with an internal error.
	refuses bool
	// impatient and patient say how long clients wait before they list what it does not answer: not at
	// all, or as long as a test lasts. An old server's clients are impatient.
	impatient, patient bool
	// streams makes the server stream lists too.
	streams   bool
	snapshots map[string]*v1.PodList

	// failLists and failWatches are how many of the next requests fail.
	failLists, failWatches int
	// onPage is called, without the lock, before each page of a list is returned, and as often
	// during a streamed list. page is 0 for the first page, and 1 for the others.
	onPage func(ctx context.Context, page int)

	requests []request
}

// change is a pod before and after a write, either of them nil if there is none. If both are, it is
// a bookmark.
type change struct {
	revision uint64
	before   *v1.Pod
	after    *v1.Pod
}

// request is a list or a watch that the server has answered.
type request struct {
	watch bool
	// asks is set for a watch that asks how far the server is.
	asks     bool
	selector string
	from     string
	objects  int
}

func newFakeServer(field string) *fakeServer {
	s := &fakeServer{field: field, revision: 100, shown: -1, pods: map[string]*v1.Pod{}, snapshots: map[string]*v1.PodList{}}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// write makes a change: pod replaces the one of its name or, if gone is set, that one is deleted.
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

// touch raises the revision, as a change to another collection does.
func (s *fakeServer) touch() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Broadcast()
	s.revision++
	return s.revision
}

// current returns the present revision.
func (s *fakeServer) current() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}

// bookmark sends all watches a bookmark with the current revision.
func (s *fakeServer) bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Broadcast()
	s.history = append(s.history, change{revision: s.revision})
}

// cutWatches ends all watches.
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

// restore makes the server have those pods again as they were, and no others, and forget all
// events: etcd was restored, and goes on after a later revision than it has had.
func (s *fakeServer) restore(pods map[string]*v1.Pod) {
	s.mu.Lock()
	s.pods = maps.Clone(pods)
	s.revision += 1000
	s.mu.Unlock()
	s.forget()
}

// rewind makes the server have those pods again as they were, and no others, and go on after that
// revision: etcd was restored, and the API server has started again.
func (s *fakeServer) rewind(pods map[string]*v1.Pod, revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Broadcast()
	s.pods, s.history, s.revision = maps.Clone(pods), nil, revision
	s.lost = min(s.lost, revision)
	s.cut++
}

// backup returns the pods that there are.
func (s *fakeServer) backup() map[string]*v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.pods)
}

// hold holds back all further events.
func (s *fakeServer) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown = len(s.history)
}

// release lets watches have all events.
func (s *fakeServer) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Broadcast()
	s.shown = -1
}

// releaseOne lets watches have one more event.
func (s *fakeServer) releaseOne() {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Broadcast()
	s.shown++
}

// replaced reports whether the last request was for a watch, and the watch before is closed. It is
// a condition for has.
func (s *fakeServer) replaced() bool {
	n := len(s.requests)
	return s.open == 1 && n > 0 && s.requests[n-1].watch
}

func (s *fakeServer) setOnPage(onPage func(ctx context.Context, page int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onPage = onPage
}

// setFailing makes the next requests fail, as many of each kind.
func (s *fakeServer) setFailing(lists, watches int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failLists, s.failWatches = lists, watches
}

// has reports whether condition, which is called with the lock held, is true.
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
	if s.field == sharding.HashKeyPath {
		return r.Contains(metav1.HashKeyOf(pod))
	}
	key, ok := metav1.HashKeyOfController(pod)
	return !ok || r.Contains(key)
}

var selectorForm = regexp.MustCompile(`shardRange\(([^,]*), '0x([0-9a-f]{16})', '0x([0-9a-f]{16})'\)`)

// selected parses a selector. No selector is everything.
func (s *fakeServer) selected(selector string) (hashkey.Ranges, error) {
	switch {
	case selector == "":
		return nil, nil
	case s.refuses:
		return nil, apierrors.NewInternalError(errors.New("what is a shardRange?"))
	}
	var ranges []hashkey.Range
	for _, m := range selectorForm.FindAllStringSubmatch(selector, -1) {
		if m[1] != string(s.field) {
			return nil, apierrors.NewBadRequest("selector of " + m[1])
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
	if n := len(ranges); n == 0 || n > 128 {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%d ranges in a selector", n))
	}
	return hashkey.NewRanges(ranges...), nil
}

func (s *fakeServer) List(options metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), options)
}

func (s *fakeServer) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if options.Limit == 1 {
		return s.listOne(options)
	}
	ranges, err := s.selected(options.ShardSelector)
	if err != nil {
		return nil, err
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
		everything := s.old || ranges == nil
		if !everything {
			all.ShardInfo = &metav1.ShardInfo{Selector: options.ShardSelector}
		}
		for _, pod := range s.pods {
			if everything || s.matches(pod, ranges) {
				all.Items = append(all.Items, *pod)
			}
		}
		slices.SortFunc(all.Items, func(a, b v1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	}
	list := &v1.PodList{ListMeta: all.ListMeta, Items: all.Items}
	// Pages are small, so that lists have several.
	if limit := int(min(options.Limit, 7)); limit > 0 && len(list.Items) > limit {
		list.Items = all.Items[:limit]
		list.Continue = fmt.Sprintf("%d-%d", s.revision, len(s.requests))
		s.snapshots[list.Continue] = &v1.PodList{ListMeta: all.ListMeta, Items: all.Items[limit:]}
	}
	s.requests = append(s.requests, request{selector: options.ShardSelector, objects: len(list.Items)})
	return list.DeepCopy(), nil
}

// listOne answers a list of one object with the revision of the collection.
func (s *fakeServer) listOne(options metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case options.ResourceVersion != "":
		return nil, apierrors.NewBadRequest("not a consistent list")
	case s.failLists > 0:
		s.failLists--
		return nil, apierrors.NewInternalError(fmt.Errorf("lists fail"))
	}
	if _, err := s.selected(options.ShardSelector); err != nil {
		return nil, err
	}
	return &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatUint(s.revision, 10)}}, nil
}

func (s *fakeServer) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), options)
}

func (s *fakeServer) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	ranges, err := s.selected(options.ShardSelector)
	if err != nil {
		return nil, err
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
		return nil, apierrors.NewBadRequest("progress is not reported on request")
	}
	if s.failWatches > 0 {
		s.failWatches--
		return nil, apierrors.NewInternalError(fmt.Errorf("watches fail"))
	}
	if from < s.lost {
		return nil, apierrors.NewResourceExpired("too old")
	}
	s.requests = append(s.requests, request{watch: true, asks: asks, selector: options.ShardSelector, from: options.ResourceVersion})
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

// listStream begins a streamed list.
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
