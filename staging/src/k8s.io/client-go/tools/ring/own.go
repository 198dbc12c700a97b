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
	"slices"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
)

// decideOwner is for an instance that owns a range and stays.
func (m *Machine) decideOwner(self Record, handovers []Handover, in Input, d *Decision) {
	// What comes from predecessors that are about to go is cached while they work.
	if left := m.withoutLeaving().Owned(m.name).Minus(m.fill.Unfilled); m.hasRoomFor(left.Minus(d.Owned).Minus(m.follow), in.Room) {
		d.Follow = d.Follow.Union(left)
	}
	d.Phase = shardingv1alpha1.InstanceActive
	if in.Serving.Empty() {
		d.Phase = shardingv1alpha1.InstanceLocked
	}

	giving := m.toGive(handovers)
	if giving != nil {
		m.decideGive(giving, in, d)
	} else {
		m.noteRefused(in.Now)
		m.endGive()
	}
	w := m.toCallOff(self, handovers, in, d)
	switch {
	case w != nil:
		d.Write = w
	case giving == nil:
		m.decideSplit(self, in, d)
		m.decideShift(in, d)
	}
}

// toGive returns the handover that this instance serves as donor; nil: none. It
// serves one at a time, to its end, as what has been granted already may not be
// known yet.
func (m *Machine) toGive(handovers []Handover) *Handover {
	var next *Handover
	for i := range handovers {
		h := &handovers[i]
		if h.Donor != m.name {
			continue
		}
		if m.give.of(h) {
			return h
		}
		if next == nil || h.rank() < next.rank() {
			next = h
		}
	}
	return next
}

// toCallOff returns the write that closes a void handover, or one for which this
// instance, the receiver of a boundary that moves up, has waited in vain.
func (m *Machine) toCallOff(self Record, handovers []Handover, in Input, d *Decision) (w *Write) {
	waits := false
	for i := range handovers {
		h := &handovers[i]
		switch {
		case h.Void != nil && h.closer == m.name:
			w = callOff(h.Record, h.Void.Error())
		case h.up() && h.Receiver == m.name:
			waits = true
			since := m.await(waiting{Peer: h.Donor, Named: true, Key: *self.Next}, in.Now)
			if limit := m.receiveLimit(handovers, in.Room); in.Now-since >= limit {
				w = callOff(self, h.Donor+" has not given up its part in time, or there is no room for it")
			} else {
				d.waitUntil(since + limit)
			}
		}
	}
	if !waits {
		m.wait = waiting{}
	}
	return w
}

// decideGive takes a handover on from the donor's side.
func (m *Machine) decideGive(h *Handover, in Input, d *Decision) {
	if !m.give.of(h) {
		m.endGive()
		m.give = give{Record: h.Record.registration(), Key: *h.Record.Next, Since: in.Now}
	}
	g := &m.give
	// The share is looked at anew each time: a predecessor's death adds the dead one's
	// range to it.
	share := h.Share(m.name, d.Owned)
	asked := g.Draining
	gift := Gift{To: h.Record.Name, Key: *h.Record.Next}
	if !g.Draining {
		if by, off := m.view.BalanceOff(); off && h.Kind == KindMove && !h.Record.Pinned() {
			d.Write = callOff(h.Record, "the ring's balance has been turned off, by "+by)
			return
		}
		receiver, _ := m.view.Get(h.Receiver)
		if !receiver.Cached.Covers(share.Intersect(in.Serving)) {
			// One whose caches do not fill would leave the share unworked.
			if in.Now-g.Since < m.limits.Fill {
				d.waitUntil(g.Since + m.limits.Fill)
			} else {
				m.rest(receiver.registration(), g.Since+m.limits.Fill)
				m.fail(receiver.registration())
				g.Ends = true
				d.Write = callOff(h.Record, h.Receiver+" has not filled its caches in time")
			}
			return
		}
		switch {
		case containsAny(share, in.Stuck):
			g.Ends = true
			d.Write = callOff(h.Record, "work in the range does not end"+describeStuck(in.Stuck, share))
			return
		case containsAny(share, in.Slow) && m.holds(&g.HeldSince, in.Now):
			// Nobody would do the other work of the share meanwhile.
			d.waitUntil(in.Now + time.Second)
			return
		}
		g.Draining, g.DrainingSince = true, in.Now
	}
	d.Phase = shardingv1alpha1.InstanceWait
	d.Open = d.Open.Minus(share)
	switch {
	case !asked:
		// This decision shuts the gate; the next asks what is still in work.
		d.waitUntil(in.Now)
	case in.idle(share):
		if g.Gives == nil {
			// Not before: what is in work carries the old epoch and would be refused.
			g.Gives = &gift
			m.epoch++
			g.GivesSince = in.Now
		}
		limit := g.GivesSince + m.limits.Step
		if in.Now >= limit {
			// The registry does not store what it is sent, and nobody works on the share meanwhile.
			m.rest(registration{}, limit)
			d.Write = callOff(h.Record, "what "+m.name+" gives has not been stored in time")
			return
		}
		d.waitUntil(limit)
		if in.Reported.Equal(Report{Epoch: m.epoch, Gives: g.Gives}) {
			d.Write = grant(h)
		}
	case in.Now-g.DrainingSince >= m.limits.Step:
		// The work may be long, and nobody does the rest of the share's meanwhile.
		m.rest(registration{}, g.DrainingSince+m.limits.Step)
		d.Write = callOff(h.Record, "work in the range has not ended in time"+describeStuck(in.Stuck, share))
	default:
		d.waitUntil(g.DrainingSince + m.limits.Step)
	}
}

// rest has this instance name no key for that one for a while, or for any, after a handover has
// been called off. Who joins asks another donor meanwhile.
func (m *Machine) rest(of registration, since time.Duration) {
	rests := map[registration]time.Duration{of: since + 4*m.limits.Step}
	for other, until := range m.rests {
		if until > since && other != of {
			rests[other] = until
		}
	}
	m.rests = rests
}

// restsUntil is until when this instance names no key for that one, as Input.Now counts. It does
// not rest from work that it can cut beside.
func (m *Machine) restsUntil(r Record, stuck []int64) time.Duration {
	until := max(m.history.restsUntil(r), m.rests[r.registration()])
	if len(stuck) == 0 {
		until = max(until, m.rests[registration{}])
	}
	return until
}

// holds says whether slow work still keeps a gate from being shut, as it has since then; zero: it
// begins to. What has not ended after a step may go on as other work does: the drain has a limit of
// its own.
func (m *Machine) holds(since *time.Duration, now time.Duration) bool {
	if *since == 0 {
		*since = max(now, 1)
	}
	return now-*since < m.limits.Step
}

func containsAny(ranges hashkey.Ranges, keys []int64) bool {
	return slices.ContainsFunc(keys, ranges.Contains)
}

// describeStuck says for people which of these keys hold up a handover of the share.
func describeStuck(stuck []int64, share hashkey.Ranges) string {
	text := ""
	for _, key := range stuck {
		if share.Contains(key) {
			text += ", on hash key " + hashkey.Format(key)
		}
	}
	return text
}

// endGive forgets the handover that this instance served. Where the gate was shut for it,
// what was in work then may still be on its way, and the gate will open again.
func (m *Machine) endGive() {
	if m.give.Draining && m.give.Gives == nil {
		m.epoch++
	}
	m.give = give{}
}

// grant gives the receiver its share.
func grant(h *Handover) *Write {
	reason := ReasonMove
	if h.Kind == KindJoin {
		reason = ReasonGrant
	}
	return write(reason, h.Record, h.Record.Next, nil, h.Record.Donor)
}

// noteRefused notes that one that joins has given up, after a step, the key that it was named,
// before this instance drained: it has no room for that share.
func (m *Machine) noteRefused(now time.Duration) {
	g := &m.give
	if g.Draining || g.Ends || now-g.Since < m.limits.Step {
		return
	}
	if r, ok := m.view.Get(g.Record.Name); ok && r.registration() == g.Record && r.joins() && r.Next == nil {
		m.fail(g.Record)
	}
}

// fail notes that this one has not filled its caches in time: its next share is half as large.
func (m *Machine) fail(of registration) {
	failed := present(m.view, m.failed)
	failed[of]++
	m.failed = failed
}

// present returns a copy of what is known of registrations, without those that have gone.
func present[T any](view *View, known map[registration]T) map[registration]T {
	out := make(map[registration]T, len(known)+1)
	for of, what := range known {
		if r, ok := view.Get(of.Name); ok && r.registration() == of {
			out[of] = what
		}
	}
	return out
}

// decideSplit names a key for the next instance that wishes one of this instance.
func (m *Machine) decideSplit(self Record, in Input, d *Decision) {
	if d.Owned.Width() < 2 {
		return
	}
	for _, r := range m.view.Records() {
		if r.Donor != m.name || !r.joins() {
			continue
		}
		if m.redirects(*r, in.Now) {
			d.wakeAt(in.Now + m.limits.Step)
			continue
		}
		if until := m.restsUntil(*r, in.Stuck); until > in.Now {
			d.waitUntil(until)
			continue
		}
		key, ok := m.cutFor(*r, self, in, d)
		if ok {
			d.Write = write(ReasonSplit, *r, nil, &key, r.Donor)
		}
		if ok || d.NeedsKeys {
			return
		}
		d.wakeAt(in.Now + m.limits.Step)
	}
}

// cutFor returns the key at which this instance's range is to be cut for one that joins, which gets
// what lies up to it, and whether there is one: that which gives it back what it holds; the middle
// of what nobody works on or fills; or the median of the objects.
func (m *Machine) cutFor(r, self Record, in Input, d *Decision) (int64, bool) {
	if key, ok := m.cutToReturn(r, self, in, d); ok || d.NeedsKeys {
		return key, ok
	}
	if key, ok := m.cutUnfilled(self, d.Owned); ok {
		return key, true
	}
	if d.Phase != shardingv1alpha1.InstanceActive {
		return 0, false
	}
	if d.NeedsKeys = in.Keys == nil; d.NeedsKeys {
		return 0, false
	}
	along := NewArc(*self.Key, d.Owned)
	key := split(d.Owned, m.view, m.name, in.keysIn(d.Owned), m.vacated, m.failed[r.registration()])
	for _, stuck := range in.Stuck {
		switch at := along.Distance(stuck); {
		case at == 0:
			return 0, false
		case at <= along.Distance(key):
			key = along.Key(at - 1)
		}
	}
	return key, true
}
