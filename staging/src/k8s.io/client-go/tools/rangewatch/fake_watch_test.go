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
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/watch"
)

// fakeWatch sends the events of one watch.
type fakeWatch struct {
	server *fakeServer
	// isList is set for the stream of a list. initial has its objects that are still to be sent.
	isList  bool
	initial []*v1.Pod
	// ranges are nil for all objects.
	ranges hashkey.Ranges
	cut    int
	from   uint64
	next   int
	// tells is the revision that the watch reports after tellsAfter events of history, or 0 once it
	// has.
	tells      uint64
	tellsAfter int
	// told is the revision that the watch of an old server has reported.
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

// take waits for the next change, and returns its event for the watch, or nil if it has none.
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
		bookmark := &v1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.FormatUint(revision, 10)}}
		if !s.old {
			bookmark.Annotations = map[string]string{sharding.ProgressAnnotation: "true"}
		}
		w.tells, w.told = 0, revision
		return &watch.Event{Type: watch.Bookmark, Object: bookmark}, true
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

// progress returns the revision that the watch is to report now, or 0.
func (w *fakeWatch) progress() uint64 {
	s := w.server
	switch {
	case w.isList:
		return 0
	case w.tells > 0 && w.next >= w.tellsAfter:
		return w.tells
	case s.old && w.next == len(s.history) && (s.shown < 0 || w.next <= s.shown) && w.told < s.revision:
		return s.revision
	}
	return 0
}

// takeListed returns the next object of a list or, after all objects and the changes since, the
// bookmark at its end.
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
