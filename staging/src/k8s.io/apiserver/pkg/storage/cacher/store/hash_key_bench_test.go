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
	"fmt"
	"math/rand"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/watch"
)

const lockedObjects = 1_000_000

// timedLock is the lock of a store. It measures how long the index holds it.
type timedLock struct {
	*sync.RWMutex
	since, longest time.Duration
}

var start = time.Now()

func (l *timedLock) Lock() {
	l.RWMutex.Lock()
	l.since = time.Since(start)
}

func (l *timedLock) Unlock() {
	l.longest = max(l.longest, time.Since(start)-l.since)
	l.RWMutex.Unlock()
}

// BenchmarkHashKeyLocks measures, for each operation that has much to do with a million objects,
// the longest time for which it holds the store's lock, and how long a read of one object takes
// that comes meanwhile. `make bench` prints them.
func BenchmarkHashKeyLocks(b *testing.B) {
	s := newTestStorage(b)
	indexer := s.store.(*threadedStoreIndexer)
	lock := &timedLock{RWMutex: &indexer.lock}
	indexer.hashKeys.lock = lock
	elements := func(from, n int) []*Element {
		all := make([]*Element, n)
		for i := range all {
			all[i] = testElement("namespace-"+strconv.Itoa(i%100), strconv.Itoa(from+i), from+i, (from+i)/10+1)
		}
		return all
	}
	first := elements(0, lockedObjects)
	s.replace(b, first)
	list := func(path sharding.KeyPath) {
		query := RangeQuery{Selector: selectorOf(path, hashkey.Range{Start: 0, End: hashkey.Limit / 16}), Prefix: "/pods/"}
		s.KeepHashKeys(path)
		snapshot, _ := s.LatestRangeLocked(query)
		if _, err := snapshot.OrderedListPrefix("", ""); err != nil {
			b.Fatal(err)
		}
	}
	write := func(event watch.EventType, elements []*Element) {
		for _, elem := range elements {
			s.write(b, event, elem)
			s.CompactSnapshotsLocked(s.version)
		}
	}
	measure := func(name string, operation func()) {
		runtime.GC()
		lock.longest = 0
		reads := readMeanwhile(b, s, first, operation)
		b.ReportMetric(float64(lock.longest.Nanoseconds())/1e3, name+"-held-us")
		b.ReportMetric(float64(reads[len(reads)*999/1000].Nanoseconds())/1e3, name+"-read-p999-us")
		b.ReportMetric(float64(reads[len(reads)-1].Nanoseconds())/1e3, name+"-read-max-us")
	}
	for range b.N {
		measure("nothing", func() { time.Sleep(time.Second) })
		measure("first-list", func() { list(sharding.KeyPathOwn) })
		measure("second-path", func() { list(sharding.KeyPathController) })
		// As many as are put off at most: the list is behind all of them.
		more := elements(lockedObjects, lockedObjects/8)
		measure("behind-an-eighth", func() {
			write(watch.Added, more)
			list(sharding.KeyPathOwn)
			s.SettleHashKeys()
		})
		// With these the longest run is merged.
		more = elements(lockedObjects+len(more), lockedObjects/8)
		measure("longest-merge", func() {
			write(watch.Added, more)
			s.SettleHashKeys()
		})
		leaving := slices.Clone(first)
		rand.Shuffle(len(leaving), func(i, j int) { leaving[i], leaving[j] = leaving[j], leaving[i] })
		measure("deletions", func() {
			write(watch.Deleted, leaving[:lockedObjects/4])
			s.SettleHashKeys()
		})
		again := elements(0, lockedObjects)
		measure("replace", func() { s.replace(b, again) })
	}
	b.ReportMetric(0, "ns/op") // meaningless: an operation here is all of them
	if n := len(s.now); n != lockedObjects {
		b.Fatal(fmt.Errorf("%d objects", n))
	}
}

// readMeanwhile reads one object after the other while an operation runs, and returns how long
// each read took, in order.
func readMeanwhile(b *testing.B, s *testStorage, elements []*Element, operation func()) []time.Duration {
	var took []time.Duration
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			begin := time.Now()
			if _, _, err := s.GetByKey(elements[rand.Intn(len(elements))].Key); err != nil {
				b.Error(err)
			}
			took = append(took, time.Since(begin))
		}
	})
	operation()
	close(done)
	wg.Wait()
	slices.Sort(took)
	return took
}
