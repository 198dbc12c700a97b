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

package store

import (
	"maps"
	"math"
	"math/rand"
	"slices"
	"strconv"
	"testing"
	"time"
)

// orderView is an order as it was once, with the objects that were present, or had left.
type orderView struct {
	*hashKeyOrder
	present, left map[*indexedObject]int64
}

// check lists a range. It must have every object that was present in it, once each, and
// no object that was added later.
func (v orderView) check(t *testing.T, start, end int64) {
	t.Helper()
	found := map[*indexedObject]bool{}
	for _, o := range v.appendRange(nil, start, end) {
		key, ok := v.present[o]
		if !ok {
			if key, ok = v.left[o]; !ok {
				t.Fatalf("[%d, %d) has an object that was not there yet", start, end)
			}
		}
		if key < start || end >= 0 && key >= end {
			t.Fatalf("[%d, %d) has an object of key %d", start, end, key)
		}
		if found[o] {
			t.Fatalf("[%d, %d) has an object twice", start, end)
		}
		found[o] = true
	}
	for o, key := range v.present {
		if !found[o] && key >= start && (end < 0 || key < end) {
			t.Fatalf("[%d, %d) lacks an object of key %d", start, end, key)
		}
	}
}

func TestHashKeyOrder(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewSource(seed))
	// Many share a key, as the Pods of a ReplicaSet do; some are at the bounds.
	randomKey := func() int64 {
		return []int64{noKey, 0, math.MaxInt64, random.Int63n(50), random.Int63(), random.Int63()}[random.Intn(6)]
	}
	present, passed := map[*indexedObject]int64{}, map[*indexedObject]int64{}
	var objects []*indexedObject
	add := func(order *hashKeyOrder, key int64, name string) {
		o := newIndexedObject(hashKeys{}, &Element{Key: name})
		present[o] = key
		objects = append(objects, o)
		order.add(hashKeyEntry{key, o})
	}
	order := newHashKeyOrder(nil)
	var views []orderView
	for range 30_000 {
		switch {
		case random.Intn(1000) == 0:
			views = append(views, orderView{order.clone(), maps.Clone(present), maps.Clone(passed)})
		// The order grows for a while, then shrinks for a while.
		case len(objects) == 0 || random.Intn(100) < 80-60*((len(views)/8)%2):
			add(order, randomKey(), strconv.Itoa(len(present)+len(passed)))
		default:
			i := random.Intn(len(objects))
			o := objects[i]
			objects = slices.Delete(objects, i, i+1)
			key := present[o]
			passed[o] = key
			delete(present, o)
			o.markGone()
			order.leave()
			if random.Intn(4) == 0 {
				add(order, key, o.latest.Load().Key) // it comes back
			}
		}
		checkShape(t, order, len(present))
	}
	for _, view := range views {
		view.check(t, noKey, -1)
		for range 50 {
			a, b := randomKey(), randomKey()
			view.check(t, min(a, b), max(a, b))
			view.check(t, a, -1)
		}
	}
}

// checkShape checks the bounds on the time of a search, and on the memory held for
// objects that are gone.
func checkShape(t *testing.T, order *hashKeyOrder, present int) {
	t.Helper()
	entries := len(order.tail)
	for i, run := range order.runs {
		entries += len(run)
		if i > 0 && len(order.runs[i-1]) < runGrowth*len(run) {
			t.Fatalf("a run of %d after one of %d", len(run), len(order.runs[i-1]))
		}
	}
	if entries-order.gone != present {
		t.Fatalf("%d entries, of which %d are gone, for %d objects", entries, order.gone, present)
	}
	if order.tooMany(order.gone) || order.tooMany(len(order.tail)) {
		t.Fatalf("%d are gone and %d in the tail, of %d", order.gone, len(order.tail), entries)
	}
}

// The longest write, with the most deferred work to do, while the order grows by a quarter
// and then as many objects leave. docs/design.md has its figures.
func BenchmarkHashKeyOrderLongestWrite(b *testing.B) {
	longest := func(entries []hashKeyEntry, write func(hashKeyEntry)) (most time.Duration) {
		for _, entry := range entries {
			begin := time.Now()
			write(entry)
			most = max(most, time.Since(begin))
		}
		return most
	}
	for _, n := range []int{100_000, 1_000_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			var adding, leaving time.Duration
			for range b.N {
				entries := make([]hashKeyEntry, n+n/4)
				for i := range entries {
					key := rand.Int63()
					entries[i] = hashKeyEntry{key, newIndexedObject(hashKeys{}, &Element{})}
				}
				order := newHashKeyOrder(slices.Clone(entries[:n]))
				adding += longest(entries[n:], order.add)
				rand.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
				leaving += longest(entries[:n/4], func(entry hashKeyEntry) {
					entry.markGone()
					order.leave()
				})
			}
			b.ReportMetric(float64(adding.Milliseconds())/float64(b.N), "add-ms")
			b.ReportMetric(float64(leaving.Milliseconds())/float64(b.N), "leave-ms")
		})
	}
}

// An object that comes and goes between two readers leaves nothing behind.
func TestHashKeyOrderForgetsWhatCameAndWent(t *testing.T) {
	order := newHashKeyOrder([]hashKeyEntry{{1, &indexedObject{}}, {3, &indexedObject{}}})
	passing := &indexedObject{}
	order.add(hashKeyEntry{2, passing})
	passing.markGone()
	order.leave()
	if view := order.clone(); len(view.runs) != 1 || len(view.runs[0]) != 2 || order.gone != 0 {
		t.Errorf("runs %v, %d gone", view.runs, order.gone)
	}
}
