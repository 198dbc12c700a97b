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
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// patience is how long a condition may take; none is expected to.
const patience = time.Minute

// harness is a source, its informer and a handler, on a fake server.
type harness struct {
	*testing.T
	server   *fakeServer
	source   *Source
	informer cache.SharedIndexInformer
	record   *record
	ctx      context.Context
}

func newHarness(t *testing.T, field FieldPath) *harness {
	return newHarnessFor(t, newFakeServer(field), cache.Indexers{})
}

func newHarnessFor(t *testing.T, server *fakeServer, indexers cache.Indexers) *harness {
	t.Helper()
	logger, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithTimeout(ctx, patience)
	source, err := NewSource(Config{Field: server.field, ListWatch: server, Object: &v1.Pod{}, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	h := &harness{T: t, server: server, source: source, ctx: ctx, record: &record{t: t, pods: map[string]*v1.Pod{}}}
	h.informer = source.NewInformer(cache.SharedIndexInformerOptions{Indexers: indexers})
	// As in kube-controller-manager: the transform changes the object in place, which
	// the race detector would see on an object that others read.
	if err := h.informer.SetTransform(func(obj any) (any, error) {
		obj.(*v1.Pod).ManagedFields = nil
		return obj, nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.informer.AddEventHandler(h.record); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		<-stopped
	})
	go func() {
		defer close(stopped)
		h.informer.RunWithContext(ctx)
	}()
	return h
}

// record checks that a handler is told of a sequence of changes that makes sense,
// and has their net effect.
type record struct {
	t       *testing.T
	mu      sync.Mutex
	pods    map[string]*v1.Pod
	events  []string
	deleted map[string]*v1.Pod
}

func (r *record) note(event string, pod *v1.Pod) {
	r.events = append(r.events, fmt.Sprintf("%s %s@%s", event, pod.Name, pod.ResourceVersion))
}

func (r *record) OnAdd(obj any, _ bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pod := obj.(*v1.Pod)
	r.note("add", pod)
	if old, ok := r.pods[pod.Name]; ok {
		r.t.Errorf("added twice: %s@%s, then @%s", pod.Name, old.ResourceVersion, pod.ResourceVersion)
	}
	r.pods[pod.Name] = pod
}

func (r *record) OnUpdate(oldObj, newObj any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old, pod := oldObj.(*v1.Pod), newObj.(*v1.Pod)
	if known := r.pods[pod.Name]; known != old {
		r.t.Errorf("update of %s from %v, but %v was told", pod.Name, old, known)
	}
	if revisionOf(r.t, pod) < revisionOf(r.t, old) {
		r.t.Errorf("update backwards: %s@%s, then @%s", pod.Name, old.ResourceVersion, pod.ResourceVersion)
	}
	if pod.ResourceVersion != old.ResourceVersion { // else from a list of the reflector
		r.note("update", pod)
	}
	r.pods[pod.Name] = pod
}

func (r *record) OnDelete(obj any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	pod := obj.(*v1.Pod)
	r.note("delete", pod)
	known := r.pods[pod.Name]
	switch {
	case known == nil:
		r.t.Errorf("deleted, but not told before: %s@%s", pod.Name, pod.ResourceVersion)
	case known.UID != pod.UID:
		r.t.Errorf("deleted as %s, told as %s: %s", pod.UID, known.UID, pod.Name)
	case revisionOf(r.t, pod) < revisionOf(r.t, known):
		r.t.Errorf("delete backwards: %s@%s, then @%s", pod.Name, known.ResourceVersion, pod.ResourceVersion)
	}
	delete(r.pods, pod.Name)
	if r.deleted == nil {
		r.deleted = map[string]*v1.Pod{}
	}
	r.deleted[pod.Name] = pod
}

// taken returns the events since the last call.
func (r *record) taken() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	r.events = nil
	return events
}

func revisionOf(t *testing.T, pod *v1.Pod) uint64 {
	revision, err := parseRevision(pod.ResourceVersion)
	if err != nil {
		t.Error(err)
	}
	return revision
}

// put writes a pod and returns the revision.
func (h *harness) put(name string, percent int) uint64 {
	return h.server.write(newPod(h.server.field, name, percent), false)
}

func (h *harness) delete(name string) uint64 {
	return h.server.write(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}, true)
}

// change writes a new revision of a pod, moved to percent.
func (h *harness) change(name string, percent int) uint64 {
	h.Helper()
	pod := h.server.content(hashkey.All())[name].DeepCopy()
	setPercent(h.server.field, pod, percent)
	return h.server.write(pod, false)
}

// waitFor waits for r at the server's revision, and checks that the store then has
// r exactly, at once. It must not be called while others write.
func (h *harness) waitFor(r hashkey.Ranges) {
	h.Helper()
	revision := h.server.touch()
	if err := h.source.WaitFor(h.ctx, r, strconv.FormatUint(revision, 10)); err != nil {
		h.Fatal(err)
	}
	h.compare(h.stored(r), h.server.content(r))
}

// settled waits until the store, and what the handler was told, are what the server
// has in r.
func (h *harness) settled(r hashkey.Ranges) {
	h.Helper()
	h.waitFor(r)
	want := h.server.content(r)
	if err := wait.PollUntilContextCancel(h.ctx, time.Millisecond, true, func(context.Context) (bool, error) {
		h.record.mu.Lock()
		defer h.record.mu.Unlock()
		return difference(h.stored(hashkey.All()), want) == "" && difference(h.record.pods, want) == "", nil
	}); err != nil {
		h.record.mu.Lock()
		defer h.record.mu.Unlock()
		h.Fatalf("%v\nstore: %s\nhandler: %s", err, difference(h.stored(hashkey.All()), want), difference(h.record.pods, want))
	}
}

func (h *harness) stored(r hashkey.Ranges) map[string]*v1.Pod {
	pods := map[string]*v1.Pod{}
	for _, obj := range h.informer.GetStore().List() {
		if pod := obj.(*v1.Pod); h.server.matches(pod, r) || r.Equal(hashkey.All()) {
			pods[pod.Name] = pod
		}
	}
	return pods
}

func (h *harness) compare(got, want map[string]*v1.Pod) {
	h.Helper()
	if d := difference(got, want); d != "" {
		h.Fatal(d)
	}
}

// difference says in what got is not want, by revision.
func difference(got, want map[string]*v1.Pod) string {
	var d []string
	for name, pod := range want {
		switch g, ok := got[name]; {
		case !ok:
			d = append(d, fmt.Sprintf("missing: %s@%s", name, pod.ResourceVersion))
		case g.ResourceVersion != pod.ResourceVersion || g.UID != pod.UID:
			d = append(d, fmt.Sprintf("%s@%s instead of @%s", name, g.ResourceVersion, pod.ResourceVersion))
		}
	}
	for name, pod := range got {
		if _, ok := want[name]; !ok {
			d = append(d, fmt.Sprintf("too many: %s@%s", name, pod.ResourceVersion))
		}
	}
	return strings.Join(d, ", ")
}

// eventually waits for a condition.
func (h *harness) eventually(what string, condition func() bool) {
	h.Helper()
	if err := wait.PollUntilContextCancel(h.ctx, time.Millisecond, true, func(context.Context) (bool, error) { return condition(), nil }); err != nil {
		h.Fatalf("%s: %v", what, err)
	}
}

// wantEvents waits until the handler has been told that many things since the last
// call, and checks that they are these, in that order.
func (h *harness) wantEvents(want ...string) {
	h.Helper()
	h.eventually("what the handler is told", func() bool {
		h.record.mu.Lock()
		defer h.record.mu.Unlock()
		return len(h.record.events) >= len(want)
	})
	if got := h.record.taken(); fmt.Sprint(got) != fmt.Sprint(want) {
		h.Errorf("the handler was told %v, want %v", got, want)
	}
}

// requests sums the requests since the last call up: lists and the objects that
// they gave, and watches.
func (h *harness) requests() (lists, objects, watches int) {
	for _, r := range h.server.taken() {
		if r.watch {
			watches++
			continue
		}
		lists++
		objects += r.objects
	}
	return lists, objects, watches
}

func at(event, name string, revision uint64) string {
	return fmt.Sprintf("%s %s@%d", event, name, revision)
}

func TestNothingWanted(t *testing.T) {
	h := newHarness(t, ByHashKey)
	h.put("a", 10)
	if !cache.WaitFor(h.ctx, "sync", h.informer.HasSyncedChecker()) {
		t.Fatal("an informer without ranges does not sync")
	}
	h.settled(nil)
	if lists, _, watches := h.requests(); lists+watches > 0 {
		t.Errorf("without ranges there were %d lists and %d watches", lists, watches)
	}
	if held := h.source.Held(); !held.Empty() {
		t.Errorf("held: %s", held)
	}
}

func TestRangesBeforeStart(t *testing.T) {
	for _, old := range []bool{false, true} {
		t.Run(fmt.Sprintf("old=%t", old), func(t *testing.T) { testRangesBeforeStart(t, old) })
	}
}

func testRangesBeforeStart(t *testing.T, old bool) {
	server := newFakeServer(ByHashKey)
	server.old = old
	for i := range 20 {
		server.write(newPod(ByHashKey, fmt.Sprintf("pod-%d", i), i*5), false)
	}
	source, err := NewSource(Config{Field: ByHashKey, ListWatch: server, Object: &v1.Pod{}})
	if err != nil {
		t.Fatal(err)
	}
	source.SetRanges(percents(0, 50))
	informer := source.NewInformer(cache.SharedIndexInformerOptions{})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	go informer.RunWithContext(ctx)
	if !cache.WaitFor(ctx, "sync", informer.HasSyncedChecker()) {
		t.Fatal("not synced")
	}
	if got := len(informer.GetStore().ListKeys()); got != 10 {
		t.Errorf("%d pods when synced, want 10", got)
	}
	if err := source.WaitFor(ctx, percents(0, 50), ""); err != nil {
		t.Fatal(err)
	}
	if err := source.WaitFor(ctx, percents(0, 50), strconv.FormatUint(server.write(newPod(ByHashKey, "more", 0), false), 10)); err != nil {
		t.Fatal(err)
	}
	if got := len(informer.GetStore().ListKeys()); got != 11 {
		t.Errorf("%d pods after another, want 11", got)
	}
}

func TestFollow(t *testing.T) {
	h := newHarness(t, ByHashKey)
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))
	a1 := h.put("a", 10)
	h.put("out", 60)
	a2 := h.change("a", 10)
	h.put("b", 20)
	b := h.delete("b")
	h.wantEvents(at("add", "a", a1), at("update", "a", a2), at("add", "b", b-1), at("delete", "b", b))
}

// Growing lists the new part only, follows the old part meanwhile, and leaves no
// gap between what the list and what the watch brings.
func TestGrow(t *testing.T) {
	h := newHarness(t, ByHashKey)
	for i := range 100 {
		h.put(fmt.Sprintf("pod-%02d", i), i)
	}
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))
	h.requests()
	h.record.taken()

	var during []string
	h.server.setOnPage(func(_ context.Context, page int) {
		if page == 0 {
			// Before the list: it has them.
			h.put("listed", 55)
			h.delete("pod-51")
			h.change("pod-52", 52)
			h.put("brief", 53)
			h.delete("brief")
			return
		}
		h.server.setOnPage(nil)
		// After the list's revision: only the watch has them.
		h.put("late", 56)
		h.delete("pod-54")
		h.change("pod-55", 55)
		h.delete("listed")
		h.put("again", 57)
		h.delete("again")
		h.put("again", 58)
		// The old part is followed while the new one is listed.
		revision := h.change("pod-00", 0)
		if err := h.source.WaitFor(h.ctx, percents(0, 50), strconv.FormatUint(revision, 10)); err != nil {
			t.Error(err)
		}
		during = append(during, h.stored(percents(0, 1))["pod-00"].ResourceVersion)
		// What comes and goes in the old part is not told again by the new watch.
		h.put("old-brief", 10)
		revision = h.delete("old-brief")
		if err := h.source.WaitFor(h.ctx, percents(0, 50), strconv.FormatUint(revision, 10)); err != nil {
			t.Error(err)
		}
	})
	h.source.SetRanges(percents(0, 70))
	h.eventually("growth", func() bool { return h.source.Held().Equal(percents(0, 70)) })
	if len(during) == 0 {
		t.Error("the list had one page")
	}
	if lists, objects, _ := h.requests(); lists != 3 || objects != 20 {
		t.Errorf("growing took %d lists of %d objects, want 3 and 20", lists, objects)
	}
	h.settled(percents(0, 70))
	told := map[string]int{}
	for _, event := range h.record.taken() {
		told[strings.SplitN(event, "@", 2)[0]]++
	}
	for event, n := range map[string]int{
		"add brief": 1, "delete brief": 1, "add old-brief": 1, "delete old-brief": 1, "add again": 2, "update pod-00": 1, "delete pod-54": 1, "delete pod-51": 0, "add listed": 1, "delete listed": 1,
	} {
		if told[event] != n {
			t.Errorf("%s: told %d times, want %d", event, told[event], n)
		}
	}
}

// What grew is not held before the new watch has brought what the list did not.
func TestGrowthIsHeldWhenBrought(t *testing.T) {
	h := newHarness(t, ByHashKey)
	for i := range 100 {
		h.put(fmt.Sprintf("pod-%02d", i), i)
	}
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))
	h.server.taken()
	gate := make(chan struct{})
	h.source.listWatch = cache.ToListerWatcherWithContext(listWatch{fakeServer: h.server, replace: func(w watch.Interface) watch.Interface {
		return watch.Filter(w, func(event watch.Event) (watch.Event, bool) {
			<-gate
			return event, true
		})
	}})
	h.server.setOnPage(func(context.Context, int) {
		h.server.setOnPage(nil)
		h.change("pod-60", 60)
	})
	h.source.SetRanges(percents(0, 70))
	h.eventually("the new watch", func() bool { return h.server.has(h.server.replaced) })
	if held := h.source.Held(); !held.Equal(percents(0, 50)) {
		t.Errorf("held too early: %s", held)
	}
	close(gate)
	h.eventually("growth", func() bool { return h.source.Held().Equal(percents(0, 70)) })
	h.settled(percents(0, 70))
}

// The answer to a list may come when the watch is past it.
func TestGrowBehindTheWatch(t *testing.T) {
	h := newHarness(t, ByHashKey)
	for i := range 100 {
		h.put(fmt.Sprintf("pod-%02d", i), i)
	}
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))
	var once sync.Once
	h.source.listWatch = cache.ToListerWatcherWithContext(listWatch{fakeServer: h.server, listed: func() {
		once.Do(func() {
			h.change("pod-51", 51)
			h.put("late", 52)
			h.delete("pod-53")
			revision := h.change("pod-00", 0)
			h.eventually("the watch", func() bool {
				return h.stored(percents(0, 1))["pod-00"].ResourceVersion == strconv.FormatUint(revision, 10)
			})
		})
	}})
	h.source.SetRanges(percents(0, 70))
	h.eventually("growth", func() bool { return h.source.Held().Equal(percents(0, 70)) })
	h.settled(percents(0, 70))
}

// What grew is not held before the new watch has brought what it has to, and has
// come to where the old one was: what is held must not fall back.
func TestGrowthIsHeldLate(t *testing.T) {
	for name, during := range map[string]func(h *harness){
		"behind the old watch": func(h *harness) { h.change("pod-01", 1) },
		"an object moved over, which the old watch saw leave": func(h *harness) {
			h.eventually("its end", func() bool {
				h.record.mu.Lock()
				defer h.record.mu.Unlock()
				return h.record.deleted["pod-02"] != nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, ByControllerHashKey)
			for i := range 100 {
				h.put(fmt.Sprintf("pod-%02d", i), i)
			}
			h.source.SetRanges(percents(0, 50))
			h.settled(percents(0, 50))
			gate := make(chan struct{})
			h.source.listWatch = cache.ToListerWatcherWithContext(listWatch{fakeServer: h.server, replace: func(w watch.Interface) watch.Interface {
				return watch.Filter(w, func(event watch.Event) (watch.Event, bool) {
					<-gate
					return event, true
				})
			}})
			var reached uint64
			h.server.setOnPage(func(_ context.Context, page int) {
				if page == 0 {
					// The old watch tells it only after the first page, which has it.
					h.server.hold()
					reached = h.change("pod-02", 60)
					return
				}
				h.server.setOnPage(nil)
				h.server.release()
				during(h)
				reached = h.change("pod-00", 0)
				h.eventually("the old watch", func() bool {
					return h.stored(percents(0, 1))["pod-00"].ResourceVersion == strconv.FormatUint(reached, 10)
				})
			})
			h.source.SetRanges(percents(0, 70))
			h.eventually("the new watch", func() bool {
				return h.server.has(func() bool {
					n := len(h.server.requests)
					return n > 0 && h.server.requests[n-1].selector == percents(0, 70).Selector(string(ByControllerHashKey))
				})
			})
			// What was held before goes on being held where it was.
			if err := h.source.WaitFor(h.ctx, percents(0, 50), strconv.FormatUint(reached, 10)); err != nil {
				t.Fatal(err)
			}
			if held := h.source.Held(); !held.Equal(percents(0, 50)) {
				t.Errorf("held too early: %s", held)
			}
			close(gate)
			h.settled(percents(0, 70))
		})
	}
}

func TestShrink(t *testing.T) {
	h := newHarness(t, ByHashKey)
	for i := range 100 {
		h.put(fmt.Sprintf("pod-%02d", i), i)
	}
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))
	h.requests()
	h.record.taken()
	last := h.stored(percents(40, 50))["pod-45"]

	h.source.SetRanges(percents(0, 40))
	if held := h.source.Held(); !held.Equal(percents(0, 40)) {
		t.Errorf("held when SetRanges returns: %s", held)
	}
	h.settled(percents(0, 40))
	h.eventually("a narrower watch", func() bool {
		return h.server.has(func() bool { return len(h.server.requests) > 0 })
	})
	if events := h.record.taken(); len(events) != 10 {
		t.Errorf("the handler was told %v", events)
	}
	for _, r := range h.server.taken() {
		if r.watch && r.selector != percents(0, 40).Selector(string(ByHashKey)) {
			t.Errorf("then watched: %s", r.selector)
		}
		if !r.watch && r.selector != percents(0, 40).Selector(string(ByHashKey)) {
			t.Errorf("listed: %s", r.selector) // waitFor's proof is the only list
		}
	}
	h.record.mu.Lock()
	defer h.record.mu.Unlock()
	deleted := h.record.deleted["pod-45"]
	if deleted.UID != last.UID || deleted.HashKey != last.HashKey || deleted == last || deleted.ManagedFields != nil {
		t.Errorf("deleted as %v, last known as %v", deleted, last)
	}
	if revisionOf(t, deleted) <= revisionOf(t, last) {
		t.Errorf("deleted at %s, last changed at %s", deleted.ResourceVersion, last.ResourceVersion)
	}
}

func TestMove(t *testing.T) {
	for _, field := range []FieldPath{ByHashKey, ByControllerHashKey} {
		t.Run(string(field), func(t *testing.T) {
			h := newHarness(t, field)
			for i := range 100 {
				h.put(fmt.Sprintf("pod-%02d", i), i)
			}
			for _, r := range []hashkey.Ranges{
				percents(0, 50), percents(50, 100), percents(20, 60), percents(60, 80),
				percents(0, 10).Union(percents(90, 100)), percents(5, 95), nil, percents(30, 40), hashkey.All(),
			} {
				h.source.SetRanges(r)
				h.settled(r)
				if held := h.source.Held(); !held.Equal(r) {
					t.Errorf("held: %s, want %s", held, r)
				}
				h.change("pod-33", 33)
				h.change("pod-77", 77)
				h.settled(r)
			}
		})
	}
}

// Objects without a controller are in every range: they stay as long as there is
// any, and an object that gets or loses its controller comes or goes.
func TestOrphans(t *testing.T) {
	h := newHarness(t, ByControllerHashKey)
	h.put("orphan", -1)
	h.put("a", 10)
	h.put("b", 60)
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))
	h.record.taken()

	h.source.SetRanges(percents(50, 100))
	h.settled(percents(50, 100))
	for _, event := range h.record.taken() {
		if strings.Contains(event, "orphan") {
			t.Errorf("an orphan moved with the range: %s", event)
		}
	}
	adopted := h.change("orphan", 10)
	h.settled(percents(50, 100))
	h.wantEvents(at("delete", "orphan", adopted))
	released := h.change("a", -1)
	h.settled(percents(50, 100))
	h.wantEvents(at("add", "a", released))
	moved := h.change("b", 20)
	h.settled(percents(50, 100))
	h.wantEvents(at("delete", "b", moved))
	h.source.SetRanges(nil)
	h.settled(nil)
}

// A change supersedes one whose list hangs, and a change back cancels it.
func TestSuperseded(t *testing.T) {
	h := newHarness(t, ByHashKey)
	for i := range 100 {
		h.put(fmt.Sprintf("pod-%02d", i), i)
	}
	h.source.SetRanges(percents(0, 30))
	h.settled(percents(0, 30))
	for _, hangAt := range []int{0, 1} {
		for _, next := range []hashkey.Ranges{percents(0, 30), percents(10, 30), percents(20, 40), percents(0, 90), nil} {
			h.source.SetRanges(percents(0, 30))
			h.settled(percents(0, 30))
			hanging := make(chan struct{})
			var once sync.Once
			h.server.setOnPage(func(ctx context.Context, page int) {
				if page == hangAt {
					once.Do(func() {
						close(hanging)
						<-ctx.Done()
					})
				}
			})
			h.source.SetRanges(percents(0, 60))
			<-hanging
			h.change("pod-00", 0)
			h.change("pod-35", 35)
			h.delete("pod-31")
			h.put("pod-31", 31)
			if held := h.source.Held(); !held.Equal(percents(0, 30)) {
				t.Errorf("held while the growth is listed: %s", held)
			}
			h.source.SetRanges(next)
			h.settled(next)
		}
	}
}

// A watch that is slow to open does not hold up one that is to take its place.
func TestOpeningSuperseded(t *testing.T) {
	h := newHarness(t, ByHashKey)
	for i := range 100 {
		h.put(fmt.Sprintf("pod-%02d", i), i)
	}
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))

	hang := func(hanging, given chan struct{}) cache.ListerWatcherWithContext {
		var once sync.Once
		return cache.ToListerWatcherWithContext(listWatch{fakeServer: h.server, opening: func(ctx context.Context) {
			once.Do(func() {
				close(hanging)
				<-ctx.Done()
				close(given)
			})
		}})
	}

	// The watch of a growth, by another one, and by a change back.
	for _, r := range []hashkey.Ranges{percents(0, 70), percents(0, 60)} {
		hanging, given := make(chan struct{}), make(chan struct{})
		h.source.listWatch = hang(hanging, given)
		h.source.SetRanges(percents(0, 80))
		<-hanging
		h.source.SetRanges(r)
		<-given
		h.settled(r)
	}

	// The watch of what is held, which was cut, by a growth.
	hanging, given := make(chan struct{}), make(chan struct{})
	h.source.listWatch = hang(hanging, given)
	h.server.setOnPage(func(_ context.Context, page int) {
		if page == 1 {
			h.server.setOnPage(nil)
			h.server.cutWatches()
			<-hanging
			h.change("pod-00", 0)
			h.change("pod-75", 75)
		}
	})
	h.source.SetRanges(percents(0, 90))
	<-given
	h.settled(percents(0, 90))
}

// The reflector's own list is superseded as well.
func TestFirstListSuperseded(t *testing.T) {
	server := newFakeServer(ByHashKey)
	hanging := make(chan struct{})
	server.setOnPage(func(ctx context.Context, _ int) {
		server.setOnPage(nil)
		close(hanging)
		<-ctx.Done()
	})
	source, err := NewSource(Config{Field: ByHashKey, ListWatch: server, Object: &v1.Pod{}})
	if err != nil {
		t.Fatal(err)
	}
	server.write(newPod(ByHashKey, "a", 10), false)
	server.write(newPod(ByHashKey, "b", 60), false)
	source.SetRanges(percents(0, 50))
	informer := source.NewInformer(cache.SharedIndexInformerOptions{})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	go informer.RunWithContext(ctx)
	<-hanging
	source.SetRanges(percents(50, 100))
	if err := source.WaitFor(ctx, percents(50, 100), ""); err != nil {
		t.Fatal(err)
	}
	if keys := informer.GetStore().ListKeys(); fmt.Sprint(keys) != "[b]" {
		t.Errorf("the store has %v", keys)
	}
}

func TestWatchEnds(t *testing.T) {
	h := newHarness(t, ByHashKey)
	h.put("a", 10)
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))
	h.record.taken()
	h.requests()
	h.server.hold()
	b := h.put("b", 20)
	c := h.put("c", 30)
	d := h.delete("c")
	h.server.cutWatches()
	h.server.release()
	h.wantEvents(at("add", "b", b), at("add", "c", c), at("delete", "c", d))
}

// Where the server has forgotten what the watch was to go on from, the reflector
// lists anew, and what was held stays until then.
func TestExpired(t *testing.T) {
	h := newHarness(t, ByHashKey)
	for i := range 20 {
		h.put(fmt.Sprintf("pod-%02d", i), i*5)
	}
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))
	h.server.hold()
	h.delete("pod-01")
	h.put("pod-02", 10)
	h.put("new", 20)
	h.change("pod-03", 15)
	h.server.forget()
	h.server.release()
	if held := h.source.Held(); !held.Equal(percents(0, 50)) {
		t.Errorf("held: %s", held)
	}
	h.settled(percents(0, 50))
	h.source.SetRanges(percents(25, 75))
	h.settled(percents(25, 75))
}

// A relist keeps the objects that have not changed, and does not transform them
// again: readers have them. It replaces everything in one step.
func TestRelistKeepsWhatIsSame(t *testing.T) {
	for _, streams := range []bool{false, true} {
		t.Run(fmt.Sprintf("streams=%t", streams), func(t *testing.T) {
			h := newHarness(t, ByHashKey)
			h.server.streams = streams
			for i := range 40 {
				h.put(fmt.Sprintf("pod-%02d", i), i)
			}
			r := percents(0, 80)
			h.source.SetRanges(r)
			h.settled(r)
			before := h.stored(r)

			var once sync.Once
			h.server.setOnPage(func(context.Context, int) {
				once.Do(func() {
					h.compare(h.stored(r), before)
					if held := h.source.Held(); !held.Equal(r) {
						t.Errorf("%s is held during a relist, want %s", held, r)
					}
				})
			})
			h.server.hold()
			h.change("pod-01", 1)
			h.delete("pod-02")
			h.delete("pod-03")
			h.put("pod-03", 3) // with another UID
			h.put("pod-50", 50)
			h.server.forget()
			h.server.release()
			h.settled(r)
			after := h.stored(r)
			if after["pod-03"].UID == before["pod-03"].UID {
				t.Error("pod-03 is still the one before")
			}
			for name, pod := range after {
				kept := before[name] == pod
				if same := before[name] != nil && before[name].ResourceVersion == pod.ResourceVersion; kept != same {
					t.Errorf("%s@%s is the object that was there: %t", name, pod.ResourceVersion, kept)
				}
			}
		})
	}
}

// A list that is interrupted begins again with nothing of what it had.
func TestInterruptedFirstList(t *testing.T) {
	server := newFakeServer(ByHashKey)
	server.streams = true
	for i := range 30 {
		server.write(newPod(ByHashKey, fmt.Sprintf("pod-%02d", i), i), false)
	}
	server.setOnPage(func(_ context.Context, page int) {
		if page == 1 {
			server.setOnPage(nil)
			for i := range 15 {
				server.write(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%02d", 2*i)}}, true)
			}
			server.cutWatches()
		}
	})
	source, err := NewSource(Config{Field: ByHashKey, ListWatch: server, Object: &v1.Pod{}})
	if err != nil {
		t.Fatal(err)
	}
	source.SetRanges(percents(0, 100))
	informer := source.NewInformer(cache.SharedIndexInformerOptions{})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	go informer.RunWithContext(ctx)
	if err := source.WaitFor(ctx, percents(0, 100), ""); err != nil {
		t.Fatal(err)
	}
	if n := len(informer.GetStore().List()); n != 15 {
		t.Errorf("the store has %d objects, want 15", n)
	}
}

// Without completeness nothing is held during a relist, what has changed comes object
// by object, and what has not stays as it is.
func TestIncompleteRelist(t *testing.T) {
	h := newHarness(t, ByHashKey)
	h.server.streams = true
	h.source.incompleteRelists = true
	for i := range 40 {
		h.put(fmt.Sprintf("pod-%02d", i), i)
	}
	r := percents(0, 80)
	h.source.SetRanges(r)
	h.settled(r)
	before := h.stored(r)
	h.record.taken()

	h.server.hold()
	h.change("pod-01", 1)
	h.delete("pod-02")
	relisting := make(chan struct{})
	h.server.setOnPage(func(context.Context, int) {
		h.server.setOnPage(nil)
		close(relisting)
		h.eventually("nothing is held", func() bool { return h.source.Held().Empty() })
		h.compare(h.stored(r), before)
	})
	h.server.forget()
	<-relisting
	h.server.release()
	h.settled(r)
	var told []string
	for _, event := range h.record.taken() {
		told = append(told, strings.SplitN(event, "@", 2)[0])
	}
	if want := []string{"update pod-01", "delete pod-02"}; !slices.Equal(told, want) {
		t.Errorf("the handler was told %v, want %v", told, want)
	}
	for name, pod := range h.stored(r) {
		if name != "pod-01" && pod != before[name] {
			t.Errorf("%s was replaced", name)
		}
	}
}

// A growth whose watch cannot start where the list needs it lists anew as well.
func TestGrowthExpired(t *testing.T) {
	h := newHarness(t, ByHashKey)
	for i := range 20 {
		h.put(fmt.Sprintf("pod-%02d", i), i*5)
	}
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))
	h.server.setOnPage(func(context.Context, int) {
		h.server.setOnPage(nil)
		h.server.mu.Lock()
		defer h.server.mu.Unlock()
		h.server.revision++
		h.server.lost = h.server.revision
		h.server.revision++
	})
	h.source.SetRanges(percents(0, 100))
	h.settled(percents(0, 100))
}

// Failing requests are tried again, and what is held stays held and followed.
func TestFailures(t *testing.T) {
	h := newHarness(t, ByHashKey)
	for i := range 100 {
		h.put(fmt.Sprintf("pod-%02d", i), i)
	}
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))

	h.server.setFailing(1, 1)
	h.source.SetRanges(percents(0, 70))
	h.eventually("a failing list", func() bool {
		return h.server.has(func() bool { return h.server.failLists == 0 })
	})
	if held := h.source.Held(); !held.Equal(percents(0, 50)) {
		t.Errorf("held after a failing list: %s", held)
	}
	revision := h.change("pod-00", 0)
	h.eventually("followed all the same", func() bool {
		return h.stored(percents(0, 1))["pod-00"].ResourceVersion == strconv.FormatUint(revision, 10)
	})
	h.settled(percents(0, 70))
	if h.server.has(func() bool { return h.server.failWatches != 0 }) {
		t.Error("no watch failed")
	}

	// The second page of a list.
	var once sync.Once
	h.server.setOnPage(func(_ context.Context, page int) {
		if page == 1 {
			once.Do(func() {
				h.delete("pod-71")
				h.server.setFailing(1, 0)
			})
		}
	})
	h.source.SetRanges(percents(0, 100))
	h.eventually("growth", func() bool { return h.source.Held().Equal(percents(0, 100)) })
	h.settled(percents(0, 100))
}

// A server may end watches with an error that passes.
func TestWatchError(t *testing.T) {
	h := newHarness(t, ByHashKey)
	h.put("a", 10)
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))
	h.requests()
	status := apierrors.NewTooManyRequests("busy", 1).Status()
	var once sync.Once
	h.source.listWatch = cache.ToListerWatcherWithContext(listWatch{fakeServer: h.server, replace: func(w watch.Interface) watch.Interface {
		once.Do(func() {
			w.Stop()
			failing := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 1})
			failing.Error(&status)
			w = failing
		})
		return w
	}})
	h.server.cutWatches()
	h.put("b", 20)
	h.settled(percents(0, 50))
	if lists, _, _ := h.requests(); lists > 0 {
		t.Errorf("%d lists", lists)
	}
}

// listWatch replaces watches, or does something before the answer to a list comes or
// a watch is opened.
type listWatch struct {
	*fakeServer
	replace func(watch.Interface) watch.Interface
	listed  func()
	opening func(context.Context)
}

func (l listWatch) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, err := l.fakeServer.ListWithContext(ctx, options)
	if l.listed != nil {
		l.listed()
	}
	return list, err
}

func (l listWatch) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if options.SendInitialEvents != nil && *options.SendInitialEvents {
		return l.fakeServer.WatchWithContext(ctx, options)
	}
	if l.opening != nil {
		l.opening(ctx)
	}
	w, err := l.fakeServer.WatchWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	if l.replace != nil {
		w = l.replace(w)
	}
	return w, nil
}

func TestSameNameOtherUID(t *testing.T) {
	h := newHarness(t, ByHashKey)
	h.put("x", 10)
	h.put("y", 60)
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))
	h.record.taken()

	// In the range, and into and out of it: another object's range is another.
	d := h.delete("x")
	x := h.put("x", 20)
	h.settled(percents(0, 50))
	h.wantEvents(at("delete", "x", d), at("add", "x", x))
	d = h.delete("x")
	h.put("x", 70)
	h.settled(percents(0, 50))
	h.wantEvents(at("delete", "x", d))
	h.delete("y")
	y := h.put("y", 30)
	h.settled(percents(0, 50))
	h.wantEvents(at("add", "y", y))

	// The old one in what is followed, the new one in what is listed.
	h.server.hold()
	d = h.delete("y")
	y = h.put("y", 80)
	h.source.SetRanges(percents(0, 100))
	h.server.release()
	h.settled(percents(0, 100))
	var told []string
	for _, event := range h.record.taken() {
		if strings.Contains(event, " y@") {
			told = append(told, event)
		}
	}
	if want := []string{at("delete", "y", d), at("add", "y", y)}; fmt.Sprint(told) != fmt.Sprint(want) {
		t.Errorf("the handler was told %v, want %v", told, want)
	}
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))
}

// A server that does not know the selector sends everything; that is noticed once,
// and filtered here.
func TestOldServer(t *testing.T) {
	for _, field := range []FieldPath{ByHashKey, ByControllerHashKey} {
		t.Run(string(field), func(t *testing.T) {
			server := newFakeServer(field)
			server.old = true
			h := newHarnessFor(t, server, cache.Indexers{})
			for i := range 40 {
				h.put(fmt.Sprintf("pod-%02d", i), i*2)
			}
			if field == ByControllerHashKey {
				h.put("orphan", -1)
			}
			for _, r := range []hashkey.Ranges{percents(0, 50), percents(0, 70), percents(10, 40), percents(50, 90)} {
				server.setOnPage(func(context.Context, int) {
					h.change("pod-10", 20)
					h.change("pod-30", 60)
					h.put("brief", 40)
					h.delete("brief")
				})
				h.source.SetRanges(r)
				h.eventually("the change", func() bool { return h.source.Held().Equal(r) })
				server.setOnPage(nil)
				h.settled(r)
			}
			h.record.taken()
			if field == ByControllerHashKey {
				before := h.stored(percents(50, 90))["pod-31"]
				gone := h.change("pod-31", 10)
				h.settled(percents(50, 90))
				h.wantEvents(at("delete", "pod-31", gone))
				if got := h.record.deleted["pod-31"]; got.OwnerReferences[0].UID != before.OwnerReferences[0].UID {
					t.Errorf("left with the new controller %v, last known was %v", got.OwnerReferences, before.OwnerReferences)
				}
				come := h.change("pod-31", 55)
				h.settled(percents(50, 90))
				h.wantEvents(at("add", "pod-31", come))
			}
		})
	}
}

// What is listed is not for the watch to touch that does not follow it yet.
func TestOldServerGrowth(t *testing.T) {
	server := newFakeServer(ByHashKey)
	server.old = true
	h := newHarnessFor(t, server, cache.Indexers{})
	for i := range 40 {
		h.put(fmt.Sprintf("pod-%02d", i), i*2)
	}
	h.source.SetRanges(percents(50, 80))
	h.settled(percents(50, 80))
	h.record.taken()
	server.setOnPage(func(_ context.Context, page int) {
		if page == 0 {
			return
		}
		server.setOnPage(nil)
		h.change("pod-01", 2)
		h.delete("pod-02")
		revision := h.change("pod-39", 78)
		h.eventually("the old watch", func() bool {
			return h.stored(percents(70, 80))["pod-39"].ResourceVersion == strconv.FormatUint(revision, 10)
		})
	})
	h.source.SetRanges(percents(0, 80))
	h.settled(percents(0, 80))
	told := map[string]int{}
	for _, event := range h.record.taken() {
		told[strings.SplitN(event, "@", 2)[0]]++
	}
	for event, n := range map[string]int{"add pod-01": 1, "update pod-01": 1, "delete pod-01": 0, "add pod-02": 1, "delete pod-02": 1} {
		if told[event] != n {
			t.Errorf("%s: told %d times, want %d", event, told[event], n)
		}
	}
}

func TestOldServerWarnsOnce(t *testing.T) {
	server := newFakeServer(ByHashKey)
	server.old = true
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	source, err := NewSource(Config{Field: ByHashKey, ListWatch: server, Object: &v1.Pod{}, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	informer := source.NewInformer(cache.SharedIndexInformerOptions{})
	ctx, cancel := context.WithTimeout(klog.NewContext(context.Background(), logger), patience)
	defer cancel()
	go informer.RunWithContext(ctx)
	for _, r := range []hashkey.Ranges{percents(0, 50), percents(0, 70), percents(50, 90)} {
		source.SetRanges(r)
		if err := source.WaitFor(ctx, r, ""); err != nil {
			t.Fatal(err)
		}
	}
	log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
	if n := strings.Count(log, "does not know the selector"); n != 1 {
		t.Errorf("%d warnings:\n%s", n, log)
	}
}

// A server that is asked says that a quiet collection has reached a revision.
func TestWaitForQuiet(t *testing.T) {
	h := newHarness(t, ByHashKey)
	for i := range 30 {
		h.put(fmt.Sprintf("pod-%02d", i), i*3)
	}
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))
	h.requests()
	h.waitFor(percents(10, 20))
	if lists, _, watches := h.requests(); lists != 0 || watches != 1 {
		t.Errorf("%d lists, %d watches, want 0 and 1", lists, watches)
	}
	if err := h.source.WaitFor(h.ctx, percents(10, 20), strconv.FormatUint(h.server.revision, 10)); err != nil {
		t.Fatal(err)
	}
	if lists, _, watches := h.requests(); lists+watches > 0 {
		t.Error("asked for what was known already")
	}
	// A bookmark tells as well.
	revision := h.server.touch()
	h.server.bookmark()
	h.eventually("the bookmark", func() bool {
		return h.informer.GetStore().LastStoreSyncResourceVersion() == strconv.FormatUint(revision, 10)
	})
	if err := h.source.WaitFor(h.ctx, percents(0, 50), strconv.FormatUint(revision, 10)); err != nil {
		t.Fatal(err)
	}
	if lists, _, watches := h.requests(); lists+watches > 0 {
		t.Error("asked although there was a bookmark")
	}
}

// WaitFor returns when the watch has brought everything.
func TestWaitForOutstanding(t *testing.T) {
	h := newHarness(t, ByHashKey)
	h.put("changed", 10)
	h.put("deleted", 20)
	h.put("replaced", 30)
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))
	h.requests()

	h.server.hold()
	h.change("changed", 10)
	h.put("created", 15)
	h.put("brief", 25)
	h.delete("brief")
	h.delete("replaced")
	h.put("replaced", 35)
	revision := h.delete("deleted")
	waited := make(chan error, 1)
	go func() {
		err := h.source.WaitFor(h.ctx, percents(0, 50), strconv.FormatUint(revision, 10))
		if d := difference(h.stored(percents(0, 50)), h.server.content(percents(0, 50))); err == nil && d != "" {
			err = errors.New(d)
		}
		waited <- err
	}()
	h.eventually("the question", func() bool { return h.server.has(func() bool { return len(h.server.requests) > 0 }) })
	for h.server.has(func() bool { return h.server.shown < len(h.server.history) }) {
		select {
		case err := <-waited:
			t.Fatalf("WaitFor returned with events held back: %v", err)
		default:
		}
		h.server.releaseOne()
		h.eventually("the watch", func() bool {
			return h.server.has(func() bool { return h.server.sent == h.server.shown })
		})
	}
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	h.server.release()
}

// The store, not the stream, has to be there: here it takes its time.
func TestWaitForStore(t *testing.T) {
	server := newFakeServer(ByHashKey)
	reached, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	h := newHarnessFor(t, server, cache.Indexers{"slow": func(obj any) ([]string, error) {
		if obj.(*v1.Pod).Name == "slow" {
			once.Do(func() {
				close(reached)
				<-release
			})
		}
		return nil, nil
	}})
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))
	h.put("slow", 10)
	<-reached
	// Everything of this is in the informer's queue behind the slow one.
	h.put("last", 20)
	h.source.SetRanges(percents(0, 60))
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		h.waitFor(percents(0, 60))
	}()
	h.eventually("the list", func() bool {
		return h.server.has(func() bool { return len(h.server.requests) > 2 })
	})
	select {
	case <-waited:
		t.Error("WaitFor returned before the store had everything")
	default:
	}
	if held := h.source.Held(); !held.Equal(percents(0, 50)) {
		t.Errorf("held before the store was: %s", held)
	}
	close(release)
	<-waited
	h.settled(percents(0, 60))
}

// A revision that the server does not know is of another storage, or the server lags:
// not a reason to return, nor to ask without pause.
func TestWaitForUnknownRevision(t *testing.T) {
	server := newFakeServer(ByHashKey)
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	source, err := NewSource(Config{Field: ByHashKey, ListWatch: server, Object: &v1.Pod{}, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	source.SetRanges(percents(0, 50))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	go source.NewInformer(cache.SharedIndexInformerOptions{}).RunWithContext(ctx)
	waited := make(chan error, 1)
	go func() { waited <- source.WaitFor(ctx, percents(0, 50), strconv.FormatUint(server.revision+3, 10)) }()
	if err := wait.PollUntilContextCancel(ctx, time.Millisecond, true, func(context.Context) (bool, error) {
		return strings.Contains(logger.GetSink().(ktesting.Underlier).GetBuffer().String(), "another storage"), nil
	}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-waited:
		t.Fatalf("returned before there was such a revision: %v", err)
	default:
	}
	for range 3 {
		server.touch()
	}
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
}

func TestWaitForErrors(t *testing.T) {
	h := newHarness(t, ByHashKey)
	ctx, cancel := context.WithCancel(h.ctx)
	cancel()
	if err := h.source.WaitFor(ctx, percents(0, 10), "5"); err == nil || !strings.Contains(err.Error(), "canceled") {
		t.Errorf("canceled: %v", err)
	}
	if len(h.source.waiters) != 0 {
		t.Error("a waiter was left")
	}
	if err := h.source.WaitFor(h.ctx, percents(0, 10), "five"); err == nil {
		t.Error("a revision that is no number was accepted")
	}
}

// Nothing is watched when nothing is wanted any more.
func TestWatchesEnd(t *testing.T) {
	h := newHarness(t, ByControllerHashKey)
	h.put("orphan", -1)
	h.put("a", 10)
	for _, r := range []hashkey.Ranges{percents(0, 50), percents(0, 70), percents(20, 30)} {
		h.source.SetRanges(r)
		h.settled(r)
		h.eventually("one watch", func() bool { return h.server.has(func() bool { return h.server.open == 1 }) })
	}
	h.source.SetRanges(nil)
	h.eventually("no watch", func() bool { return h.server.has(func() bool { return h.server.open == 0 }) })
	h.settled(nil)
}

func TestHeldChanged(t *testing.T) {
	h := newHarness(t, ByHashKey)
	for _, r := range []hashkey.Ranges{percents(0, 50), percents(0, 80), percents(40, 60), nil} {
		h.source.SetRanges(r)
		for !h.source.Held().Equal(r) {
			select {
			case <-h.source.HeldChanged():
			case <-h.ctx.Done():
				t.Fatalf("held: %s, want %s, and no word", h.source.Held(), r)
			}
		}
		select { // a change that the loop above did not have to wait for
		case <-h.source.HeldChanged():
		default:
		}
	}
}

// A change takes effect in the time that its requests take: no back-off.
func TestChangeIsQuick(t *testing.T) {
	h := newHarness(t, ByHashKey)
	for i := range 100 {
		h.put(fmt.Sprintf("pod-%02d", i), i)
	}
	h.source.SetRanges(percents(0, 1))
	h.settled(percents(0, 1))
	start := time.Now()
	for i := 2; i <= 42; i++ {
		h.source.SetRanges(percents(0, i))
		h.waitFor(percents(0, i))
	}
	// 40 changes, none of which may meet the reflector's back-off of 800 ms.
	if took := time.Since(start); took > 40*800*time.Millisecond/2 {
		t.Errorf("40 changes took %v", took)
	}
}

func TestUnstructured(t *testing.T) {
	server := newFakeServer(ByControllerHashKey)
	example := &unstructured.Unstructured{}
	example.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	source, err := NewSource(Config{Field: ByControllerHashKey, ListWatch: unstructuredServer{server}, Object: example})
	if err != nil {
		t.Fatal(err)
	}
	informer := source.NewInformer(cache.SharedIndexInformerOptions{})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	go informer.RunWithContext(ctx)
	server.write(newPod(ByControllerHashKey, "a", 10), false)
	server.write(newPod(ByControllerHashKey, "b", 60), false)
	for _, want := range []struct {
		ranges hashkey.Ranges
		keys   string
	}{{percents(0, 50), "[a]"}, {percents(50, 100), "[b]"}, {percents(70, 100), "[]"}} {
		source.SetRanges(want.ranges)
		if err := source.WaitFor(ctx, want.ranges, strconv.FormatUint(server.touch(), 10)); err != nil {
			t.Fatal(err)
		}
		if err := wait.PollUntilContextCancel(ctx, time.Millisecond, true, func(context.Context) (bool, error) {
			return fmt.Sprint(informer.GetStore().ListKeys()) == want.keys, nil
		}); err != nil {
			t.Errorf("%s: the store has %v, want %s", want.ranges, informer.GetStore().ListKeys(), want.keys)
		}
	}
}

// unstructuredServer gives pods as a dynamic client does.
type unstructuredServer struct{ *fakeServer }

func toUnstructured(obj runtime.Object, kind string) (map[string]any, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err == nil {
		content["apiVersion"], content["kind"] = "v1", kind
	}
	return content, err
}

func (s unstructuredServer) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, err := s.fakeServer.ListWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	content, err := toUnstructured(list, "PodList")
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	result, err := u.ToList()
	if err != nil {
		return nil, err
	}
	for i := range result.Items {
		result.Items[i].SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	}
	return result, nil
}

func (s unstructuredServer) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w, err := s.fakeServer.WatchWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	return watch.Filter(w, func(event watch.Event) (watch.Event, bool) {
		content, err := toUnstructured(event.Object, "Pod")
		if err != nil {
			panic(err)
		}
		return watch.Event{Type: event.Type, Object: &unstructured.Unstructured{Object: content}}, true
	}), nil
}

func TestIsSharded(t *testing.T) {
	info := &metav1.ShardInfo{Selector: "x"}
	sharded := &unstructured.UnstructuredList{Object: map[string]any{"metadata": map[string]any{"shardInfo": map[string]any{"selector": "x"}}}}
	for _, c := range []struct {
		list runtime.Object
		want bool
	}{
		{&v1.PodList{ListMeta: metav1.ListMeta{ShardInfo: info}}, true},
		{&v1.PodList{}, false},
		{&metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ShardInfo: info}}, true},
		{&metav1.PartialObjectMetadataList{}, false},
		{sharded, true},
		{&unstructured.UnstructuredList{Object: map[string]any{}}, false},
	} {
		if got := isSharded(c.list); got != c.want {
			t.Errorf("%T: %t", c.list, got)
		}
	}
}

func TestNewSourceRefuses(t *testing.T) {
	server := newFakeServer(ByHashKey)
	for name, cfg := range map[string]Config{
		"no field":      {ListWatch: server, Object: &v1.Pod{}},
		"unknown field": {Field: "object.metadata.name", ListWatch: server, Object: &v1.Pod{}},
		"no list-watch": {Field: ByHashKey, Object: &v1.Pod{}},
		"no object":     {Field: ByHashKey, ListWatch: server},
		"a list":        {Field: ByHashKey, ListWatch: server, Object: &v1.PodList{}},
	} {
		if _, err := NewSource(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	featurestesting.SetFeatureDuringTest(t, features.UnlockWhileProcessingFIFO, false)
	featurestesting.SetFeatureDuringTest(t, features.AtomicFIFO, false)
	if _, err := NewSource(Config{Field: ByHashKey, ListWatch: server, Object: &v1.Pod{}}); err == nil || !strings.Contains(err.Error(), "AtomicFIFO") {
		t.Errorf("without AtomicFIFO: %v", err)
	}
}

func TestExtent(t *testing.T) {
	e := extent{ranges: percents(0, 50), revision: 10, parts: []part{
		{percents(0, 20), 30}, {percents(20, 50), 20}, {percents(10, 30), 25},
	}}
	for _, c := range []struct {
		ranges   hashkey.Ranges
		revision uint64
		want     bool
	}{
		{nil, 99, true},
		{percents(0, 50), 10, true},
		{percents(0, 51), 10, false},
		{percents(0, 50), 20, true},
		{percents(0, 50), 21, false},
		{percents(0, 30), 25, true},
		{percents(0, 31), 25, false},
		{percents(0, 20), 30, true},
		{percents(0, 20), 31, false},
	} {
		if got := e.holds(c.ranges, c.revision); got != c.want {
			t.Errorf("%s at %d: %t", c.ranges, c.revision, got)
		}
	}
	if got := e.reached(); got != 20 {
		t.Errorf("reached %d", got)
	}
	if got := (extent{revision: 7, parts: []part{{percents(0, 20), 30}}}).reached(); got != 7 {
		t.Errorf("nothing reached %d", got)
	}
}

// The identity that tells one bookmark from another must come through.
func TestIdentify(t *testing.T) {
	s := &Source{field: ByControllerHashKey}
	pod := newPod(ByControllerHashKey, "a", 10)
	pod.Namespace, pod.ResourceVersion = "ns", "7"
	got, err := s.identify(pod)
	if err != nil || got.id != (objectID{Namespace: "ns", Name: "a"}) || got.revision != 7 || got.key != pod.OwnerReferences[0].HashKey {
		t.Errorf("%+v, %v", got, err)
	}
	// A key that no server has set follows from the UID.
	pod.OwnerReferences[0].HashKey = 0
	if got, err := s.identify(pod); err != nil || got.key != hashkey.OfUID(types.UID("owner-10")) {
		t.Errorf("%+v, %v", got, err)
	}
	pod.ResourceVersion = ""
	if _, err := s.identify(pod); err == nil {
		t.Error("an object without revision was accepted")
	}
}
