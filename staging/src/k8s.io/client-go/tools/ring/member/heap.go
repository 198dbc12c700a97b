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

package member

import (
	"runtime/metrics"
	"sync"
	"time"
)

// Heap knows what this process holds. The members of a process share it. It is safe for concurrent
// use.
type Heap struct {
	// live returns the size of what was in use after the last garbage collection, in bytes, and how
	// many collections there have been.
	live func() (bytes, collections uint64)

	// deciding is held while a member of a process with a capacity decides what its caches follow.
	deciding sync.Mutex

	lock sync.Mutex
	// objects is how many the caches of each member hold.
	objects map[*Member]int64
	// filling is who fills its caches, and how many objects that will come to is not known: since
	// then.
	filling map[*Member]time.Time
}

// NewHeap returns the heap of this process.
func NewHeap() *Heap { return newHeap(liveHeap) }

func newHeap(live func() (bytes, collections uint64)) *Heap {
	return &Heap{live: live, objects: map[*Member]int64{}, filling: map[*Member]time.Time{}}
}

// fills notes whether m fills its caches now.
func (h *Heap) fills(m *Member, is bool, now time.Time) {
	h.lock.Lock()
	defer h.lock.Unlock()
	if !is {
		delete(h.filling, m)
	} else if h.filling[m].IsZero() {
		h.filling[m] = now
	}
}

// isFilling says whether another member than m fills its caches, since that time or later: what
// room there is will be known once it has.
func (h *Heap) isFilling(m *Member, since time.Time) bool {
	h.lock.Lock()
	defer h.lock.Unlock()
	for other, at := range h.filling {
		if other != m && !at.Before(since) {
			return true
		}
	}
	return false
}

// hold notes how many objects the caches of m hold now, and returns how many those of all members
// do.
func (h *Heap) hold(m *Member, objects int64) (total int64) {
	h.lock.Lock()
	h.objects[m] = objects
	h.lock.Unlock()
	return h.total()
}

// total returns how many objects the caches of all members hold.
func (h *Heap) total() (total int64) {
	h.lock.Lock()
	defer h.lock.Unlock()
	for _, n := range h.objects {
		total += n
	}
	return total
}

// release forgets a member that has ended.
func (h *Heap) release(m *Member) {
	h.lock.Lock()
	defer h.lock.Unlock()
	delete(h.objects, m)
	delete(h.filling, m)
}

func liveHeap() (bytes, collections uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64()
}
