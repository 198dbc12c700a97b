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
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/sharding"
)

func TestShrinkingDeletesWhatLeavesInItsLastState(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
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
		if r.watch && r.selector != percents(0, 40).Selector(sharding.HashKeyPath) {
			t.Errorf("then watched: %s", r.selector)
		}
		if !r.watch && r.selector != percents(0, 40).Selector(sharding.HashKeyPath) {
			t.Errorf("listed: %s", r.selector)
		}
	}
	h.record.mu.Lock()
	defer h.record.mu.Unlock()
	deleted := h.record.deleted["pod-45"]
	if deleted.UID != last.UID || deleted == last || deleted.ManagedFields != nil {
		t.Errorf("deleted as %v, last known as %v", deleted, last)
	}
	if podRevision(t, deleted) <= podRevision(t, last) {
		t.Errorf("deleted at %s, last changed at %s", deleted.ResourceVersion, last.ResourceVersion)
	}
}

func TestStoreFollowsEveryChangeOfRanges(t *testing.T) {
	for _, field := range []string{sharding.HashKeyPath, sharding.ControllerHashKeyPath} {
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

// They stay as long as any range is held. An object that gets or loses its controller may leave or
// enter.
func TestObjectsWithoutControllerAreInEveryRange(t *testing.T) {
	h := newHarness(t, sharding.ControllerHashKeyPath)
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

func TestRecreatedObjectIsDeletedThenAdded(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
	h.put("x", 10)
	h.put("y", 60)
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))
	h.record.taken()

	// Within the range, out of it and into it: the new object has a key of its own.
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

	// The old object is in what is followed, the new one in what is listed.
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

func TestHeldChangedSignalsEachChange(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
	for _, r := range []hashkey.Ranges{percents(0, 50), percents(0, 80), percents(40, 60), nil} {
		h.source.SetRanges(r)
		for !h.source.Held().Equal(r) {
			select {
			case <-h.source.HeldChanged():
			case <-h.ctx.Done():
				t.Fatalf("held: %s, want %s, and HeldChanged had no token", h.source.Held(), r)
			}
		}
		select { // the loop above may not have had to wait for the token
		case <-h.source.HeldChanged():
		default:
		}
	}
}

// A change takes no longer than its requests.
func TestChangesDoNotMeetTheReflectorBackoff(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
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
	// The back-off doubles with each step: half of 40 would already take more than this.
	if took := time.Since(start); took > 40*800*time.Millisecond/2 {
		t.Errorf("40 changes took %v", took)
	}
}

// A server takes no more than 128 ranges in a selector.
func TestAnyNumberOfRangesCanBeFollowed(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
	for i := range 100 {
		h.put(fmt.Sprintf("pod-%02d", i), i)
	}
	var r []hashkey.Range
	for i := range uint64(400) {
		width := hashkey.Limit / 400
		r = append(r, hashkey.Range{Start: i * width, End: i*width + width/2})
	}
	h.source.SetRanges(r)
	h.settled(r)
	half := hashkey.NewRanges(r[:200]...)
	h.source.SetRanges(half)
	h.settled(half)
	// They may touch, overlap and be in any order.
	h.source.SetRanges(hashkey.Ranges{percents(40, 60)[0], percents(20, 45)[0], percents(60, 70)[0]})
	h.settled(percents(20, 70))
	if held := h.source.Held(); !held.Equal(percents(20, 70)) {
		t.Errorf("held: %s", held)
	}
	for _, r := range h.server.taken() {
		if r.selector == "" {
			t.Error("asked for everything")
		}
	}
}
