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
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2/ktesting"
)

// A quiet collection brings no events that would show its progress.
func TestWaitForAsksForProgressOnlyWhenNeeded(t *testing.T) {
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
	// A bookmark shows the progress as well.
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

func TestWaitForReturnsOnlyAfterTheLastEvent(t *testing.T) {
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

// The store is slow here: it hangs in an index function.
func TestWaitForWaitsForTheStoreNotTheStream(t *testing.T) {
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
	// All of this waits in the informer's queue behind the slow pod.
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

// The server may lag, or the revision may come from another storage. WaitFor must neither return
// nor ask in a busy loop.
func TestWaitForWaitsWhileTheServerIsBehind(t *testing.T) {
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

func TestWaitForRefusesABadRevisionAndEndsWithItsContext(t *testing.T) {
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
