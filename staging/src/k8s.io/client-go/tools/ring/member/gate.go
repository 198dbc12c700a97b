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
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/utils/clock"
)

// readGrace is how long a read may take once its key is shut. A donor waits for longer, and most
// answers come sooner.
const readGrace = 2 * time.Second

// errShut is why a read is given up.
var errShut = fmt.Errorf("the object is about to be another instance's (%s)", fence.CauseFenced)

// Gate is the check that every piece of work passes: is this key mine, now? It is
// open for a set of keys, for some controllers and until the deadline of its credential, and it
// knows what is in work. A Member opens and shuts it; a controller's workers pass its door. It is
// safe for concurrent use.
type Gate struct {
	clock clock.WithDelayedExecution
	// The credential has a lock of its own, which may be taken while that of the gate is held.
	*credential

	lock sync.Mutex
	open hashkey.Ranges
	// working are the controllers that it is open for.
	working map[string]bool
	// busy says of what is in work when each piece of it began.
	busy    map[piece][]time.Time
	meter   meter
	onLeave func()
	// shutAt is when the door of a controller was shut.
	shutAt map[string]time.Time
	// reads are those that end when they are shut out.
	reads map[*read]struct{}
}

// read is a request that changes nothing, for what a controller works on. Without a piece it ends
// once the gate has expired, whatever it is for.
type read struct {
	*piece
	end context.CancelCauseFunc
	// shut ends it soon, nil while its key is not shut.
	shut clock.Timer
}

// piece is what a controller works on, by hash key.
type piece struct {
	controller string
	key        int64
}

// worked returns how long the workers of each controller have worked up to now, and the keys that
// are in work.
func (g *Gate) worked(now time.Time) (total map[string]time.Duration, keys []int64) {
	g.lock.Lock()
	defer g.lock.Unlock()
	for work := range g.busy {
		keys = append(keys, work.key)
	}
	return g.meter.totals(now), keys
}

// NewGate returns a gate that is shut for everything.
func NewGate(c clock.WithDelayedExecution) *Gate {
	return &Gate{
		clock: c, credential: newCredential(c), working: map[string]bool{}, busy: map[piece][]time.Time{}, meter: meter{},
		onLeave: func() {}, shutAt: map[string]time.Time{}, reads: map[*read]struct{}{},
	}
}

// Door is the gate as one controller meets it.
type Door struct {
	gate       *Gate
	controller string
}

// For returns the door of that controller.
func (g *Gate) For(controller string) *Door { return &Door{g, controller} }

// Enter says whether work on an object with that hash key may begin now. If so,
// the caller must read what the work is based on after this call, and must call
// leave, once, when nothing of the work is under way any more.
func (d *Door) Enter(key int64) (leave func(), ok bool) {
	g := d.gate
	g.lock.Lock()
	defer g.lock.Unlock()
	if !g.working[d.controller] || !g.open.Contains(key) {
		return nil, false
	}
	now := g.clock.Now()
	if !g.lets(now) {
		return nil, false
	}
	work := piece{d.controller, key}
	g.busy[work] = append(g.busy[work], now)
	g.meter.of(d.controller).add(now, 1)
	return func() { g.leave(work, now) }, true
}

func (g *Gate) leave(work piece, began time.Time) {
	g.lock.Lock()
	if pieces := g.busy[work]; len(pieces) > 1 {
		i := slices.Index(pieces, began)
		g.busy[work] = slices.Delete(pieces, i, i+1)
	} else {
		delete(g.busy, work)
	}
	g.meter.of(work.controller).add(g.clock.Now(), -1)
	onLeave := g.onLeave
	g.lock.Unlock()
	onLeave()
}

// Serves says whether the gate is open for key, whatever its deadline.
func (d *Door) Serves(key int64) bool { return d.serving().Contains(key) }

// ServesAll says whether the gate is open for every key, whatever its deadline.
func (d *Door) ServesAll() bool { return d.serving().Covers(hashkey.All()) }

// during returns a context for a read that ends soon after the door is shut for key, whatever its
// deadline. The caller must call cancel when the read has ended.
func (d *Door) during(ctx context.Context, key int64) (limited context.Context, cancel context.CancelFunc) {
	limited, end := context.WithCancelCause(ctx)
	return limited, d.gate.endInTime(&read{piece: &piece{d.controller, key}, end: end})
}

// whileRegistered returns a context for a read that ends soon after the gate expires: the
// connection may be dead, and the instance does not register anew before its work has ended. The
// caller must call cancel when the read has ended.
func (g *Gate) whileRegistered(ctx context.Context) (limited context.Context, cancel context.CancelFunc) {
	if _, ok := g.identity(); !ok {
		return ctx, func() {}
	}
	limited, end := context.WithCancelCause(ctx)
	return limited, g.endInTime(&read{end: end})
}

// endInTime ends a read when it is shut out. The caller must call ended when it has ended before.
func (g *Gate) endInTime(r *read) (ended func()) {
	g.lock.Lock()
	defer g.lock.Unlock()
	g.reads[r] = struct{}{}
	g.endReadsLocked()
	return func() {
		g.lock.Lock()
		defer g.lock.Unlock()
		delete(g.reads, r)
		if r.shut != nil {
			r.shut.Stop()
		}
		r.end(nil)
	}
}

// shutsOutLocked says whether the gate is not open for a read.
func (g *Gate) shutsOutLocked(r *read) bool {
	if r.piece == nil {
		_, registered := g.identity()
		return !registered
	}
	return !g.working[r.controller] || !g.open.Contains(r.key)
}

// endReadsLocked ends, in a moment, the reads for which the gate is not open now.
func (g *Gate) endReadsLocked() {
	for r := range g.reads {
		if r.shut == nil && g.shutsOutLocked(r) {
			r.shut = g.clock.AfterFunc(readGrace, func() { r.end(errShut) })
		}
	}
}

// serving returns the keys for which the door is open.
func (d *Door) serving() hashkey.Ranges {
	d.gate.lock.Lock()
	defer d.gate.lock.Unlock()
	if !d.gate.working[d.controller] {
		return nil
	}
	return d.gate.open
}

// isOpen says whether the door is open for any key that the gate is open for.
func (d *Door) isOpen() bool {
	d.gate.lock.Lock()
	defer d.gate.lock.Unlock()
	return d.gate.working[d.controller]
}

// set opens or shuts the door. What is in work goes on.
func (d *Door) set(open bool) {
	d.gate.lock.Lock()
	defer d.gate.lock.Unlock()
	if d.gate.working[d.controller] && !open {
		d.gate.shutAt[d.controller] = d.gate.clock.Now()
	}
	d.gate.working[d.controller] = open
	d.gate.endReadsLocked()
}

// busy returns how many pieces of the controller's work are under way.
func (d *Door) busy() int {
	d.gate.lock.Lock()
	defer d.gate.lock.Unlock()
	total := 0
	for work, pieces := range d.gate.busy {
		if work.controller == d.controller {
			total += len(pieces)
		}
	}
	return total
}

// Busy returns how many pieces of work are under way in ranges.
func (g *Gate) Busy(ranges hashkey.Ranges) int {
	g.lock.Lock()
	defer g.lock.Unlock()
	total := 0
	for work, pieces := range g.busy {
		if ranges.Contains(work.key) {
			total += len(pieces)
		}
	}
	return total
}

// inWork returns the keys that are in work.
func (g *Gate) inWork() hashkey.Ranges {
	g.lock.Lock()
	defer g.lock.Unlock()
	var keys []hashkey.Range
	for work := range g.busy {
		keys = append(keys, hashkey.Range{Start: uint64(work.key), End: uint64(work.key) + 1})
	}
	return hashkey.NewRanges(keys...)
}

// busyIn returns the controllers whose work in ranges is under way, in order.
func (g *Gate) busyIn(ranges hashkey.Ranges) []string {
	g.lock.Lock()
	defer g.lock.Unlock()
	busy := map[string]bool{}
	for work := range g.busy {
		if ranges.Contains(work.key) {
			busy[work.controller] = true
		}
	}
	return slices.Sorted(maps.Keys(busy))
}

// heldUp returns for how long, up to now, work has gone on behind a door that was shut: others wait
// for its end.
func (g *Gate) heldUp(now time.Time) time.Duration {
	g.lock.Lock()
	defer g.lock.Unlock()
	var longest time.Duration
	for work := range g.busy {
		if at, ok := g.shutAt[work.controller]; ok && !g.working[work.controller] {
			longest = max(longest, now.Sub(at))
		}
	}
	return longest
}

// lasting is a piece of work, and since when it has been under way.
type lasting struct {
	piece
	began time.Time
}

// lasts returns what has been in work for that long, the oldest first.
func (g *Gate) lasts(now time.Time, least time.Duration) []lasting {
	g.lock.Lock()
	defer g.lock.Unlock()
	var out []lasting
	for work, pieces := range g.busy {
		for _, began := range pieces {
			if now.Sub(began) >= least {
				out = append(out, lasting{work, began})
			}
		}
	}
	slices.SortFunc(out, func(a, b lasting) int {
		return cmp.Or(a.began.Compare(b.began), cmp.Compare(a.controller, b.controller), cmp.Compare(a.key, b.key))
	})
	return out
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
	g.endReadsLocked()
}

// expire shuts the gate at once, and gives up the requests under way: the instance's
// record is gone.
func (g *Gate) expire() {
	g.lock.Lock()
	defer g.lock.Unlock()
	g.credential.expire()
	g.open = nil
	clear(g.working)
	g.endReadsLocked()
}

// notify calls f whenever a piece of work has ended. f must not block.
func (g *Gate) notify(f func()) {
	g.lock.Lock()
	defer g.lock.Unlock()
	g.onLeave = f
}
