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
	"math/rand"
	"strconv"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/client-go/tools/cache"
)

// The store never claims more than it has, WaitFor is exact, handlers get events that fit each
// other (record checks that), and at quiet points the store equals the server's content in the
// ranges.
func TestClaimsHoldWhateverHappens(t *testing.T) {
	const seeds, rounds, steps = 8, 10, 25
	for seed := range int64(seeds) {
		for _, field := range []string{sharding.HashKeyPath, sharding.ControllerHashKeyPath} {
			for variant := range 4 {
				old, streams := variant&1 != 0, variant&2 != 0
				t.Run(fmt.Sprintf("%d/%s/old=%t/streams=%t", seed, field, old, streams), func(t *testing.T) {
					t.Parallel()
					server := newFakeServer(field)
					server.old, server.streams, server.impatient = old, streams, seed%2 == 0
					r := &random{Rand: rand.New(rand.NewSource(seed)), harness: newHarnessFor(t, server, cache.Indexers{})}
					r.expiries = 6
					if !cache.WaitFor(r.ctx, "sync", r.informer.HasSyncedChecker()) {
						t.Fatal("not synced")
					}
					for range rounds {
						r.round(steps)
					}
				})
			}
		}
	}
}

type random struct {
	*rand.Rand
	*harness
	want hashkey.Ranges
	// expiries is how often the server may still forget its events. It is limited because the
	// reflector's back-off doubles with each.
	expiries int
	// claimed is the last resource version that the store had.
	claimed uint64
}

// round takes random steps while a goroutine writes, and ends with a quiet point.
func (r *random) round(steps int) {
	r.Helper()
	seed := r.Int63()
	writer := &random{Rand: rand.New(rand.NewSource(seed)), harness: r.harness}
	pager := &random{Rand: rand.New(rand.NewSource(seed + 1)), harness: r.harness}
	// Pods are also written between the pages of lists.
	var paging sync.Mutex
	over := false
	r.server.setOnPage(func(context.Context, int) {
		paging.Lock()
		defer paging.Unlock()
		for range pager.Intn(3) {
			if !over {
				pager.write()
			}
		}
		pager.pause()
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range steps * 4 {
			writer.write()
			writer.pause()
		}
	}()
	for range steps {
		r.step()
		r.pause()
		claimed := r.informer.GetStore().LastStoreSyncResourceVersion()
		r.checkClaims(r.source.Held(), claimed)
		if revision, err := parseRevision(claimed); err != nil || revision < r.claimed {
			r.Errorf("the store went from @%d to @%s: %v", r.claimed, claimed, err)
		} else {
			r.claimed = revision
		}
	}
	<-done
	paging.Lock()
	over = true
	paging.Unlock()
	r.server.setFailing(0, 0)
	r.server.release()
	r.settled(r.want)
}

// pause gives the other goroutines a random time to run.
func (r *random) pause() { time.Sleep(time.Duration(r.Intn(300)) * time.Microsecond) }

func (r *random) step() {
	r.Helper()
	switch n := r.Intn(100); {
	case n < 35:
		r.want = r.ranges()
		r.source.SetRanges(r.want)
	case n < 45:
		r.server.release()
		r.eventually("held", func() bool { return r.source.Held().Equal(r.want) })
	case n < 65:
		r.server.release()
		// Some of these calls come while the question of others is under way.
		var wg sync.WaitGroup
		for range 1 + r.Intn(3) {
			waiter := &random{Rand: rand.New(rand.NewSource(r.Int63())), harness: r.harness}
			ranges := r.want
			if r.Intn(2) == 0 {
				ranges = ranges.Intersect(r.ranges())
			}
			wg.Go(func() {
				waiter.pause()
				waiter.write()
				revision := r.server.current()
				if err := r.source.WaitFor(r.ctx, ranges); err != nil {
					r.Error(err)
				}
				waiter.checkClaims(ranges, strconv.FormatUint(revision, 10))
			})
		}
		wg.Wait()
	case n < 75:
		r.server.cutWatches()
	case n < 82:
		r.server.hold()
	case n < 89:
		r.server.release()
	case n < 94:
		r.server.bookmark()
	case n < 98:
		r.server.setFailing(r.Intn(2), r.Intn(2))
	case r.expiries > 0:
		r.expiries--
		r.server.forget()
	}
}

// ranges returns none, one or two random ranges.
func (r *random) ranges() hashkey.Ranges {
	var ranges hashkey.Ranges
	for range []int{0, 1, 1, 1, 2}[r.Intn(5)] {
		start := r.Intn(100)
		ranges = ranges.Union(percents(start, start+1+r.Intn(100-start)))
	}
	return ranges
}

// write creates, changes or deletes a random one of 60 pods.
func (r *random) write() uint64 {
	name := fmt.Sprintf("pod-%02d", r.Intn(60))
	pod, exists := r.server.content(hashkey.All())[name]
	switch {
	case !exists:
		percent := r.Intn(100)
		if r.server.field == sharding.ControllerHashKeyPath && percent < 10 {
			percent = -1
		}
		return r.put(name, percent)
	case r.Intn(3) == 0:
		return r.delete(pod.Name)
	case r.server.field == sharding.HashKeyPath:
		return r.server.write(pod, false)
	}
	pod = pod.DeepCopy()
	if r.Intn(2) == 0 {
		setPercent(r.server.field, pod, r.Intn(105)-5)
	}
	return r.server.write(pod, false)
}

// checkClaims checks the claim that the store has ranges as of revision. It looks at the objects
// that have not changed since.
func (r *random) checkClaims(ranges hashkey.Ranges, revision string) {
	r.Helper()
	as, err := parseRevision(revision)
	if err != nil {
		r.Error(err)
		return
	}
	stored := r.stored(hashkey.All())
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	last := map[string]change{}
	for _, c := range r.server.history {
		switch {
		case c.after != nil:
			last[c.after.Name] = c
		case c.before != nil:
			last[c.before.Name] = c
		}
	}
	for name, c := range last {
		if c.revision > as {
			continue
		}
		var want *v1.Pod
		if r.server.matches(c.after, ranges) {
			want = c.after
		}
		got := stored[name]
		switch {
		case want != nil && got == nil:
			r.Errorf("%s@%s is missing, claimed: %s at %s", name, want.ResourceVersion, ranges, revision)
		case want != nil && got.ResourceVersion != want.ResourceVersion:
			r.Errorf("%s@%s instead of @%s, claimed: %s at %s", name, got.ResourceVersion, want.ResourceVersion, ranges, revision)
		case want == nil && r.server.matches(got, ranges):
			r.Errorf("%s@%s is still there, claimed: %s at %s", name, got.ResourceVersion, ranges, revision)
		}
	}
}
