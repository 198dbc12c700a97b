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
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/sharding"
)

// All that a restored server has is older than what the informer has, though its revision is later.
func TestARestoredServerIsBelieved(t *testing.T) {
	for _, streams := range []bool{false, true} {
		t.Run(fmt.Sprintf("streams=%t", streams), func(t *testing.T) {
			h := newHarness(t, sharding.HashKeyPath)
			h.server.streams = streams
			h.put("changed", 10)
			h.put("deleted", 20)
			h.put("same", 30)
			h.put("made anew", 35)
			backup := h.server.backup()
			h.change("changed", 10)
			h.delete("deleted")
			h.put("made", 40)
			h.delete("made anew")
			h.put("made anew", 35) // with another UID
			h.source.SetRanges(percents(0, 50))
			h.settled(percents(0, 50))
			s := newSlowHandler(h)
			s.filter.Open(percents(0, 50))
			s.handles(4)
			h.restore(backup)
			h.settled(percents(0, 50))
			s.tells(5, "add deleted", "delete made", "update changed", "update made anew", "update same")
			s.end(45)
		})
	}
}

// What comes late of before the opening is no news, though much was restored after it.
func TestWhatWasRestoredIsToldOnce(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
	s := newSlowHandler(h)
	h.put("old", 10)
	h.put("deleted", 20)
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))
	backup := h.server.backup()
	h.delete("deleted")
	h.settled(percents(0, 50))
	s.filter.Open(percents(0, 50))
	h.restore(backup)
	h.settled(percents(0, 50))
	s.tells(5, "add deleted", "update old")
	s.end(45)
}

// A list that grows from nothing has what a restored server has, too: nothing was watched beside
// it.
func TestAGrowthThatWasGivenUpIsNotNewerThanARestoredServer(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
	h.put("pod", 10)
	backup := h.server.backup()
	h.change("pod", 10)
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))
	h.source.SetRanges(hashkey.NewRanges())
	h.restore(backup)
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))
}

// Nothing would tell it on a watch: the server is at an earlier revision than that begins at.
func TestAServerThatIsRewoundIsNoticed(t *testing.T) {
	for name, wait := range map[string]bool{"by the watch": false, "by who waits": true} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, sharding.HashKeyPath)
			h.put("pod", 10)
			backup, revision := h.server.backup(), h.server.current()
			h.put("made", 20)
			h.source.SetRanges(percents(0, 50))
			h.settled(percents(0, 50))
			for range 5 {
				h.server.touch()
			}
			h.record.goesBack()
			h.server.rewind(backup, revision)
			if wait {
				ctx, cancel := context.WithCancel(h.ctx)
				defer cancel()
				go h.source.WaitFor(ctx, percents(0, 50))
			}
			h.eventually("it is noticed", func() bool { return h.source.Diverged() != "" })
			if held := h.source.Held(); !held.Empty() {
				t.Errorf("held: %s", held)
			}
			select {
			case <-h.source.HeldChanged():
			default:
				t.Error("nobody is told")
			}
			// Once the server has come further than before, all is listed anew.
			for range 10 {
				h.server.touch()
			}
			h.settled(percents(0, 50))
			h.eventually("all is held", func() bool { return h.source.Held().Equal(percents(0, 50)) })
		})
	}
}

// restore has the server go back to a backup.
func (h *harness) restore(backup map[string]*v1.Pod) {
	h.record.goesBack()
	h.server.restore(backup)
}

// goesBack allows that objects become older.
func (r *record) goesBack() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.restored = true
}

// tells lets the handler take n events, and checks what it is told, in any order.
func (s *slowHandler) tells(n int, want ...string) {
	s.Helper()
	if got := slices.Sorted(slices.Values(s.hears(n, len(want)))); !slices.Equal(got, want) {
		s.Errorf("told %v, want %v", got, want)
	}
}
