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
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/utils/clock"
)

// Gate is the check that every piece of work passes: is this key mine, now? It is
// open for a set of keys and until a deadline, and it knows what is in work.
// A Member opens and shuts it; a controller's workers call Enter. It is safe for
// concurrent use.
type Gate struct {
	clock clock.PassiveClock

	lock sync.Mutex
	open hashkey.Ranges
	// self is the registration that the deadline belongs to.
	self fence.Identity
	// deadline is when the instance stops believing that it is alive, on the
	// monotonic clock: no work begins at or after it.
	deadline time.Time
	busy     map[int64]int
	// turnedAway says that the deadline has kept out work that the ranges would
	// have let in.
	turnedAway bool
	onLeave    func()
	// refused is told who has refused a write.
	refused func(by string)
}

// NewGate returns a gate that is shut for everything.
func NewGate(c clock.PassiveClock) *Gate {
	return &Gate{clock: c, busy: map[int64]int{}, onLeave: func() {}, refused: func(string) {}}
}

// Enter says whether work on an object with that hash key may begin now. If so,
// the caller must read what the work is based on after this call, and must call
// leave, once, when nothing of the work is under way any more.
func (g *Gate) Enter(key int64) (leave func(), ok bool) {
	g.lock.Lock()
	defer g.lock.Unlock()
	if !g.open.Contains(key) {
		return nil, false
	}
	if !g.clock.Now().Before(g.deadline) {
		g.turnedAway = true
		return nil, false
	}
	g.busy[key]++
	return func() { g.leave(key) }, true
}

func (g *Gate) leave(key int64) {
	g.lock.Lock()
	g.busy[key]--
	if g.busy[key] == 0 {
		delete(g.busy, key)
	}
	onLeave := g.onLeave
	g.lock.Unlock()
	onLeave()
}

// Serves says whether the gate is open for key, whatever its deadline.
func (g *Gate) Serves(key int64) bool {
	g.lock.Lock()
	defer g.lock.Unlock()
	return g.open.Contains(key)
}

// ServesAll says whether the gate is open for every key, whatever its deadline.
func (g *Gate) ServesAll() bool {
	return g.serving().Covers(hashkey.All())
}

// Deadline returns the instant from which on no request of this instance may be
// under way.
func (g *Gate) Deadline() time.Time {
	g.lock.Lock()
	defer g.lock.Unlock()
	return g.deadline
}

// Busy returns how many pieces of work are under way in ranges.
func (g *Gate) Busy(ranges hashkey.Ranges) int {
	g.lock.Lock()
	defer g.lock.Unlock()
	total := 0
	for key, n := range g.busy {
		if ranges.Contains(key) {
			total += n
		}
	}
	return total
}

// serving returns the keys for which the gate is open.
func (g *Gate) serving() hashkey.Ranges {
	g.lock.Lock()
	defer g.lock.Unlock()
	return g.open
}

// set opens the gate for exactly these keys. What is in work goes on.
func (g *Gate) set(open hashkey.Ranges) {
	g.lock.Lock()
	defer g.lock.Unlock()
	g.open = open
}

// begin lets requests be sent in the name of a new registration, until deadline.
// Nothing that began under another registration may be in work.
func (g *Gate) begin(self fence.Identity, deadline time.Time) {
	g.lock.Lock()
	defer g.lock.Unlock()
	g.self = self
	g.deadline = deadline
	g.turnedAway = false
}

// pass returns in whose name, and until when, a request may be under way.
func (g *Gate) pass() (fence.Identity, time.Time) {
	g.lock.Lock()
	defer g.lock.Unlock()
	return g.self, g.deadline
}

// extend moves the deadline of the registration to t, unless it is later already. It
// does nothing once the gate has expired or belongs to another registration: an answer
// that comes late must not let requests out again. It reports whether work was turned
// away at the old deadline, so that it can be asked for again.
func (g *Gate) extend(self fence.Identity, t time.Time) (turnedAway bool) {
	g.lock.Lock()
	defer g.lock.Unlock()
	if g.self != self {
		return false
	}
	if t.After(g.deadline) {
		g.deadline = t
	}
	turnedAway = g.turnedAway && g.clock.Now().Before(g.deadline)
	if turnedAway {
		g.turnedAway = false
	}
	return turnedAway
}

// expire shuts the gate at once: the instance's record is gone.
func (g *Gate) expire() {
	g.lock.Lock()
	defer g.lock.Unlock()
	g.self = fence.Identity{}
	g.deadline = time.Time{}
	g.open = nil
}

// notify calls f whenever a piece of work has ended. f must not block.
func (g *Gate) notify(f func()) {
	g.lock.Lock()
	defer g.lock.Unlock()
	g.onLeave = f
}

// countRefused calls f for each write that is refused. f must not block.
func (g *Gate) countRefused(f func(by string)) {
	g.lock.Lock()
	defer g.lock.Unlock()
	g.refused = f
}

func (g *Gate) refuse(by string) {
	g.lock.Lock()
	refused := g.refused
	g.lock.Unlock()
	refused(by)
}
