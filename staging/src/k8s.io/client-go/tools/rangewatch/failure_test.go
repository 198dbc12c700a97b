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
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

func TestWatchThatEndsIsResumedWhereItWas(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
	h.put("a", 10)
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))
	h.record.taken()
	h.requests()
	h.server.hold()
	b := h.put("b", 20)
	c := h.put("c", 30)
	d := h.delete("c")
	h.server.cutWatches()
	h.server.release()
	h.wantEvents(at("add", "b", b), at("add", "c", c), at("delete", "c", d))
}

// A server may end watches with a temporary error.
func TestWatchThatFailsIsResumedWithoutAList(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
	h.put("a", 10)
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))
	h.requests()
	status := apierrors.NewTooManyRequests("busy", 1).Status()
	var once sync.Once
	h.source.listWatch = cache.ToListerWatcherWithContext(interceptedServer{fakeServer: h.server, replace: func(w watch.Interface) watch.Interface {
		once.Do(func() {
			w.Stop()
			failing := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 1})
			failing.Error(&status)
			w = failing
		})
		return w
	}})
	h.server.cutWatches()
	h.put("b", 20)
	h.settled(percents(0, 50))
	if lists, _, _ := h.requests(); lists > 0 {
		t.Errorf("%d lists", lists)
	}
}

func TestFailedRequestsAreRetriedWhileRangesStayHeld(t *testing.T) {
	h := newHarness(t, sharding.HashKeyPath)
	for i := range 100 {
		h.put(fmt.Sprintf("pod-%02d", i), i)
	}
	h.source.SetRanges(percents(0, 50))
	h.settled(percents(0, 50))

	const many = 1000000
	h.server.setFailing(many, 1)
	h.source.SetRanges(percents(0, 70))
	h.eventually("a failing list", func() bool {
		return h.server.has(func() bool { return h.server.failLists < many })
	})
	if held := h.source.Held(); !held.Equal(percents(0, 50)) {
		t.Errorf("held after a failing list: %s", held)
	}
	revision := h.change("pod-00", 0)
	h.eventually("followed all the same", func() bool {
		return h.stored(percents(0, 1))["pod-00"].ResourceVersion == strconv.FormatUint(revision, 10)
	})
	h.server.setFailing(0, 1)
	h.settled(percents(0, 70))
	if h.server.has(func() bool { return h.server.failWatches != 0 }) {
		t.Error("no watch failed")
	}

	// The second page of a list.
	var once sync.Once
	h.server.setOnPage(func(_ context.Context, page int) {
		if page == 1 {
			once.Do(func() {
				h.delete("pod-71")
				h.server.setFailing(1, 0)
			})
		}
	})
	h.source.SetRanges(percents(0, 100))
	h.eventually("growth", func() bool { return h.source.Held().Equal(percents(0, 100)) })
	h.settled(percents(0, 100))
}

// What has failed for long may be far from its next attempt. A server that answers again is known
// by who begins to wait: it has just registered.
func TestWhoBeginsToWaitHasRequestsThatFailedTriedAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRequests(&Source{backoff: backoff})
		for range 8 {
			r.watchRetry.schedule()
		}
		if left := time.Until(r.watchRetry.due); left < 10*time.Second {
			t.Fatalf("the next attempt is after %v, want long", left)
		}
		r.hurry()
		if left := time.Until(r.watchRetry.due); left > 2*backoff.Duration {
			t.Errorf("the next attempt is after %v", left)
		}
		due := r.watchRetry.due
		time.Sleep(time.Millisecond)
		if r.hurry(); r.watchRetry.due.After(due) {
			t.Error("who waits again puts it off")
		}
		if r.listRetry.timer != nil {
			t.Error("nothing had failed, and is tried again")
		}
	})
}
