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
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/client-go/tools/cache"
)

// slowHandler is an event handler behind a filter. It can be stopped.
type slowHandler struct {
	*harness
	filter *Filter
	// goOn lets an event pass.
	goOn chan struct{}
	told chan string
}

func newSlowHandler(h *harness) *slowHandler {
	h.Helper()
	s := &slowHandler{harness: h, filter: h.source.NewFilter(), goOn: make(chan struct{}), told: make(chan string, 1000)}
	tell := func(event string, obj any) {
		if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj
		}
		s.told <- event + " " + obj.(*v1.Pod).Name
	}
	behind := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { tell("add", obj) },
		UpdateFunc: func(_, obj any) { tell("update", obj) },
		DeleteFunc: func(obj any) { tell("delete", obj) },
	}
	if _, err := s.filter.Informer(delayed{h.informer, s}).AddEventHandler(behind); err != nil {
		h.Fatal(err)
	}
	return s
}

// delayed is an informer whose handlers go on when their slowHandler lets them.
type delayed struct {
	cache.SharedIndexInformer
	*slowHandler
}

func (d delayed) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	wait := func() {
		select {
		case <-d.goOn:
		case <-d.ctx.Done():
		}
	}
	return d.SharedIndexInformer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(obj any, initial bool) { wait(); h.OnAdd(obj, initial) },
		UpdateFunc: func(old, obj any) { wait(); h.OnUpdate(old, obj) },
		DeleteFunc: func(obj any) { wait(); h.OnDelete(obj) },
	})
}

// handles lets the handler take n events, and checks what it is told.
func (s *slowHandler) handles(n int, want ...string) {
	s.Helper()
	if got := s.hears(n, len(want)); !slices.Equal(got, want) {
		s.Errorf("told %v, want %v", got, want)
	}
}

// hears lets the handler take n events, and returns what it is told, so much.
func (s *slowHandler) hears(n, told int) []string {
	s.Helper()
	for range n {
		select {
		case s.goOn <- struct{}{}:
		case <-s.ctx.Done():
			s.Fatal("the handler does not take an event")
		}
	}
	// What was told before the last event is there. That one may be on its way.
	var got []string
	for len(got) < told {
		select {
		case event := <-s.told:
			got = append(got, event)
		case <-s.ctx.Done():
			s.Fatalf("told %v, want %d events", got, told)
		}
	}
	return got
}

// end checks that the handler is told nothing but of a pod that is made for this check.
func (s *slowHandler) end(percent int) {
	s.Helper()
	s.put("end", percent)
	s.handles(1, "add end")
}

func TestFilterDropsWhatWasAddedBeforeTheOpening(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
	s := newSlowHandler(h)
	h.put("old", 10)
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))
	h.put("between", 15)
	h.settled(percents(0, 50))
	s.filter.Open(percents(0, 50))
	h.put("new", 20)
	h.change("old", 10)
	h.settled(percents(0, 50))
	s.handles(4, "add new", "update old")

	// A gate that opens again although nothing was released goes on where it was.
	h.put("while it was shut", 25)
	h.settled(percents(0, 50))
	s.filter.Open(percents(0, 50))
	s.handles(1, "add while it was shut")

	h.put("before the next", 25)
	h.settled(percents(0, 50))
	s.filter.Shut(percents(0, 50))
	s.filter.Open(percents(0, 50))
	s.handles(1)
	s.end(30)
}

// A late MODIFIED or DELETED would lower the expectations of what the controller has deleted since,
// as a late ADDED would those of what it has created.
func TestFilterDropsWhatWasModifiedOrDeletedBeforeTheOpening(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
	s := newSlowHandler(h)
	all := percents(0, 50)
	h.put("a", 10)
	h.put("b", 20)
	h.source.SetRanges(all)
	h.settled(all)
	h.change("a", 10)
	h.delete("b")
	h.settled(all)
	s.filter.Open(all)
	h.change("a", 10)
	h.settled(all)
	h.delete("a")
	h.settled(all)
	s.handles(6, "update a", "delete a")

	// One that is gone from a list that the handler hears of late may have gone at any time.
	h.put("c", 30)
	h.settled(all)
	s.handles(1, "add c")
	h.server.hold()
	h.delete("c")
	h.server.forget()
	h.server.release()
	h.settled(all)
	s.filter.Shut(all)
	s.filter.Open(all)
	s.handles(1, "delete c")
	s.end(5)
}

func TestFilterDropsWhatIsNotOpen(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
	s := newSlowHandler(h)
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))
	s.filter.Open(percents(0, 20))
	h.put("open", 10)
	h.put("shut", 30)
	h.change("shut", 30)
	h.delete("shut")
	h.settled(percents(0, 50))
	s.handles(4, "add open", "delete shut")
	s.filter.Shut(percents(0, 15))
	h.change("open", 10)
	h.settled(percents(0, 50))
	s.handles(1)
	s.end(17)
}

func TestFilterTellsOfDeletionsAlone(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
	s := newSlowHandler(h)
	for i := range 5 {
		h.put(fmt.Sprintf("pod-%d", i), 10*i)
	}
	all := percents(0, 50)
	h.source.SetRanges(all)
	h.settled(all)
	s.filter.Open(all)
	s.handles(5)

	// It leaves, and another is deleted.
	h.source.SetRanges(percents(0, 40))
	h.settled(percents(0, 40))
	h.delete("pod-1")
	h.settled(percents(0, 40))
	s.handles(2, "delete pod-1")

	// It leaves and returns before the handler comes to that.
	h.source.SetRanges(percents(0, 30))
	h.settled(percents(0, 30))
	h.source.SetRanges(percents(0, 40))
	h.settled(percents(0, 40))
	s.filter.Open(percents(30, 40))
	s.handles(2)

	h.delete("pod-3")
	h.settled(percents(0, 40))
	s.handles(1, "delete pod-3")

	// It is deleted while there is no watch.
	h.server.hold()
	h.delete("pod-2")
	h.server.forget()
	h.server.release()
	h.settled(percents(0, 40))
	s.handles(2, "delete pod-2", "update pod-0")
	s.end(5)
}

// Ranges that are not wanted are not open when they return.
func TestRangesThatLeaveAreShut(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
	s := newSlowHandler(h)
	h.put("a", 10)
	h.put("b", 40)
	all := percents(0, 50)
	h.source.SetRanges(all)
	h.settled(all)
	s.filter.Open(all)
	h.source.SetRanges(percents(0, 20))
	h.source.SetRanges(all)
	h.put("c", 30)
	h.settled(all)
	h.put("d", 10)
	h.settled(all)
	for {
		// How often b left and came back is a matter of time.
		select {
		case s.goOn <- struct{}{}:
		case event := <-s.told:
			if event != "add d" {
				t.Errorf("told: %s", event)
			}
			return
		case <-h.ctx.Done():
			t.Fatal("not told of d")
		}
	}
}
