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
	"testing"
	"time"
)

// orderAtOneTime is a view, with the objects that were present, or had left, by their keys.
type orderAtOneTime struct {
	*orderView
	present, left map[*indexedObject]int64
}

// check finds a range. It must have every object that was present in it, once each, and
// no object that was added later.
func (v orderAtOneTime) check(t *testing.T, bounds ...keyBounds) {
	t.Helper()
	within := func(key int64) bool {
		return slices.ContainsFunc(bounds, func(b keyBounds) bool { return key >= b.start && (b.end < 0 || key < b.end) })
	}
	found := map[*indexedObject]bool{}
	runs, n := v.find(bounds)
	for _, run := range runs {
		for _, entry := range run {
			o := entry.indexedObject
			key, ok := v.present[o]
			if !ok {
				if key, ok = v.left[o]; !ok {
					t.Fatalf("%v has an object that was not there yet", bounds)
				}
			}
			if key != entry.key || !within(key) {
				t.Fatalf("%v has an object of key %d at %d", bounds, key, entry.key)
			}
			if found[o] {
				t.Fatalf("%v has an object twice", bounds)
			}
			found[o] = true
		}
	}
	if n != len(found) {
		t.Fatalf("%v has %d objects, and says %d", bounds, len(found), n)
	}
	for o, key := range v.present {
		if !found[o] && within(key) {
			t.Fatalf("%v lacks an object of key %d", bounds, key)
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
	order := &hashKeyOrder{}
	add := func(key int64) {
		o := &indexedObject{}
		present[o] = key
		objects = append(objects, o)
		order.add(hashKeyEntry{key, o})
	}
	var views []orderAtOneTime
	var finish func() // ends the settling that has begun, if any
	for range 30_000 {
		switch {
		case random.Intn(1000) == 0:
			views = append(views, orderAtOneTime{order.view(), maps.Clone(present), maps.Clone(passed)})
		case finish == nil && (order.overdue() || random.Intn(500) == 0):
			sealed := order.seal()
			finish = func() {
				order.publish(sealed.settle())
				checkShape(t, order, len(present))
			}
		case finish != nil && random.Intn(20) == 0: // writes come between
			finish()
			finish = nil
		// The order grows for a while, then shrinks for a while.
		case len(objects) == 0 || random.Intn(100) < 80-60*((len(views)/8)%2):
			add(randomKey())
		default:
			i := random.Intn(len(objects))
			o := objects[i]
			objects = slices.Delete(objects, i, i+1)
			key := present[o]
			passed[o] = key
			delete(present, o)
			o.gone.Store(true)
			order.leave()
			if random.Intn(4) == 0 {
				add(key) // it comes back
			}
		}
	}
	for _, view := range views {
		view.check(t, keyBounds{noKey, -1})
		for range 50 {
			a, b, c, d := randomKey(), randomKey(), randomKey(), randomKey()
			view.check(t, keyBounds{min(a, b), max(a, b)})
			view.check(t, keyBounds{a, -1})
			four := []int64{max(a, 0), max(b, 0), max(c, 0), max(d, 0)}
			slices.Sort(four)
			view.check(t, keyBounds{noKey, noKey + 1}, keyBounds{four[0], four[1]}, keyBounds{four[2], four[3]})
			view.check(t, keyBounds{four[0], four[1]}, keyBounds{four[2], -1})
		}
	}
}

// checkShape checks an order that has just been settled: the bounds on the time of a search, and
// on the memory held for objects that are gone.
func checkShape(t *testing.T, order *hashKeyOrder, present int) {
	t.Helper()
	for i, run := range order.runs {
		if i > 0 && len(order.runs[i-1]) < runGrowth*len(run) {
			t.Fatalf("a run of %d after one of %d", len(run), len(order.runs[i-1]))
		}
	}
	there, gone := 0, 0
	runs, _ := order.view().find([]keyBounds{{noKey, -1}})
	for _, run := range runs {
		for _, entry := range run {
			if entry.isGone() {
				gone++
			} else {
				there++
			}
		}
	}
	if there != present || gone > order.gone {
		t.Fatalf("%d objects and %d that are gone, for %d and at most %d", there, gone, present, order.gone)
	}
}

// An object that comes and goes between two readers leaves nothing behind.
func TestHashKeyOrderForgetsWhatCameAndWent(t *testing.T) {
	order := &hashKeyOrder{}
	for key := range int64(2) {
		order.add(hashKeyEntry{key, &indexedObject{}})
	}
	passing := &indexedObject{}
	order.add(hashKeyEntry{2, passing})
	passing.gone.Store(true)
	order.leave()
	order.publish(order.seal().settle())
	if _, n := order.view().find([]keyBounds{{noKey, -1}}); n != 2 || len(order.runs) != 1 || order.gone != 0 {
		t.Errorf("%d entries in %d runs, %d gone", n, len(order.runs), order.gone)
	}
}
