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
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2/ktesting"
)

// reader reads a stream, and keeps what it is told of.
type reader struct {
	*testing.T
	server *fakeServer
	source *Source
	stream watch.Interface
	ctx    context.Context
	ended  chan struct{}

	mu     sync.Mutex
	pods   map[string]*v1.Pod
	events []string
}

func newReader(t *testing.T, server *fakeServer) *reader {
	logger, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithTimeout(ctx, patience)
	source, err := NewSource(Config{Field: server.field, ListWatch: server, Object: &v1.Pod{}, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	source.backoff, source.overdue = quick, patience
	r := &reader{T: t, server: server, source: source, stream: source.Stream(ctx), ctx: ctx, ended: make(chan struct{}), pods: map[string]*v1.Pod{}}
	t.Cleanup(func() {
		cancel()
		<-r.ended
	})
	go func() {
		defer close(r.ended)
		for event := range r.stream.ResultChan() {
			r.take(event)
		}
	}()
	return r
}

func (r *reader) take(event watch.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pod, ok := event.Object.(*v1.Pod)
	if !ok {
		r.Errorf("%s of a %T", event.Type, event.Object)
		return
	}
	known := r.pods[pod.Name]
	if known != nil && podRevision(r.T, pod) < podRevision(r.T, known) {
		r.Errorf("%s backwards: %s@%s, then @%s", event.Type, pod.Name, known.ResourceVersion, pod.ResourceVersion)
	}
	switch event.Type {
	case watch.Bookmark:
		return
	case watch.Added, watch.Modified:
		if (event.Type == watch.Modified) != (known != nil) {
			r.Errorf("%s %s, known: %t", event.Type, pod.Name, known != nil)
		}
		r.pods[pod.Name] = pod
	case watch.Deleted:
		if known == nil {
			r.Errorf("%s %s, which is not known", event.Type, pod.Name)
		}
		delete(r.pods, pod.Name)
	}
	r.events = append(r.events, fmt.Sprintf("%s %s", event.Type, pod.Name))
}

// has waits for r, and checks that exactly what the server has there was told, and what came since
// the last call.
func (r *reader) has(ranges hashkey.Ranges, events ...string) {
	r.Helper()
	r.server.touch()
	if err := r.source.WaitFor(r.ctx, ranges); err != nil {
		r.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := difference(r.pods, r.server.content(ranges)); d != "" {
		r.Error(d)
	}
	if fmt.Sprint(r.events) != fmt.Sprint(events) {
		r.Errorf("told %v, want %v", r.events, events)
	}
	r.events = nil
}

func TestStreamNeedsNoStore(t *testing.T) {
	for _, streams := range []bool{false, true} {
		t.Run(fmt.Sprintf("streams=%t", streams), func(t *testing.T) {
			server := newFakeServer(sharding.HashKeyPath)
			server.streams = streams
			for i := range 4 {
				server.write(newPod(sharding.HashKeyPath, fmt.Sprintf("pod-%d", i), i*20), false)
			}
			r := newReader(t, server)
			r.source.SetRanges(percents(0, 50))
			if err := r.source.WaitFor(r.ctx, percents(0, 50)); err != nil {
				t.Fatal(err)
			}
			r.mu.Lock()
			if len(r.events) != 3 {
				t.Errorf("told %v", r.events)
			}
			r.events = nil
			r.mu.Unlock()
			r.source.SetRanges(percents(10, 70))
			r.has(percents(10, 70), "DELETED pod-0", "ADDED pod-3")

			// The server loses its events.
			server.hold()
			server.write(newPod(sharding.HashKeyPath, "pod-1", 20), false)
			server.write(&v1.Pod{ObjectMeta: newPod(sharding.HashKeyPath, "pod-2", 40).ObjectMeta}, true)
			server.forget()
			server.release()
			r.has(percents(10, 70), "MODIFIED pod-1", "DELETED pod-2")

			server.write(newPod(sharding.HashKeyPath, "pod-3", 60), true)
			r.has(percents(10, 70), "DELETED pod-3")
			if held := r.source.Held(); !held.Equal(percents(10, 70)) {
				t.Errorf("held: %s", held)
			}
			r.stream.Stop()
			<-r.ended
			if held := r.source.Held(); !held.Empty() {
				t.Errorf("held after the end: %s", held)
			}
		})
	}
}

func TestSourceFeedsOne(t *testing.T) {
	source, err := NewSource(Config{Field: sharding.HashKeyPath, ListWatch: newFakeServer(sharding.HashKeyPath), Object: &v1.Pod{}})
	if err != nil {
		t.Fatal(err)
	}
	source.Stream(t.Context()).Stop()
	defer func() {
		if recover() == nil {
			t.Error("a Source feeds two")
		}
	}()
	source.Stream(t.Context())
}
