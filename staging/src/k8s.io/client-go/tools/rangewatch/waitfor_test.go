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
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// A quiet collection brings no events that would show its progress.
func TestWaitForOpensOneWatchAndListsNothing(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
	for i := range 30 {
		h.put(fmt.Sprintf("pod-%02d", i), i*3)
	}
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))
	h.requests()
	for range 3 {
		h.waitFor(percents(10, 20))
		if lists, _, watches := h.requests(); lists != 0 || watches != 1 {
			t.Errorf("%d lists, %d watches, want 0 and 1", lists, watches)
		}
	}
}

// What the server says to a question that was under way may be older than the call.
func TestWaitersShareTheNextQuestionNotTheOneUnderWay(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
	h.put("before", 10)
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))
	h.requests()
	answer := make(chan struct{})
	h.source.listWatch = cache.ToListerWatcherWithContext(interceptedServer{fakeServer: h.server, replace: func(w watch.Interface) watch.Interface {
		return watch.Filter(w, func(event watch.Event) (watch.Event, bool) {
			<-answer
			return event, true
		})
	}})
	first := make(chan error, 1)
	go func() { first <- h.source.WaitFor(h.ctx, percents(0, 50)) }()
	h.eventually("the first question", func() bool { return h.server.has(h.server.replaced) })
	h.server.hold()
	h.put("written", 20)
	h.delete("before")
	const sharing = 10
	later := make(chan error, sharing)
	for range sharing {
		go func() {
			err := h.source.WaitFor(h.ctx, percents(0, 50))
			if d := difference(h.stored(percents(0, 50)), h.server.content(percents(0, 50))); err == nil && d != "" {
				err = errors.New(d)
			}
			later <- err
		}()
	}
	h.eventually("all waiters", func() bool { return waiting(h.source) == 1+sharing })
	close(answer)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	h.server.release()
	for range sharing {
		if err := <-later; err != nil {
			t.Error(err)
		}
	}
	if lists, _, watches := h.requests(); lists != 0 || watches != 2 {
		t.Errorf("%d lists, %d watches, want 0 and 2", lists, watches)
	}
}

func TestWaitForReturnsOnlyAfterTheLastEvent(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
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
	h.delete("deleted")
	waited := make(chan error, 1)
	go func() {
		err := h.source.WaitFor(h.ctx, percents(0, 50))
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
	server := newFakeServer(sharding.HashKeyPath)
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

// A list that was under way may be older than the call.
func TestWaitForAsksAfterAListThatWasUnderWay(t *testing.T) {
	server := newFakeServer(sharding.HashKeyPath)
	server.write(newPod(sharding.HashKeyPath, "deleted", 10), false)
	listed, answer := make(chan struct{}), make(chan struct{})
	source, err := NewSource(Config{Field: sharding.HashKeyPath, Object: &v1.Pod{}, ListWatch: interceptedServer{fakeServer: server, listed: func() {
		close(listed)
		<-answer
	}}})
	if err != nil {
		t.Fatal(err)
	}
	source.overdue = patience
	source.SetRanges(percents(0, 50))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	informer := source.NewInformer(cache.SharedIndexInformerOptions{})
	go informer.RunWithContext(ctx)
	<-listed
	server.hold()
	server.write(newPod(sharding.HashKeyPath, "written", 20), false)
	server.write(newPod(sharding.HashKeyPath, "deleted", 10), true)
	waited := make(chan error, 1)
	go func() { waited <- source.WaitFor(ctx, percents(0, 50)) }()
	until := func(condition func() bool) {
		t.Helper()
		if err := wait.PollUntilContextCancel(ctx, time.Millisecond, true, func(context.Context) (bool, error) { return condition(), nil }); err != nil {
			t.Fatal(err)
		}
	}
	until(func() bool { return waiting(source) == 1 })
	close(answer)
	until(func() bool { return source.Held().Equal(percents(0, 50)) })
	if waiting(source) == 0 {
		t.Error("the list satisfied a call that came after it")
	}
	server.release()
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	if keys := informer.GetStore().ListKeys(); fmt.Sprint(keys) != "[written]" {
		t.Errorf("the store has %v", keys)
	}
}

// waiting returns the number of calls of WaitFor that have not been satisfied.
func waiting(s *Source) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}

// One server refuses a question, the other ignores it. Nothing comes of their watches: no event,
// and no bookmark.
func TestWhatAServerDoesNotAnswerIsListed(t *testing.T) {
	for _, ignores := range []bool{false, true} {
		t.Run(fmt.Sprintf("ignores=%t", ignores), func(t *testing.T) {
			server := newFakeServer(sharding.HashKeyPath)
			server.old, server.streams = true, ignores
			h := newHarnessFor(t, server, cache.Indexers{})
			h.put("before", 10)
			h.source.SetRanges(percents(0, 50))
			h.settled(percents(0, 50))
			h.server.hold()
			h.delete("before")
			h.put("written", 20)
			h.put("beside", 70)
			h.server.setFailing(2, 0)
			h.settled(percents(0, 50))
			h.source.SetRanges(percents(0, 80))
			h.eventually("the growth", func() bool { return h.source.Held().Equal(percents(0, 80)) })
			h.settled(percents(0, 80))
		})
	}
}

// Each of these does not come while something else goes wrong, and people are told.
func TestASourceSaysWhatItWaitsFor(t *testing.T) {
	server := newFakeServer(sharding.HashKeyPath)
	server.impatient = true
	h := newHarnessFor(t, server, cache.Indexers{})
	says := func(what string) {
		t.Helper()
		h.eventually(what, func() bool { return strings.Contains(h.source.Waits(), what) })
	}
	h.put("a", 10)
	h.server.setFailing(math.MaxInt, math.MaxInt)
	h.source.SetRanges(percents(0, 50))
	says("a list, since 20")
	says("the last failure: ")
	says("lists fail")
	h.server.setFailing(0, math.MaxInt)
	says("a watch, since 20")
	says("watches fail")
	h.server.setFailing(0, 0)
	h.settled(percents(0, 50))
	h.eventually("silence", func() bool { return h.source.Waits() == "" })
}

// Each of these loses the question, and with it the answer.
func TestWaitForAsksAgainWhenItsQuestionIsLost(t *testing.T) {
	for name, lose := range map[string]func(h *harness){
		"cut":           func(h *harness) { h.server.cutWatches() },
		"failing":       func(h *harness) { h.server.setFailing(0, 2); h.server.cutWatches() },
		"expired":       func(h *harness) { h.server.forget() },
		"ranges shrink": func(h *harness) { h.source.SetRanges(percents(0, 40)) },
		"ranges grow":   func(h *harness) { h.source.SetRanges(percents(0, 80)) },
		"ranges leave and return": func(h *harness) {
			h.source.SetRanges(nil)
			h.eventually("nothing left", func() bool { return len(h.informer.GetStore().ListKeys()) == 0 })
			h.source.SetRanges(percents(0, 50))
		},
	} {
		for _, streams := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/streams=%t", name, streams), func(t *testing.T) {
				h := newHarness(t, sharding.HashKeyPath)
				h.server.streams = streams
				h.put("deleted", 10)
				h.put("changed", 20)
				h.source.SetRanges(percents(0, 50))
				h.settled(percents(0, 50))
				h.requests()
				h.server.hold()
				h.put("written", 30)
				h.change("changed", 20)
				h.delete("deleted")
				waited := make(chan error, 1)
				go func() {
					err := h.source.WaitFor(h.ctx, percents(0, 40))
					if d := difference(h.stored(percents(0, 40)), h.server.content(percents(0, 40))); err == nil && d != "" {
						err = errors.New(d)
					}
					waited <- err
				}()
				h.eventually("the question", func() bool { return h.server.has(h.server.replaced) })
				lose(h)
				h.server.release()
				if err := <-waited; err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

func TestWaitForIsServedByTheFirstListThatBeginsAfterIt(t *testing.T) {
	server := newFakeServer(sharding.HashKeyPath)
	server.write(newPod(sharding.HashKeyPath, "a", 10), false)
	source, err := NewSource(Config{Field: sharding.HashKeyPath, ListWatch: server, Object: &v1.Pod{}})
	if err != nil {
		t.Fatal(err)
	}
	source.overdue = patience
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	waited := make(chan error, 1)
	go func() { waited <- source.WaitFor(ctx, percents(0, 50)) }()
	if err := wait.PollUntilContextCancel(ctx, time.Millisecond, true, func(context.Context) (bool, error) {
		return waiting(source) == 1, nil
	}); err != nil {
		t.Fatal(err)
	}
	informer := source.NewInformer(cache.SharedIndexInformerOptions{})
	go informer.RunWithContext(ctx)
	if !cache.WaitFor(ctx, "sync", informer.HasSyncedChecker()) {
		t.Fatal("not synced")
	}
	source.SetRanges(percents(0, 50))
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	if keys := informer.GetStore().ListKeys(); fmt.Sprint(keys) != "[a]" {
		t.Errorf("the store has %v", keys)
	}
	for _, r := range server.taken() {
		if r.asks {
			t.Error("asked, although the list was younger than the call")
		}
	}
}

func TestWaitForNoRangesReturnsAtOnce(t *testing.T) {
	source, err := NewSource(Config{Field: sharding.HashKeyPath, ListWatch: newFakeServer(sharding.HashKeyPath), Object: &v1.Pod{}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := source.WaitFor(ctx, nil); err != nil {
		t.Error(err)
	}
}

func TestWaitForEndsWithItsContext(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
	ctx, cancel := context.WithCancelCause(h.ctx)
	cancel(errors.New("enough"))
	if err := h.source.WaitFor(ctx, percents(0, 10)); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("canceled: %v", err)
	}
	if waiting(h.source) != 0 {
		t.Error("a waiter was left")
	}
}
