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

package ring

import (
	"math/bits"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/hashkey"
)

// A range that comes cold, since nobody worked on it, is filled in pieces: a process that cannot
// hold all of it works on what it can hold, and gives what it has not begun to fill to whoever
// asks. The pieces go from the upper end of the range downwards, as a receiver gets a lower part.
//
//	  after                                          key
//	────┤ unfilled: given by the middle │ piece │ works ├────
//
// The first piece is what the caches hold already, if the process has lost its record, or else an
// eighth; each further one is as large as all before.

// firstPiece is how many times the first piece goes into the range.
const firstPiece = 8

// filling is what an instance does about keys that it owns and does not hold.
type filling struct {
	// Unfilled are the keys that it owns and has not begun to fill.
	Unfilled hashkey.Ranges
	// Begun is what it was filling when it was last looked at, since then.
	Begun hashkey.Ranges
	Since time.Duration
	// Limited says that the process cannot hold any number of objects.
	Limited bool
}

// observe takes note of what has come cold: keys that nobody owned, and those that a donor gave
// that the caches were not told to follow. What comes by a death does, too, if room is limited.
func (f *filling) observe(before, next *View, name string, follow hashkey.Ranges) {
	f.Unfilled = f.Unfilled.Intersect(next.Owned(name))
	for _, r := range next.ReceivedSince(before, name) {
		if (r.Kind == KindCrash || r.Kind == KindLeave) && !f.Limited {
			continue
		}
		f.Unfilled = f.Unfilled.Union(r.Ranges.Minus(follow))
	}
}

// decideFill begins to fill the next piece once all that was begun is worked on.
func (m *Machine) decideFill(self Record, in Input, owned hashkey.Ranges, handovers []Handover) {
	f := &m.fill
	f.Limited = in.Room != nil
	filled := owned.Minus(f.Unfilled)
	missing := filled.Minus(in.Serving)
	if !missing.Equal(f.Begun) {
		f.Begun, f.Since = missing, in.Now
	}
	if !missing.Empty() {
		m.putBack(self, in, owned, missing)
		return
	}
	if f.Unfilled.Empty() {
		return
	}
	for i := range handovers {
		if h := &handovers[i]; h.Donor == m.name && !h.Share(m.name, owned).Intersect(f.Unfilled).Empty() {
			// It is given as it is.
			return
		}
	}
	if m.awaitsReturn(self, filled, in.Now) {
		return
	}
	width := max(filled.Width(), owned.Width()/firstPiece, m.limits.Piece, 1)
	piece := upperPart(*self.Key, owned, f.Unfilled, m.fits(width, filled.Width(), self.Weight, in.Room))
	f.Unfilled = f.Unfilled.Minus(piece)
}

// putBack gives half of what could not be filled in time up, for a while.
func (m *Machine) putBack(self Record, in Input, owned, missing hashkey.Ranges) {
	f, least := &m.fill, max(m.limits.Piece, 1)
	half := missing.Width() / 2 / least * least
	if in.Now-f.Since < m.limits.Fill || half == 0 || m.give != (give{}) {
		return
	}
	f.Unfilled = f.Unfilled.Union(missing.Minus(upperPart(*self.Key, owned, missing, missing.Width()-half)))
	f.Since = in.Now
}

// awaitsReturn says whether those that have lost their records like this instance are given time to
// come back, before it fills what they hold. All register at about the same time.
func (m *Machine) awaitsReturn(self Record, filled hashkey.Ranges, now time.Duration) bool {
	if self.Held.Empty() || filled.Empty() {
		return false
	}
	return now < m.began+m.limits.Leave/2 || now < m.moved+m.limits.Step && m.isHeld(m.fill.Unfilled)
}

// isHeld says whether one that joins holds any of these keys.
func (m *Machine) isHeld(keys hashkey.Ranges) bool {
	return slices.ContainsFunc(m.view.Records(), func(r *Record) bool {
		return r.joins() && !r.Held.Intersect(keys).Empty()
	})
}

// holder returns who owns what one that joins holds, and can give that back; "": nobody does.
func (m *Machine) holder(joins Record) string {
	end, held := lastOf(joins.Held)
	if !held {
		return ""
	}
	owner, ok := m.view.Owner(end)
	if !ok || owner.leaving() || m.view.Owned(owner.Name).Width() < 2 {
		return ""
	}
	return owner.Name
}

// redirects says whether one that joins and asks this instance is given time to ask whoever owns
// what it holds: it may have asked before that was known.
func (m *Machine) redirects(joins Record, now time.Duration) bool {
	if holder := m.holder(joins); holder == "" || holder == m.name {
		return false
	}
	since, ok := m.redirected[joins.registration()]
	if !ok {
		since = now
		redirected := present(m.view, m.redirected)
		redirected[joins.registration()] = since
		m.redirected = redirected
	}
	return now < since+m.limits.Step
}

// fits returns how many keys of so many can be filled, by what those that are filled hold.
func (m *Machine) fits(width, filled uint64, weight int64, room *int64) uint64 {
	if room == nil {
		return width
	}
	if *room <= 0 {
		return 0
	}
	if weight <= 0 || filled == 0 {
		return max(width/firstPiece, 1)
	}
	high, low := bits.Mul64(filled, uint64(*room))
	if high >= uint64(weight) {
		return width
	}
	most, _ := bits.Div64(high, low, uint64(weight))
	return min(width, most)
}

// upperPart returns the upper part of these keys of a range that ends with that key, at most so
// many.
func upperPart(key int64, owned, keys hashkey.Ranges, width uint64) hashkey.Ranges {
	if width == 0 || keys.Empty() {
		return nil
	}
	along := NewArc(key, owned)
	top := along.top(keys)
	if width > top {
		return keys
	}
	return keys.Intersect(hashkey.Between(along.Key(top-width), along.Key(top)))
}

// top returns how far the last of these keys lies from the first one of the arc.
func (a Arc) top(keys hashkey.Ranges) uint64 {
	top := uint64(0)
	for _, r := range keys {
		top = max(top, a.Distance(int64(r.End-1)))
	}
	return top
}

// toReceive returns what the caches are to follow for a handover in which this instance is the
// receiver: all that it will own or, of what the donor does not hold, a first piece.
func (m *Machine) toReceive(self Record, h *Handover, in Input) hashkey.Ranges {
	after := h.OwnedAfter(m.name).Minus(m.fill.Unfilled)
	donor, _ := m.view.Get(h.Donor)
	gain := after.Minus(m.view.Owned(m.name))
	cold := gain.Minus(donor.Cached).Minus(m.follow)
	if !m.hasRoomFor(gain.Minus(m.follow), in.Room) {
		// It is never full: the donor calls it off, and gives half of it.
		return after.Minus(gain).Union(gain.Intersect(m.follow))
	}
	if cold.Empty() {
		return after
	}
	key := self.Key
	if h.Record.Name == m.name {
		key = h.Record.Next
	}
	width := max(after.Width()/firstPiece, m.limits.Piece, 1)
	if !gain.Intersect(m.follow).Empty() {
		width = 0
	}
	return after.Minus(cold).Union(upperPart(*key, after, cold, width))
}

// receiveLimit bounds the waiting for what this instance is to receive. It gives that up sooner if
// it has no room for it: the donor serves nobody else meanwhile.
func (m *Machine) receiveLimit(handovers []Handover, room *int64) time.Duration {
	for i := range handovers {
		h := &handovers[i]
		if h.Receiver != m.name || h.Record.Name != m.name {
			continue
		}
		if gain := h.OwnedAfter(m.name).Minus(m.view.Owned(m.name)).Minus(m.follow); !m.hasRoomFor(gain, room) {
			return m.limits.Step
		}
	}
	return m.grantLimit()
}

// hasRoomFor says whether the process can hold these keys of others, by what their owners have.
func (m *Machine) hasRoomFor(keys hashkey.Ranges, room *int64) bool {
	if room == nil || keys.Empty() {
		return true
	}
	objects := 0.0
	for _, r := range m.view.Ring() {
		owned := m.view.Owned(r.Name)
		if part := owned.Intersect(keys); part.Equal(owned) {
			objects += float64(r.Weight)
		} else if !part.Empty() {
			// The heaviest key may be one of them.
			objects += float64(r.Heaviest) + float64(r.Weight-r.Heaviest)*float64(part.Width())/float64(owned.Width())
		}
	}
	return objects <= float64(*room)
}

// cutToReturn returns the key that gives one that joins back what its caches hold, if this instance
// works on nothing else that it would get with that, nor is about to, and keeps a third of its
// objects.
func (m *Machine) cutToReturn(r, self Record, in Input, d *Decision) (int64, bool) {
	owned := d.Owned
	key, held := lastOf(r.Held)
	if !held || !owned.Contains(key) || key == *self.Key {
		return 0, false
	}
	along := NewArc(*self.Key, owned)
	share := owned.Intersect(hashkey.Between(along.Key(hashkey.Limit-1), key))
	served := in.Serving.Union(self.Held).Intersect(share)
	if !r.Held.Covers(served) || containsAny(share, in.Stuck) {
		return 0, false
	}
	if served.Empty() {
		return key, true
	}
	d.NeedsKeys = in.Keys == nil
	return key, !d.NeedsKeys && 2*len(in.keysIn(owned)) >= 3*len(in.keysIn(share))
}

// cutUnfilled returns the key that gives away half of what this instance has not begun to fill, if
// that is the lower part of its range: at the end of a range that has gone, if one is near the
// middle.
func (m *Machine) cutUnfilled(self Record, owned hashkey.Ranges) (int64, bool) {
	unfilled := m.fill.Unfilled
	if unfilled.Empty() {
		return 0, false
	}
	along := NewArc(*self.Key, owned)
	width := along.top(unfilled) + 1
	if width != unfilled.Width() || width < 2 {
		return 0, false
	}
	at := width/2 - 1
	uneven := func(d uint64) uint64 { return max(d+1, width-d-1) - min(d+1, width-d-1) }
	limit := width/2 + 1
	for _, key := range m.vacated {
		if d := along.Distance(key); d+1 < width && uneven(d) < limit {
			at, limit = d, uneven(d)
		}
	}
	return along.Key(at), true
}

// lastOf returns the upper end of a range, which may go round the seam; false if there is none.
func lastOf(keys hashkey.Ranges) (int64, bool) {
	if keys.Empty() {
		return 0, false
	}
	last := keys[len(keys)-1]
	if first := keys[0]; first.Start == 0 && last.End == hashkey.Limit {
		last = first
	}
	return int64(last.End - 1), true
}
