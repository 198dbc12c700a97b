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

	"k8s.io/apimachinery/pkg/hashkey"
)

// Machine decides for one instance: what its caches should follow, which keys may
// be worked on, and what to write next. It is driven by the registry's log and by
// what the instance knows of itself; it has no client, no goroutine and no clock.
// It is not safe for concurrent use.
//
// Its view of the log says which keys an instance may work on, with one exception:
// what it gives away it stops working on first. Once that work has ended it raises its
// epoch, in the report that says what it gives: of what it sent before, nothing is stored
// any more. It takes that up again only when the handover is over and the log shows that
// its record gives nothing, so that a grant on its way is refused. A grant of a dead donor
// is refused as well, since no record gives it.
type Machine struct {
	name   string
	limits Limits

	view *View
	// registeredBefore holds the instances of the first view, which is the registry as of this
	// instance's creation, but for those that were seen to be gone. It is never changed in place.
	registeredBefore []registration
	// gainedAt is the revision at which there were last more keys to work on: more were
	// owned, or a handover ended that this instance drained for, or the record came to show
	// its epoch. What the controller remembered of the drained keys is void, so its caches
	// must hold its own last work there, as they must hold another's.
	gainedAt int64
	// follow is what the caches were last told to follow.
	follow hashkey.Ranges
	// fill is what it does about keys that it owns and does not hold.
	fill filling
	// vacated are the keys in its range where those of others ended that have gone. It is never
	// changed in place.
	vacated []int64
	// epoch rises with each handover for which this instance has drained, and with each
	// call of Raise. It never falls.
	epoch int64
	// history says which processes have died young.
	history history
	// give is the handover in which this instance is the donor, wait what it waits
	// for as the receiver, leave its own leaving.
	give  give
	wait  waiting
	leave leaving
	// slow is the donor that has let this instance wait, as long as it waits for another.
	slow string
	// rests is until when it names no key for that instance, or for any: the zero registration. The
	// map is never changed in place.
	rests map[registration]time.Duration
	// failed is how often that one has not filled its caches in time. The map is never changed in
	// place.
	failed map[registration]int
	// began is when it decided first; zero: it has not.
	began time.Duration
	// moved is when it last saw that keys change hands, or began; moves says that they have since.
	moved time.Duration
	moves bool
	// redirected is since when that one, which joins, has asked for a part though another owns what it
	// holds. The map is never changed in place.
	redirected map[registration]time.Duration
}

// Limits bound the waiting for peers.
type Limits struct {
	// Step bounds each step of a handover.
	Step time.Duration
	// Fill bounds how long a donor that works on a share waits until the receiver has filled
	// its caches, at least Step.
	Fill time.Duration
	// Leave bounds how long an instance whose process ends waits for its successor to
	// fill its caches. One that has lost its record waits for others that have for half of it.
	Leave time.Duration
	// Piece is the least number of keys that are filled at once.
	Piece uint64
}

// give is the donor's side of a handover. Without one it is zero.
type give struct {
	// Record and Key name the handover.
	Record registration
	Key    int64
	// Since is when it was taken up.
	Since    time.Duration
	Draining bool
	// DrainingSince is when the gate was told to shut for the receiver's share.
	DrainingSince time.Duration
	// HeldSince is since when slow work has kept it from draining; zero: none does.
	HeldSince time.Duration
	// Gives is set once the work in the share has ended, at GivesSince.
	Gives      *Gift
	GivesSince time.Duration
	// Ends says that this instance has called it off before it drained.
	Ends bool
}

// of says whether it is about this handover.
func (g *give) of(h *Handover) bool {
	return g.Record == h.Record.registration() && g.Key == *h.Record.Next
}

// openIn says whether the handover is open in that view.
func (g *give) openIn(view *View) bool {
	r, ok := view.Get(g.Record.Name)
	return ok && r.registration() == g.Record && r.Next != nil && *r.Next == g.Key
}

// waiting is the receiver's side. While it waits for nobody it is zero.
type waiting struct {
	// Peer has to name a key or, if Named, to grant the one that it has named.
	Peer  string
	Named bool
	Key   int64
	Since time.Duration
}

type leaving struct {
	Begun bool
	Since time.Duration
	// Hurries says that the process is about to end.
	Hurries bool
	// HeldSince is since when slow work has kept it from that; zero: none does.
	HeldSince time.Duration
	// Shut is set once the gate has been told to shut, at ShutSince.
	Shut      bool
	ShutSince time.Duration
}

// NewMachine returns the machine of the instance of that name. view must be the
// registry as of the revision that created the instance's record, that record
// included.
func NewMachine(name string, view *View, limits Limits) *Machine {
	m := &Machine{name: name, limits: limits, view: view, gainedAt: view.Revision}
	for _, r := range view.Records() {
		if r.Name != name {
			m.registeredBefore = append(m.registeredBefore, r.registration())
		}
	}
	return m
}

// View returns the log as far as the machine has seen it. It must not be changed.
func (m *Machine) View() *View { return m.view }

// Epoch returns the instance's epoch, whether or not its record has it yet.
func (m *Machine) Epoch() int64 { return m.epoch }

// Raise raises the instance's epoch: once its record has the new one, nothing is stored of
// what it sent before.
func (m *Machine) Raise() {
	self, _ := m.view.Get(m.name)
	m.epoch = max(m.epoch, self.Epoch) + 1
}

// Apply takes the log's next event, a record that was created or changed.
func (m *Machine) Apply(r Record) {
	next := m.view.With(r)
	next.Revision = r.Revision
	m.advance(next)
}

// Remove takes the log's next event, a record that was deleted or has expired,
// at that revision.
func (m *Machine) Remove(name string, revision int64) {
	next := *m.view.Without(name)
	next.Revision = revision
	m.advance(&next)
}

// Replace takes a whole view after a part of the log was missed. An instance that
// was not known before is younger than this one.
func (m *Machine) Replace(view *View) {
	m.advance(view)
	// Keys may have gone and come back unseen.
	m.gainedAt = view.Revision
}

func (m *Machine) advance(next *View) {
	grew := !m.view.Owned(m.name).Covers(next.Owned(m.name))
	self, _ := m.view.Get(m.name)
	then, _ := next.Get(m.name)
	// Until its own record shows its epoch, a request of an earlier one can still be stored,
	// and until it gives nothing, so can a grant.
	if grew || m.give.Draining && !m.give.openIn(next) || !then.Report.Equal(self.Report) {
		m.gainedAt = next.Revision
	}
	m.moves = m.moves || !next.hasRingOf(m.view)
	m.fill.observe(m.view, next, m.name, m.follow)
	m.vacated = vacated(m.vacated, m.view, next, m.name)
	m.view = next
}

// older returns the instances that registered before this one and are still there. A registration
// that has gone does not come back, so it does not matter when that is seen.
func (m *Machine) older() []registration {
	gone := func(older registration) bool {
		r, ok := m.view.Get(older.Name)
		return !ok || r.UID != older.UID
	}
	if slices.ContainsFunc(m.registeredBefore, gone) {
		m.registeredBefore = slices.DeleteFunc(slices.Clone(m.registeredBefore), gone)
	}
	return m.registeredBefore
}

// Decide returns what is to be done now. The machine remembers what it has decided
// about waiting and draining, so each decision must be carried out before the next.
func (m *Machine) Decide(in Input) Decision {
	self, ok := m.view.Get(m.name)
	if !ok {
		return Decision{Gone: true}
	}
	// Whoever else has raised it, requests of less are refused.
	m.epoch = max(m.epoch, self.Epoch)
	if m.began == 0 {
		m.began, m.moves = max(in.Now, 1), true
	}
	if m.moves {
		m.moved, m.moves = max(in.Now, 1), false
	}
	owned := m.view.Owned(m.name)
	handovers := m.view.Handovers()
	m.decideFill(self, in, owned, handovers)
	filled := owned.Minus(m.fill.Unfilled)
	d := Decision{Since: m.gainedAt, Owned: owned, Open: filled, Follow: filled}
	for i := range handovers {
		h := &handovers[i]
		if h.Receiver == m.name {
			// The caches are filled while the donor works on.
			d.Follow = d.Follow.Union(m.toReceive(self, h, in))
		}
	}
	m.history.observe(m.view, in.Now)
	m.decideToLeave(self, in, &d)
	switch {
	case m.leave.Begun:
		m.decideLeave(self, handovers, in, &d)
	case self.Key == nil:
		m.decideJoin(self, handovers, in, &d)
	default:
		m.decideOwner(self, handovers, in, &d)
	}
	d.Report = Report{Epoch: m.epoch, Gives: m.give.Gives}
	if !self.Report.Equal(d.Report) {
		d.Open = d.Open.Intersect(in.Serving)
	}
	m.follow = d.Follow
	return d
}

// await notes what this instance waits for, and returns since when.
func (m *Machine) await(w waiting, now time.Duration) time.Duration {
	w.Since = m.wait.Since
	if m.wait != w {
		w.Since = now
		m.wait = w
	}
	return w.Since
}

// grantLimit bounds the waiting for a grant. The donor has time limits of its own
// for each of its steps; only if those have passed as well has it been lost.
func (m *Machine) grantLimit() time.Duration { return m.limits.Fill + 3*m.limits.Step }

// withoutLeaving is the view as it will be when all others that are leaving have
// gone.
func (m *Machine) withoutLeaving() *View {
	goes := func(r *Record) bool { return r.Name != m.name && r.Key != nil && r.leaving() }
	if !slices.ContainsFunc(m.view.records, goes) {
		return m.view
	}
	return newView(m.view.Revision, slices.DeleteFunc(slices.Clone(m.view.records), goes))
}
