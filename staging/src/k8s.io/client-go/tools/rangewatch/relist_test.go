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

	"k8s.io/apimachinery/pkg/sharding"
)

// The server no longer has the events that the watch needs.
func TestRangesStayHeldUntilAnExpiredWatchIsRelisted(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
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

// It does not transform them again, because readers have them, and it replaces everything in one
// step.
func TestRelistKeepsUnchangedObjects(t *testing.T) {
	for _, streams := range []bool{false, true} {
		t.Run(fmt.Sprintf("streams=%t", streams), func(t *testing.T) {
			h := newHarness(t, sharding.HashKeyPath)
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

// No object is in memory twice, and at every moment the store is complete as of the moment before
// the relist or later: it has all objects that it had, and no others, until the end.
func TestRelistUpdatesInPlace(t *testing.T) {
	for _, streams := range []bool{false, true} {
		t.Run(fmt.Sprintf("streams=%t", streams), func(t *testing.T) {
			h := newHarness(t, sharding.HashKeyPath)
			h.server.streams = streams
			for i := range 40 {
				h.put(fmt.Sprintf("pod-%02d", i), i)
			}
			r := percents(0, 80)
			h.source.SetRanges(r)
			h.settled(r)
			before := h.stored(r)

			var claimed string
			pages := 0
			h.server.setOnPage(func(context.Context, int) {
				if pages++; pages == 1 {
					claimed = h.informer.GetStore().LastStoreSyncResourceVersion()
				}
				if pages < 4 {
					return
				}
				h.server.setOnPage(nil)
				h.eventually("the first objects", func() bool {
					stored := h.stored(r)
					return stored["pod-00"].ResourceVersion != before["pod-00"].ResourceVersion || streams && difference(stored, before) != ""
				})
				stored := h.stored(r)
				if len(stored) != len(before) {
					t.Errorf("%d objects during a relist, want %d", len(stored), len(before))
				}
				for name := range before {
					if stored[name] == nil {
						t.Errorf("%s is missing during a relist", name)
					}
				}
				if now := h.informer.GetStore().LastStoreSyncResourceVersion(); now != claimed {
					t.Errorf("the store claims @%s during a relist from @%s", now, claimed)
				}
				if held := h.source.Held(); !held.Equal(r) {
					t.Errorf("%s is held during a relist, want %s", held, r)
				}
			})
			h.server.hold()
			for i := range 40 {
				h.change(fmt.Sprintf("pod-%02d", i), i)
			}
			h.delete("pod-02")
			h.put("pod-50", 50)
			h.server.forget()
			h.server.release()
			h.settled(r)
			if pages < 4 {
				t.Errorf("%d pages", pages)
			}
		})
	}
}

// The handler is told what has changed, and nothing else.
func TestRelistThatOnlyUpdatesReportsOnlyChanges(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
	for i := range 40 {
		h.put(fmt.Sprintf("pod-%02d", i), i)
	}
	r := percents(0, 80)
	h.source.SetRanges(r)
	h.settled(r)
	h.record.taken()
	h.server.hold()
	revision := h.change("pod-01", 1)
	h.server.forget()
	h.server.release()
	h.settled(r)
	h.wantEvents(at("update", "pod-01", revision))
	// Whoever has heard of the change, and waits for its revision, is told when it has come.
	h.eventually("the store to catch up", func() bool {
		h.record.mu.Lock()
		defer h.record.mu.Unlock()
		return h.record.lagged == 1 && !h.record.lags
	})
}

// The server no longer has the events from the base of the growth on.
func TestGrowthWhoseWatchHasExpiredIsRelisted(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
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
