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
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// The old part is followed meanwhile, and no gap is left between the list and the watch.
func TestGrowthListsOnlyTheNewPartAndMissesNothing(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
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
			// Before the list, which has them.
			h.put("listed", 55)
			h.delete("pod-51")
			h.change("pod-52", 52)
			h.put("brief", 53)
			h.delete("brief")
			return
		}
		h.server.setOnPage(nil)
		// After the revision of the list: only the watch has them.
		h.put("late", 56)
		h.delete("pod-54")
		h.change("pod-55", 55)
		h.delete("listed")
		h.put("again", 57)
		h.delete("again")
		h.put("again", 58)
		// The old part is followed while the new one is listed.
		h.change("pod-00", 0)
		if err := h.source.WaitFor(h.ctx, percents(0, 50)); err != nil {
			t.Error(err)
		}
		during = append(during, h.stored(percents(0, 1))["pod-00"].ResourceVersion)
		// The new watch must not report again what comes and goes in the old part.
		h.put("old-brief", 10)
		h.delete("old-brief")
		if err := h.source.WaitFor(h.ctx, percents(0, 50)); err != nil {
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

func TestGrowthIsHeldOnlyWhenTheNewWatchHasReachedTheList(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
	for i := range 100 {
		h.put(fmt.Sprintf("pod-%02d", i), i)
	}
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))
	h.server.taken()
	release := make(chan struct{})
	h.source.listWatch = cache.ToListerWatcherWithContext(interceptedServer{fakeServer: h.server, replace: func(w watch.Interface) watch.Interface {
		return watch.Filter(w, func(event watch.Event) (watch.Event, bool) {
			<-release
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
	close(release)
	h.eventually("growth", func() bool { return h.source.Held().Equal(percents(0, 70)) })
	h.settled(percents(0, 70))
}

// Nothing else would show that the new watch has reached the list.
func TestGrowthAsksAgainWhenItsWatchEnds(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
	h.put("a", 10)
	h.put("b", 60)
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))
	var once sync.Once
	h.source.listWatch = cache.ToListerWatcherWithContext(interceptedServer{fakeServer: h.server, replace: func(w watch.Interface) watch.Interface {
		once.Do(func() {
			w.Stop()
			w = watch.NewEmptyWatch()
		})
		return w
	}})
	h.server.setOnPage(func(context.Context, int) { h.server.touch() })
	h.source.SetRanges(percents(0, 70))
	h.eventually("growth", func() bool { return h.source.Held().Equal(percents(0, 70)) })
	h.settled(percents(0, 70))
}

// The answer to a list may arrive when the watch has passed its revision.
func TestGrowthMissesNothingWhenTheWatchOvertakesTheList(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
	for i := range 100 {
		h.put(fmt.Sprintf("pod-%02d", i), i)
	}
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))
	var once sync.Once
	h.source.listWatch = cache.ToListerWatcherWithContext(interceptedServer{fakeServer: h.server, listed: func() {
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

// Otherwise the revision of what is held would go back.
func TestGrowthIsHeldOnlyWhenTheNewWatchHasReachedTheOldOne(t *testing.T) {
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
			h := newHarness(t, sharding.ControllerHashKeyPath)
			for i := range 100 {
				h.put(fmt.Sprintf("pod-%02d", i), i)
			}
			h.source.SetRanges(percents(0, 50))
			h.settled(percents(0, 50))
			release := make(chan struct{})
			h.source.listWatch = cache.ToListerWatcherWithContext(interceptedServer{fakeServer: h.server, replace: func(w watch.Interface) watch.Interface {
				return watch.Filter(w, func(event watch.Event) (watch.Event, bool) {
					<-release
					return event, true
				})
			}})
			var reached uint64
			h.server.setOnPage(func(_ context.Context, page int) {
				if page == 0 {
					// The old watch brings this only after the first page, which has it.
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
					return n > 0 && h.server.requests[n-1].selector == percents(0, 70).Selector(sharding.ControllerHashKeyPath)
				})
			})
			// What was held before stays held, as of the revision that it had reached.
			if held := h.source.Held(); !held.Equal(percents(0, 50)) {
				t.Errorf("held too early: %s", held)
			}
			close(release)
			h.settled(percents(0, 70))
		})
	}
}
