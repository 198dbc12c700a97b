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
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
)

// decideToLeave decides whether the instance goes: if its process ends, its record was deleted, or
// it is drained and another can own its range. Who is only drained stays if that is taken back, or
// if the other has gone before it has shut its gate.
func (m *Machine) decideToLeave(self Record, in Input, d *Decision) {
	l := &m.leave
	drained := self.Drained && self.Key != nil
	spare := false
	if drained {
		var wake time.Duration
		if spare, wake = m.spare(in.Now); wake > 0 {
			d.wakeAt(wake)
		}
	}
	asked := in.Leaving || self.Deleting
	switch {
	case l.Begun && !asked && (!drained || !spare && !l.Shut):
		m.reopen()
		*l = leaving{}
	case !l.Begun && (asked || drained && spare):
		*l = leaving{Begun: true, Since: in.Now}
	}
	if in.Leaving && !l.Hurries {
		l.Hurries, l.Since = true, in.Now
	}
}

// reopen has the gate open again that was shut to leave. As when a handover is called off, what was
// in work may still be on its way.
func (m *Machine) reopen() {
	if m.leave.Shut {
		m.epoch++
		m.gainedAt = m.view.Revision
	}
	m.leave.Shut, m.leave.HeldSince = false, 0
}

// spare says whether another instance can own the range of this one: it does not leave, is not
// drained, and is none of a crash loop. Otherwise it returns when that may be so though nothing
// happens, as Input.Now counts; 0: never.
func (m *Machine) spare(now time.Duration) (is bool, wake time.Duration) {
	for _, r := range m.view.records {
		if r.Name == m.name || !r.Stays() {
			continue
		}
		until := m.history.doubtedUntil(*r)
		if until <= now {
			return true, 0
		}
		if wake == 0 || until < wake {
			wake = until
		}
	}
	return false, wake
}

// decideLeave is for an instance that goes. If its process does not end, it waits until the caches
// of whoever takes over are full, as a donor does; one whose record was deleted, not for ever.
func (m *Machine) decideLeave(self Record, handovers []Handover, in Input, d *Decision) {
	l := &m.leave
	d.Phase = shardingv1alpha1.InstanceLeaving
	if giving := m.toGive(handovers); giving == nil || !m.give.of(giving) {
		m.endGive()
	} else if m.give.Draining {
		// The grant may be under way.
		d.Open = d.Open.Intersect(in.Serving)
	}
	// A predecessor that leaves may rely on these caches.
	d.Follow = d.Follow.Union(m.withoutLeaving().Owned(m.name).Intersect(self.Cached.Union(in.Announced)))
	if !l.Shut {
		limit := m.limits.Leave
		if !l.Hurries {
			limit = m.limits.Fill
		}
		switch {
		case m.warmWithout(in.Serving.Union(d.Open)):
		case !l.Hurries && !self.Deleting:
			d.Waits = true
			return
		case in.Now-l.Since < limit:
			d.waitUntil(l.Since + limit)
			return
		}
		inVain := len(in.Stuck) > 0 && (!self.Deleting || in.Now-l.Since < limit)
		if !l.Hurries && (inVain || len(in.Slow) > 0 && m.holds(&l.HeldSince, in.Now)) {
			d.waitUntil(in.Now + time.Second)
			return
		}
		// As in decideGive.
		l.Shut, l.ShutSince = true, in.Now
		d.Open = nil
		d.waitUntil(in.Now)
		return
	}
	d.Open = nil
	switch {
	case in.idle(hashkey.All()):
		d.Write = &Write{Reason: ReasonLeave, Name: self.Name, UID: self.UID, Generation: self.Generation, Delete: true}
	case l.Hurries || self.Deleting && in.Now-l.Since >= m.limits.Fill:
	case in.Now-l.ShutSince >= m.limits.Step:
		// The work may be long, and nobody does that of the other keys meanwhile.
		m.reopen()
		d.waitUntil(in.Now)
	default:
		d.waitUntil(l.ShutSince + m.limits.Step)
	}
}

// warmWithout says whether whoever takes this instance's range over has filled its caches,
// or there is nobody to wait for: the successor among those that stay or, where no owner
// stays, the oldest that joins. Which of them that is only they know themselves; it is the
// one that follows everything.
func (m *Machine) warmWithout(serving hashkey.Ranges) bool {
	staying := m.withoutLeaving()
	if m.view.Owned(m.name).Empty() {
		return true
	}
	if successor, ok := staying.Successor(m.name); ok {
		return successor.Cached.Covers(staying.Without(m.name).Owned(successor.Name).Intersect(serving))
	}
	joining := false
	for _, r := range staying.Records() {
		if r.Key == nil && !r.leaving() {
			if r.Cached.Covers(serving) {
				return true
			}
			joining = true
		}
	}
	return !joining
}
