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
	"testing"

	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/client-go/tools/cache"
)

// A server that has sharded lists but does not know the path of our keys answers with an internal
// error. It is upgraded later.
func TestServerThatRefusesTheSelectorIsFilteredUntilItTakesIt(t *testing.T) {
	for _, streams := range []bool{false, true} {
		t.Run(fmt.Sprintf("streams=%t", streams), func(t *testing.T) {
			server := newFakeServer(sharding.HashKeyPath)
			server.old, server.refuses, server.streams = true, true, streams
			h := newHarnessFor(t, server, cache.Indexers{})
			for i := range 40 {
				h.put(fmt.Sprintf("pod-%02d", i), i*2)
			}
			h.source.SetRanges(percents(0, 50))
			h.settled(percents(0, 50))
			h.source.SetRanges(percents(10, 70))
			h.settled(percents(10, 70))
			h.server.has(func() bool { server.old, server.refuses = false, false; return true })
			h.requests()
			h.server.cutWatches()
			h.settled(percents(10, 70))
			selects := func() bool {
				n := len(server.requests)
				return n > 0 && server.requests[n-1].watch && server.requests[n-1].selector != ""
			}
			h.eventually("a watch with a selector", func() bool { return h.server.has(selects) })
		})
	}
}

// Nor is a question refused with an internal error: WaitFor would take a minute then.
func TestInternalErrorsThatPassAreNoRefusal(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
	h.put("a", 10)
	h.server.setFailing(5, 3)
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))
	for _, r := range h.server.taken() {
		if r.selector == "" {
			t.Errorf("asked for everything: %+v", r)
		}
	}
}

// Nothing is left of what was opened for calls of WaitFor.
func TestEachRequestEndsWithItsContext(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
	h.put("a", 10)
	open := make(chan context.Context, 1000)
	h.source.listWatch = cache.ToListerWatcherWithContext(interceptedServer{fakeServer: h.server, opening: func(ctx context.Context) { open <- ctx }})
	h.source.SetRanges(percents(0, 50))
	for range 50 {
		if err := h.source.WaitFor(h.ctx, percents(0, 50)); err != nil {
			t.Fatal(err)
		}
	}
	h.settled(percents(0, 50))
	n := len(open)
	if n < 50 {
		t.Errorf("%d watches for 50 calls", n)
	}
	for range n - 1 {
		select {
		case <-(<-open).Done():
		case <-h.ctx.Done():
			t.Fatal("the context of a watch that was replaced is alive")
		}
	}
}
