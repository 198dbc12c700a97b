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
	"sort"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/ring/identity"
)

// Machine decides for one instance: what its caches should follow, which keys may
// be worked on, and what to write next. It is driven by the registry's log and by
// what the instance knows of itself; it has no client, no goroutine and no clock.
// It is not safe for concurrent use.
//
// Which keys an instance may work on follows from its view of the log, but for
// what it is giving away: this it stops working on first, and does not begin
// again until the log shows how the handover was closed, since a write may be
// applied though its answer was lost. The same holds for who takes over from a
// dead instance: what that one may have been giving away is not begun before the
// handover is closed. So a write of a dead instance that arrives late gives away
// only what nobody works on.
type Machine struct {
	name   string
	limits Limits

	view *View
	// older holds the instances that were registered before this one and are
	// still there. Its first view is the registry as of its own creation, which
	// is why it can know. The slice is never changed in place.
	older []identity.Identity
	// gainedAt is the revision at which the owned keys last became more.
	gainedAt int64

	// give is the handover in which this instance is the giver, wait what it waits
	// for as the taker, leave its own leaving.
	give  give
	wait  waiting
	leave leaving
}

// Limits bound the waiting for peers.
type Limits struct {
	// Step bounds each step of a handover.
	Step time.Duration
	// Leave bounds how long an instance that leaves waits for its successor to
	// fill its caches.
	Leave time.Duration
}

// give is the giver's side of a handover. Without one it is zero.
type give struct {
	record   identity.Identity
	key      int64
	since    time.Duration
	draining bool
	// drainingSince is when the gate was told to shut for the taker's share.
	drainingSince time.Duration
}

// of says whether it is about this handover.
func (g *give) of(h *handover) bool {
	return g.record == (identity.Identity{Name: h.record.Name, UID: h.record.UID}) && g.key == *h.record.Next
}

// waiting is the taker's side. While it waits for nobody it is zero.
type waiting struct {
	// peer has to name a key or, if named, to grant the one that it has named.
	peer  string
	named bool
	key   int64
	since time.Duration
}

type leaving struct {
	begun bool
	since time.Duration
	// shut is set once the gate has been told to shut for good.
	shut bool
}

// Input is what an instance knows of itself when it decides.
type Input struct {
	// Now is the time since some fixed instant, on a monotonic clock.
	Now time.Duration
	// Leaving says that the instance is asked to leave the ring. It stays true.
	Leaving bool
	// Serving holds the keys for which the gate is open.
	Serving hashkey.Ranges
	// Idle says whether the gate is shut for these keys and nothing of them is in
	// work any more.
	Idle func(hashkey.Ranges) bool
	// Keys returns the hash keys of the controller's objects in these ranges, in
	// any order. It is asked only when a range is to be split.
	Keys func(hashkey.Ranges) []int64
}

// Decision is what follows from the log and an Input.
type Decision struct {
	// Gone says that the instance's record is not in the registry any more: its
	// gate must be shut, and it has to register anew. Nothing else is set then.
	Gone bool
	// Phase is the one to report.
	Phase shardingv1alpha1.InstancePhase
	// Owned holds the keys that the log says are this instance's.
	Owned hashkey.Ranges
	// Follow holds the keys that the caches should follow.
	Follow hashkey.Ranges
	// Open holds the keys that may be worked on. What is not in it must be shut at
	// once; what is newly in it may be opened when the caches hold it as of Since
	// or later.
	Open hashkey.Ranges
	// Since is the revision of the log that gave the newest of the keys in Open.
	Since int64
	// Write is the next write to make; nil: none.
	Write *Write
	// Wake is when to decide again though nothing has happened, as Input.Now
	// counts; 0: there is no such time.
	Wake time.Duration
}

// Write is one write to the registry. It is only valid for the record that it was
// decided on: both UID and, but for a deletion, the revision must still be the same.
type Write struct {
	// Reason is one of the Reason constants, Detail a sentence for people where
	// the reason does not say all.
	Reason, Detail string
	// Name, UID and Revision are the record to write and what it was decided on.
	Name     string
	UID      types.UID
	Revision int64
	// Delete deletes the record. Otherwise Key, Next and Donor are its new values.
	Delete bool
	Key    *int64
	Next   *int64
	Donor  string
}

// The reasons for a write.
const (
	ReasonFirst   = "first"    // nobody owns a key: the oldest instance takes all
	ReasonWish    = "wish"     // a newcomer names its donor
	ReasonSplit   = "split"    // the donor names the key at which it will split its range
	ReasonGrant   = "grant"    // the donor gives a newcomer its range, after draining it
	ReasonMove    = "move"     // the donor moves the boundary to its neighbour, after draining what lies between
	ReasonCallOff = "call off" // the key that was named is taken back, by the donor or whoever has taken its place
	ReasonLeave   = "leave"    // the instance goes, after draining everything
)

// NewMachine returns the machine of the instance of that name. view must be the
// registry as of the revision that created the instance's record, the record
// included.
func NewMachine(name string, view *View, limits Limits) *Machine {
	m := &Machine{name: name, limits: limits, view: view, gainedAt: view.Revision}
	for _, r := range view.Records() {
		if r.Name != name {
			m.older = append(m.older, identity.Identity{Name: r.Name, UID: r.UID})
		}
	}
	return m
}

// View returns the log as far as the machine has seen it. It must not be changed.
func (m *Machine) View() *View { return m.view }

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

// Replace takes a whole view after a part of the log was missed. Whoever was not
// known before is younger than this instance.
func (m *Machine) Replace(view *View) {
	m.advance(view)
	// Keys may have gone and come back unseen.
	m.gainedAt = view.Revision
}

func (m *Machine) advance(next *View) {
	before := m.view.Owned(m.name)
	m.view = next
	gone := func(i identity.Identity) bool {
		r, ok := next.Get(i.Name)
		return !ok || r.UID != i.UID
	}
	if slices.ContainsFunc(m.older, gone) {
		m.older = slices.DeleteFunc(slices.Clone(m.older), gone)
	}
	if !before.Covers(next.Owned(m.name)) {
		m.gainedAt = next.Revision
	}
}

// Decide returns what is to be done now. What it decides about waiting and
// draining it remembers, so each decision must be carried out before the next.
func (m *Machine) Decide(in Input) Decision {
	self, ok := m.view.Get(m.name)
	if !ok {
		return Decision{Gone: true}
	}
	owned := m.view.Owned(m.name)
	d := Decision{Since: m.gainedAt, Owned: owned, Open: owned, Follow: owned}
	handovers := m.view.handovers()
	for i := range handovers {
		h := &handovers[i]
		if h.taker == m.name {
			// The caches are filled while the giver works on.
			d.Follow = d.Follow.Union(h.after.Owned(m.name))
		}
		if m.inherited(h) {
			d.Open = d.Open.Minus(h.share(m.name, owned).Minus(in.Serving))
		}
	}
	if in.Leaving && !m.leave.begun {
		m.leave = leaving{begun: true, since: in.Now}
	}
	switch {
	case m.leave.begun:
		m.decideLeave(self, in, &d)
	case self.Key == nil:
		m.decideJoin(self, handovers, in, &d)
	default:
		m.decideOwner(self, handovers, in, &d)
	}
	return d
}

// inherited says whether a former owner of what is now this instance's may have
// sent a grant: a donor that has gone, or for a boundary that moves up another
// successor. Only what this instance serves already is then known to be its own.
func (m *Machine) inherited(h *handover) bool {
	return h.kind == moveUp && h.giver == m.name || h.kind == void && h.record.Key == nil && h.closer == m.name
}

// callOff closes a handover without a grant.
func (m *Machine) callOff(r Record, detail string) *Write {
	w := write(ReasonCallOff, r, r.Key, nil, r.Donor)
	w.Detail = detail
	return w
}

// await notes for whom this instance waits, and returns since when.
func (m *Machine) await(w waiting, now time.Duration) time.Duration {
	w.since = m.wait.since
	if m.wait != w {
		w.since = now
		m.wait = w
	}
	return w.since
}

// decideJoin is for an instance that owns nothing yet.
func (m *Machine) decideJoin(self Record, handovers []handover, in Input, d *Decision) {
	d.Phase = shardingv1alpha1.InstanceInit
	if self.Next != nil {
		d.Phase = shardingv1alpha1.InstanceLocked
	}
	if len(m.view.Ring()) == 0 {
		m.decideFirst(self, handovers, d)
		return
	}
	since := m.await(waiting{peer: self.Donor, named: self.Next != nil}, in.Now)
	limit := m.limits.Step
	if self.Next != nil {
		limit = m.grantLimit()
	}
	overdue := in.Now-since >= limit
	best, found := m.bestDonor("")
	if overdue {
		if other, ok := m.bestDonor(self.Donor); ok {
			best, found = other, true
		}
	} else {
		d.wakeAt(since + limit)
	}
	if !found {
		return
	}
	present, eligible := m.donor(self.Donor)
	switch {
	case !eligible, overdue && (self.Next != nil || best.Name != self.Donor), self.Next == nil && m.clearlyBetter(best, present):
		d.Write = write(ReasonWish, self, nil, nil, best.Name)
	}
}

// decideFirst is for an instance on a ring where nobody owns a key. What dead
// donors may have granted is closed before the oldest instance takes everything.
func (m *Machine) decideFirst(self Record, handovers []handover, d *Decision) {
	m.wait = waiting{}
	if len(m.older) > 0 {
		return
	}
	for i := range handovers {
		if r := handovers[i].record; r.Name != m.name {
			d.Write = m.callOff(r, m.view.whyVoid(r))
			return
		}
	}
	all := hashkey.Max
	d.Write = write(ReasonFirst, self, &all, nil, "")
}

// grantLimit bounds the waiting for a grant. The giver has time limits of its own
// for both of its steps; only if those have passed as well has it been lost.
func (m *Machine) grantLimit() time.Duration { return 3 * m.limits.Step }

// bestDonor returns the instance with most to give, other than except: by
// workloads, then by the width of its range.
func (m *Machine) bestDonor(except string) (Record, bool) {
	var best Record
	found := false
	for _, r := range m.view.Ring() {
		if _, eligible := m.donor(r.Name); !eligible || r.Name == except {
			continue
		}
		if !found || r.Workloads > best.Workloads ||
			r.Workloads == best.Workloads && m.view.Owned(r.Name).Width() > m.view.Owned(best.Name).Width() {
			best, found = r, true
		}
	}
	return best, found
}

// donor returns the record of that name and whether it can be asked for a part of
// its range.
func (m *Machine) donor(name string) (Record, bool) {
	r, ok := m.view.Get(name)
	working := r.Phase == shardingv1alpha1.InstanceActive || r.Phase == shardingv1alpha1.InstanceWait
	return r, ok && name != m.name && r.Key != nil && working && m.view.Owned(name).Width() >= 2
}

// clearlyBetter keeps newcomers from changing their minds with every heartbeat.
func (m *Machine) clearlyBetter(a, b Record) bool {
	if a.Workloads != b.Workloads {
		return a.Workloads > 2*b.Workloads
	}
	return m.view.Owned(a.Name).Width()/2 >= m.view.Owned(b.Name).Width()
}

// decideOwner is for an instance that owns a range and stays.
func (m *Machine) decideOwner(self Record, handovers []handover, in Input, d *Decision) {
	// What comes from predecessors that are about to go is cached while they work.
	d.Follow = d.Follow.Union(m.withoutLeaving().Owned(m.name))
	d.Phase = shardingv1alpha1.InstanceActive
	if in.Serving.Empty() {
		d.Phase = shardingv1alpha1.InstanceLocked
	}

	// One handover at a time, to its end: what has been granted already may not be
	// known yet.
	var giving *handover
	var callOff *Write
	wait := false
	for i := range handovers {
		h := &handovers[i]
		switch {
		case h.giver == m.name:
			if giving == nil || !m.give.of(giving) && (m.give.of(h) || h.kind < giving.kind) {
				giving = h
			}
		case h.kind == void && h.closer == m.name:
			callOff = m.callOff(h.record, m.view.whyVoid(h.record))
		case h.kind == moveUp && h.taker == m.name:
			wait = true
			since := m.await(waiting{peer: h.giver, named: true, key: *self.Next}, in.Now)
			if in.Now-since >= m.grantLimit() {
				callOff = m.callOff(self, h.giver+" has not given up its part in time")
			} else {
				d.wakeAt(since + m.grantLimit())
			}
		}
	}
	if !wait {
		m.wait = waiting{}
	}
	if giving != nil {
		m.decideGive(giving, in, d)
	} else {
		m.give = give{}
	}
	switch {
	case callOff != nil:
		d.Write = callOff
	case giving == nil:
		m.decideSplit(in, d)
	}
}

// decideGive takes a handover on from the giver's side.
func (m *Machine) decideGive(h *handover, in Input, d *Decision) {
	if !m.give.of(h) {
		m.give = give{record: identity.Identity{Name: h.record.Name, UID: h.record.UID}, key: *h.record.Next, since: in.Now}
	}
	g := &m.give
	// The share is looked at anew each time: a predecessor's death puts the dead
	// one's range into it.
	share := h.share(m.name, d.Owned)
	asked := g.draining
	if !g.draining {
		taker, _ := m.view.Get(h.taker)
		if !taker.Cached.Covers(share) && !in.Serving.Intersect(share).Empty() && in.Now-g.since < m.limits.Step {
			d.wakeAt(g.since + m.limits.Step)
			return
		}
		g.draining, g.drainingSince = true, in.Now
	}
	d.Phase = shardingv1alpha1.InstanceWait
	d.Open = d.Open.Minus(share)
	switch {
	case !asked:
		// The gate is shut with this decision; what is in work is asked for in the next.
		d.wakeAt(in.Now)
	case in.Idle(share) && h.kind == join:
		d.Write = write(ReasonGrant, h.record, h.record.Next, nil, h.record.Donor)
	case in.Idle(share):
		d.Write = write(ReasonMove, h.record, h.record.Next, nil, h.record.Donor)
	case in.Now-g.drainingSince >= m.limits.Step:
		d.Write = m.callOff(h.record, "work in the range has not ended in time")
	default:
		d.wakeAt(g.drainingSince + m.limits.Step)
	}
}

// decideSplit names a key for the next newcomer that wishes one of this instance.
func (m *Machine) decideSplit(in Input, d *Decision) {
	if d.Phase != shardingv1alpha1.InstanceActive || d.Owned.Width() < 2 {
		return
	}
	for _, r := range m.view.Records() {
		if r.Donor != m.name || r.Key != nil || r.Phase == shardingv1alpha1.InstanceLeaving {
			continue
		}
		key := split(d.Owned, m.view, m.name, in.Keys(d.Owned))
		d.Write = write(ReasonSplit, r, nil, &key, r.Donor)
		return
	}
}

// split returns the key at which the owner's range is cut: the newcomer gets
// what lies up to and with it. It is the median of the keys of the owner's
// objects, so that each side has half of them, or the middle of the range where
// they tell nothing. owned holds two keys or more; the result is never the
// owner's own key.
func split(owned hashkey.Ranges, view *View, owner string, keys []int64) int64 {
	record, _ := view.Get(owner)
	last := *record.Key
	// Distances along the ring from the first key of the range, which may lie
	// above the last one if the range goes round the seam. (last+1) - width is
	// that first key, modulo the line's length.
	const mask = hashkey.Limit - 1
	width := owned.Width()
	first := (uint64(last) + 1 - width) & mask
	distance := func(key int64) uint64 { return (uint64(key) - first) & mask }
	at := width/2 - 1
	if len(keys) >= 2 {
		sort.Slice(keys, func(i, j int) bool { return distance(keys[i]) < distance(keys[j]) })
		if median := distance(keys[len(keys)/2-1]); median < width-1 {
			at = median
		}
	}
	return int64((first + at) & mask)
}

// decideLeave is for an instance that goes.
func (m *Machine) decideLeave(self Record, in Input, d *Decision) {
	d.Phase = shardingv1alpha1.InstanceLeaving
	if m.give.draining {
		// The grant may be under way.
		d.Open = d.Open.Intersect(in.Serving)
	}
	staying := m.withoutLeaving()
	successor, ok := staying.Successor(m.name)
	warm := !ok || successor.Cached.Covers(staying.Without(m.name).Owned(successor.Name))
	shut := m.leave.shut
	if !shut && !warm && in.Now-m.leave.since < m.limits.Leave {
		d.wakeAt(m.leave.since + m.limits.Leave)
		return
	}
	m.leave.shut = true
	d.Open = nil
	switch {
	case !shut:
		// As in decideGive.
		d.wakeAt(in.Now)
	case in.Idle(hashkey.All()):
		d.Write = &Write{Reason: ReasonLeave, Name: self.Name, UID: self.UID, Revision: self.Revision, Delete: true}
	}
}

// withoutLeaving is the view as it will be when all others that are leaving have
// gone.
func (m *Machine) withoutLeaving() *View {
	view := m.view
	for _, r := range m.view.Ring() {
		if r.Name != m.name && r.Phase == shardingv1alpha1.InstanceLeaving {
			view = view.Without(r.Name)
		}
	}
	return view
}

func write(reason string, r Record, key, next *int64, donor string) *Write {
	return &Write{Reason: reason, Name: r.Name, UID: r.UID, Revision: r.Revision, Key: key, Next: next, Donor: donor}
}

func (d *Decision) wakeAt(at time.Duration) {
	if d.Wake == 0 || at < d.Wake {
		d.Wake = max(at, 1)
	}
}
