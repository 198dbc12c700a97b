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
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2/ktesting"
)

// patience is how long a test waits for its conditions before it fails.
const patience = time.Minute

// quick is a back-off for tests that have requests fail.
var quick = wait.Backoff{Duration: time.Millisecond, Factor: 2, Jitter: 1, Steps: 5, Cap: 10 * time.Millisecond}

// harness is a Source with its informer and an event handler, on a fake server.
type harness struct {
	*testing.T
	server   *fakeServer
	source   *Source
	informer cache.SharedIndexInformer
	record   *record
	ctx      context.Context
}

func newHarness(t *testing.T, field string) *harness {
	return newHarnessFor(t, newFakeServer(field), cache.Indexers{})
}

func newHarnessFor(t *testing.T, server *fakeServer, indexers cache.Indexers) *harness {
	t.Helper()
	logger, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithTimeout(ctx, patience)
	r := &record{t: t, pods: map[string]*v1.Pod{}}
	source, err := NewSource(Config{Field: server.field, ListWatch: server, Object: &v1.Pod{}, Behind: r.behind, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	source.backoff = quick
	// Tests show that a new server's answers are enough, and do not wait for an old one's.
	source.overdue = patience
	if server.old || server.impatient {
		source.overdue = time.Millisecond
	}
	if server.patient {
		source.overdue = patience
	}
	h := &harness{T: t, server: server, source: source, ctx: ctx, record: r}
	h.informer = source.NewInformer(cache.SharedIndexInformerOptions{Indexers: indexers})
	r.store = h.informer.GetStore()
	// As in kube-controller-manager, the transform changes the object in place. The race detector
	// would notice that on an object that others read.
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

// put creates or replaces a pod, at percent of the line of keys, and returns the revision.
func (h *harness) put(name string, percent int) uint64 {
	return h.server.write(newPod(h.server.field, name, percent), false)
}

func (h *harness) delete(name string) uint64 {
	return h.server.write(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}, true)
}

// change writes a new revision of a pod, moved to percent of the line of keys.
func (h *harness) change(name string, percent int) uint64 {
	h.Helper()
	pod := h.server.content(hashkey.All())[name].DeepCopy()
	setPercent(h.server.field, pod, percent)
	return h.server.write(pod, false)
}

// waitFor waits for r at a new revision of the server, and checks that the store then has r
// exactly. It must not be called while others write.
func (h *harness) waitFor(r hashkey.Ranges) {
	h.Helper()
	h.server.touch()
	if err := h.source.WaitFor(h.ctx, r); err != nil {
		h.Fatal(err)
	}
	h.compare(h.stored(r), h.server.content(r))
}

// settled waits until the store and the net effect of the handler's events equal what the server
// has in r, r is watched, and the store is not said to be behind.
func (h *harness) settled(r hashkey.Ranges) {
	h.Helper()
	h.waitFor(r)
	h.waitFor(r) // needs the watch, while a list may have been enough for the first call
	want := h.server.content(r)
	if err := wait.PollUntilContextCancel(h.ctx, time.Millisecond, true, func(context.Context) (bool, error) {
		h.record.mu.Lock()
		defer h.record.mu.Unlock()
		return difference(h.stored(hashkey.All()), want) == "" && difference(h.record.pods, want) == "" && !h.record.lags, nil
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

// difference describes how got differs from want, by revision and UID, or returns "".
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

// wantEvents waits until the handler has as many new events as want, and checks that they are
// those, in that order.
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

// requests counts the requests since the last call: lists, the objects that these returned, and
// watches.
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
