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
)

// Heap knows what this process holds. The members of a process share it. It is safe for concurrent
// use.
type Heap struct {
	// live returns the size of what was in use after the last garbage collection, in bytes, and how
	// many collections there have been.
	live func() (bytes, collections uint64)

	lock sync.Mutex
	// objects is how many the caches of each member hold.
	objects map[*Member]int64
}

// NewHeap returns the heap of this process.
func NewHeap() *Heap { return newHeap(liveHeap) }

func newHeap(live func() (bytes, collections uint64)) *Heap {
	return &Heap{live: live, objects: map[*Member]int64{}}
}

// hold notes how many objects the caches of m hold now, and returns how many those of all members do.
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
}

func liveHeap() (bytes, collections uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64()
}
