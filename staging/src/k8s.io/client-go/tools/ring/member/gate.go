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

// barredTime is how long no controller sends a request after an API server without the fence
// has answered.
const barredTime = 30 * time.Second

// errNotRenewed is why a request is not sent, or given up.
var errNotRenewed = fmt.Errorf("this instance could not renew its ControllerInstance in time, so another may own the object now (%s)", fence.CauseFenced)

// readGrace is how long a read may take once its key is shut. A donor waits for longer, and most
// answers come sooner.
const readGrace = 2 * time.Second

// errShut is why a read is given up.
var errShut = fmt.Errorf("the object is about to be another instance's (%s)", fence.CauseFenced)

// Gate is the check that every piece of work passes: is this key mine, now? It is
// open for a set of keys, for some controllers and until a deadline, and it knows what is
// in work. A Member opens and shuts it; a controller's workers pass its door. It is safe
// for concurrent use.
type Gate struct {
	clock clock.WithDelayedExecution

	lock sync.Mutex
	open hashkey.Ranges
	// working are the controllers that it is open for.
	working map[string]bool
	// self is the registration that the deadline belongs to. It names no controller.
	self fence.Identity
	// deadline is when the instance stops believing that it is alive, on the
	// monotonic clock: no work begins at or after it. Each renewal moves it.
	deadline time.Time
	// grace is how long after the deadline the record lives at least, so that nobody else owns its keys.
	grace time.Duration
	// believing ends when the grace has passed without a renewal, or the gate expires: so do the
	// requests that are under way then.
	believing context.Context
	lapse     context.CancelFunc
	timer     clock.Timer
	// busy says of what is in work when each piece of it began.
	busy map[piece][]time.Time
	// spent is how long each controller has worked.
	spent map[string]*spent
	// turnedAway says that the deadline has kept out work that the ranges would
	// have let in.
	turnedAway bool
	onLeave    func()
	// refused is told who has refused a write.
	refused func(by string)
	// barred says why no request of a controller may be sent before that time.
	barred      string
	barredUntil time.Time
	// onBar is told when it has been barred.
	onBar func(reason string)
	// shutAt is when the door of a controller was shut.
	shutAt map[string]time.Time
	// reads are those that end when they are shut out.
	reads map[*read]struct{}
}

// read is a request that changes nothing, for what a controller works on. Without a piece it ends once
// the gate has expired, whatever it is for.
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

// spent is how long the workers of a controller have worked, altogether.
type spent struct {
	total time.Duration
	// busy is how many do since at.
	busy int
	at   time.Time
}

// add counts one more, or one less, from now on.
func (s *spent) add(now time.Time, n int) {
	s.total += time.Duration(s.busy) * now.Sub(s.at)
	s.busy, s.at = s.busy+n, now
}

func (g *Gate) spentLocked(controller string) *spent {
	s, ok := g.spent[controller]
	if !ok {
		s = &spent{}
		g.spent[controller] = s
	}
	return s
}

// worked returns how long the workers of each controller have worked up to now, and the keys that are
// in work.
func (g *Gate) worked(now time.Time) (total map[string]time.Duration, keys []int64) {
	g.lock.Lock()
	defer g.lock.Unlock()
	total = make(map[string]time.Duration, len(g.spent))
	for controller, s := range g.spent {
		s.add(now, 0)
		total[controller] = s.total
	}
	for work := range g.busy {
		keys = append(keys, work.key)
	}
	return total, keys
}

// NewGate returns a gate that is shut for everything.
func NewGate(c clock.WithDelayedExecution) *Gate {
	return &Gate{clock: c, working: map[string]bool{}, busy: map[piece][]time.Time{}, spent: map[string]*spent{}, onLeave: func() {}, refused: func(string) {}, onBar: func(string) {}, shutAt: map[string]time.Time{}, reads: map[*read]struct{}{}}
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
	if !now.Before(g.deadline) {
		g.turnedAway = true
		return nil, false
	}
	work := piece{d.controller, key}
	g.busy[work] = append(g.busy[work], now)
	g.spentLocked(d.controller).add(now, 1)
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
	g.spentLocked(work.controller).add(g.clock.Now(), -1)
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

// whileRegistered returns a context for a read that ends soon after the gate expires: the connection may
// be dead, and the instance does not register anew before its work has ended. The caller must call
// cancel when the read has ended.
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
		return g.self.Name == ""
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

// Deadline returns the instant from which on no work begins and no request of this instance is sent.
// Renewals move it.
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
	for work, pieces := range g.busy {
		if ranges.Contains(work.key) {
			total += len(pieces)
		}
	}
	return total
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

// begin lets requests be sent in the name of a new registration, until deadline, and be under way for
// a grace after that: an API server may have charged a quota for what they create. Nothing that began
// under another registration may be in work.
func (g *Gate) begin(self fence.Identity, deadline time.Time, grace time.Duration) {
	g.lock.Lock()
	defer g.lock.Unlock()
	g.self, g.grace = self, grace
	g.turnedAway = false
	g.believeLocked(deadline)
}

// believeLocked sets the deadline.
func (g *Gate) believeLocked(deadline time.Time) {
	g.stopLocked()
	g.deadline = deadline
	if g.believing == nil || g.believing.Err() != nil {
		g.believing, g.lapse = context.WithCancel(context.Background())
	}
	g.timer = g.clock.AfterFunc(deadline.Add(g.grace).Sub(g.clock.Now()), func() {
		g.lock.Lock()
		defer g.lock.Unlock()
		if g.deadline.Equal(deadline) {
			g.lapse()
		}
	})
}

func (g *Gate) stopLocked() {
	if g.timer != nil {
		g.timer.Stop()
	}
}

// raise lets requests carry that epoch from now on. It does nothing once the gate has
// expired or belongs to another registration.
func (g *Gate) raise(self fence.Identity, epoch int64) {
	g.lock.Lock()
	defer g.lock.Unlock()
	if isSame(g.self, self) {
		g.self.Epoch = max(g.self.Epoch, epoch)
	}
}

// isSame says whether both are of one registration, whatever their epochs.
func isSame(a, b fence.Identity) bool { return a.Name == b.Name && a.UID == b.UID }

// identity returns in whose name requests are sent now, and whether there is anybody.
func (g *Gate) identity() (self fence.Identity, ok bool) {
	g.lock.Lock()
	defer g.lock.Unlock()
	return g.self, g.self.Name != ""
}

// admit lets a request be sent now, in the name of self and with a context that ends when
// the request may no longer be under way: when the grace after the deadline passes without a
// renewal, or the gate expires. It fails if that has happened. The caller must call cancel when the
// request has ended.
func (g *Gate) admit(ctx context.Context) (self fence.Identity, limited context.Context, cancel context.CancelFunc, err error) {
	g.lock.Lock()
	defer g.lock.Unlock()
	if !g.clock.Now().Before(g.deadline) {
		return fence.Identity{}, nil, nil, errNotRenewed
	}
	limited, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(g.believing, func() { end(errNotRenewed) })
	return g.self, limited, func() { stop(); end(nil) }, nil
}

// extend moves the deadline of the registration to t, unless it is later already. It
// does nothing once the gate has expired or belongs to another registration: an answer
// that comes late must not let requests out again. It reports whether work was turned
// away at the old deadline, so that it can be asked for again.
func (g *Gate) extend(self fence.Identity, t time.Time) (turnedAway bool) {
	g.lock.Lock()
	defer g.lock.Unlock()
	if !isSame(g.self, self) {
		return false
	}
	if t.After(g.deadline) {
		g.believeLocked(t)
	}
	turnedAway = g.turnedAway && g.clock.Now().Before(g.deadline)
	if turnedAway {
		g.turnedAway = false
	}
	return turnedAway
}

// expire shuts the gate at once, and gives up the requests under way: the instance's
// record is gone.
func (g *Gate) expire() {
	g.lock.Lock()
	defer g.lock.Unlock()
	g.self = fence.Identity{}
	g.deadline = time.Time{}
	g.open = nil
	clear(g.working)
	g.endReadsLocked()
	g.stopLocked()
	if g.lapse != nil {
		g.lapse()
	}
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

// bar lets no controller send a request for a while: an API server has carried this one out
// without judging it. Another such request begins the time anew.
func (g *Gate) bar(request string) {
	g.lock.Lock()
	now := g.clock.Now()
	anew := !now.Before(g.barredUntil)
	g.barredUntil = now.Add(barredTime)
	if anew {
		g.barred = fmt.Sprintf("an API server without the feature gate ControllerRing has answered (%.256s); it is tried again every %v", request, barredTime)
	}
	reason, onBar := g.barred, g.onBar
	g.lock.Unlock()
	if anew {
		onBar(reason)
	}
}

// whyBarred says why no controller may send a request now; "" if each may.
func (g *Gate) whyBarred() string {
	g.lock.Lock()
	defer g.lock.Unlock()
	if !g.clock.Now().Before(g.barredUntil) {
		return ""
	}
	return g.barred
}

// notifyBar calls f when the gate has been barred. f must not block.
func (g *Gate) notifyBar(f func(reason string)) {
	g.lock.Lock()
	defer g.lock.Unlock()
	g.onBar = f
}

func (g *Gate) refuse(by string) {
	g.lock.Lock()
	refused := g.refused
	g.lock.Unlock()
	refused(by)
}
