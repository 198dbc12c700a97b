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
	"sort"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
)

// Machine decides for one instance: what its caches should follow, which keys may
// be worked on, and what to write next. It is driven by the registry's log and by
// what the instance knows of itself; it has no client, no goroutine and no clock.
// It is not safe for concurrent use.
type Machine struct {
	name   string
	limits Limits

	view *View
	// older holds the instances that were registered before this one and are
	// still there. Its first view is the registry as of its own creation, which
	// is why it can know.
	older map[string]types.UID
	// gainedAt is the revision at which the owned keys last became more.
	gainedAt int64
	// refused is set when the record's key was written by somebody who did not
	// own it then: a donor whose record had gone before its write arrived. Such a
	// key is given back unused.
	refused bool

	handover *handover
	// wish is when the instance began to wait for its present donor.
	wish *wish
	// leave is when the instance began to leave.
	leave *leave
}

// Limits bound the waiting for peers.
type Limits struct {
	// Step bounds each step of a handover.
	Step time.Duration
	// Leave bounds how long an instance that leaves waits for its successor to
	// fill its caches.
	Leave time.Duration
}

// handover is the donor's side of one.
type handover struct {
	receiver string
	uid      types.UID
	key      int64
	since    time.Duration
	// draining is set once the gate has been told to shut for what the receiver
	// gets. From then on it stays shut until the log shows how it ended, since
	// the granting write may have been applied though its answer was lost.
	draining      bool
	drainingSince time.Duration
}

type wish struct {
	donor  string
	locked bool
	since  time.Duration
}

type leave struct {
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
	// Reason says in a word or two why, for logs and tests.
	Reason string
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
	ReasonGrant   = "grant"    // the donor gives the range away, after draining it
	ReasonCallOff = "call off" // the donor takes back the key that it named
	ReasonRefuse  = "refuse"   // a key that was granted by a non-owner is given back
	ReasonLeave   = "leave"    // the instance goes, after draining everything
)

// NewMachine returns the machine of the instance of that name. view must be the
// registry as of the revision that created the instance's record, the record
// included.
func NewMachine(name string, view *View, limits Limits) *Machine {
	older := map[string]types.UID{}
	for _, r := range view.Records() {
		if r.Name != name {
			older[r.Name] = r.UID
		}
	}
	return &Machine{name: name, limits: limits, view: view, older: older}
}

// View returns the log as far as the machine has seen it. It must not be changed.
func (m *Machine) View() *View { return m.view }

// Apply takes the log's next event, a record that was created or changed.
func (m *Machine) Apply(r Record) {
	before := m.view.Owned(m.name)
	if r.Name == m.name {
		m.judge(r, m.view)
	}
	next := m.view.With(r)
	next.Revision = r.Revision
	m.advance(next, before)
}

// Remove takes the log's next event, a record that was deleted or has expired,
// at that revision.
func (m *Machine) Remove(name string, revision int64) {
	before := m.view.Owned(m.name)
	next := m.view.Without(name)
	next.Revision = revision
	m.advance(next, before)
}

// Replace takes a whole view after a part of the log was missed. Whoever was not
// known before is younger than this instance.
func (m *Machine) Replace(view *View) {
	before := m.view.Owned(m.name)
	if r, ok := view.Get(m.name); ok {
		// The view in which the key was written is not known: without an own
		// grant the key cannot be trusted.
		m.judge(r, nil)
	}
	m.advance(view, before)
}

func (m *Machine) advance(next *View, before hashkey.Ranges) {
	m.view = next
	for name, uid := range m.older {
		if r, ok := next.Get(name); !ok || r.UID != uid {
			delete(m.older, name)
		}
	}
	if !before.Covers(next.Owned(m.name)) {
		m.gainedAt = next.Revision
	}
}

// judge decides whether the key that comes with r may be used. A key that is new
// to the record is good if the instance has given it to itself, being the first
// (it names no donor then), or if the donor was alive and owned the key in the
// view that the write came upon.
func (m *Machine) judge(r Record, cameUpon *View) {
	known, ok := m.view.Get(m.name)
	switch {
	case r.Key == nil:
		m.refused = false
	case ok && known.Key != nil:
		// Judged before.
	case r.Donor == "":
	case cameUpon == nil || !cameUpon.Owned(r.Donor).Contains(*r.Key):
		m.refused = true
	}
}

// Decide returns what is to be done now. What it decides about waiting and
// draining it remembers, so each decision must be carried out before the next.
func (m *Machine) Decide(in Input) Decision {
	self, ok := m.view.Get(m.name)
	if !ok {
		return Decision{Gone: true}
	}
	d := Decision{Since: m.gainedAt}
	if m.refused {
		d.Phase = shardingv1alpha1.InstanceInit
		d.Write = write(ReasonRefuse, self, nil, nil, "")
		return d
	}
	d.Owned = m.view.Owned(m.name)
	d.Open = d.Owned
	d.Follow = d.Owned
	if in.Leaving && m.leave == nil {
		m.leave = &leave{since: in.Now}
	}
	switch {
	case m.leave != nil:
		m.decideLeave(self, in, &d)
	case self.Key == nil:
		m.decideJoin(self, in, &d)
	default:
		m.decideOwner(self, in, &d)
	}
	return d
}

// decideJoin is for an instance that owns nothing yet.
func (m *Machine) decideJoin(self Record, in Input, d *Decision) {
	d.Phase = shardingv1alpha1.InstanceInit
	if len(m.view.Ring()) == 0 {
		m.wish = nil
		if len(m.older) == 0 {
			all := hashkey.Max
			d.Write = write(ReasonFirst, self, &all, nil, "")
		}
		return
	}
	locked := self.Next != nil
	if locked {
		d.Phase = shardingv1alpha1.InstanceLocked
		granted := self
		granted.Key, granted.Next = self.Next, nil
		d.Follow = m.view.With(granted).Owned(m.name)
	}
	if m.wish == nil || m.wish.donor != self.Donor || m.wish.locked != locked {
		m.wish = &wish{donor: self.Donor, locked: locked, since: in.Now}
	}
	// A donor that has named a key has its own time limits for both of its steps;
	// only if those have passed as well has it been lost.
	limit := m.limits.Step
	if locked {
		limit *= 3
	}
	overdue := in.Now-m.wish.since >= limit
	best, found := m.bestDonor("")
	if overdue {
		if other, ok := m.bestDonor(self.Donor); ok {
			best, found = other, true
		}
	} else {
		d.wakeAt(m.wish.since + limit)
	}
	if !found {
		return
	}
	present, eligible := m.donor(self.Donor)
	switch {
	case !eligible, overdue && (locked || best.Name != self.Donor), !locked && m.clearlyBetter(best, present):
		d.Write = write(ReasonWish, self, nil, nil, best.Name)
	}
}

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
func (m *Machine) decideOwner(self Record, in Input, d *Decision) {
	m.wish = nil
	// What comes from predecessors that are about to go is cached while they work.
	d.Follow = d.Follow.Union(m.withoutLeaving().Owned(m.name))
	d.Phase = shardingv1alpha1.InstanceActive
	if !d.Owned.Empty() && in.Serving.Empty() {
		d.Phase = shardingv1alpha1.InstanceLocked
	}

	receiver, open := m.receiver()
	if m.handover != nil && (!open || receiver.Name != m.handover.receiver || receiver.UID != m.handover.uid || *receiver.Next != m.handover.key) {
		m.handover = nil
	}
	if !open {
		m.decideSplit(in, d)
		return
	}
	if m.handover == nil {
		m.handover = &handover{receiver: receiver.Name, uid: receiver.UID, key: *receiver.Next, since: in.Now}
	}
	h := m.handover

	granted := receiver
	granted.Key, granted.Next = receiver.Next, nil
	after := m.view.With(granted)
	// The receiver's share is looked at anew each time: a predecessor's death puts
	// the dead one's range into it.
	share := d.Owned.Minus(after.Owned(m.name))
	if h.key == *self.Key || !d.Owned.Contains(h.key) {
		d.Write = write(ReasonCallOff, receiver, nil, nil, receiver.Donor)
		return
	}

	draining := h.draining
	if !h.draining && (receiver.Cached.Covers(share) || in.Now-h.since >= m.limits.Step) {
		h.draining, h.drainingSince = true, in.Now
	}
	if !h.draining {
		d.wakeAt(h.since + m.limits.Step)
		return
	}
	d.Phase = shardingv1alpha1.InstanceWait
	d.Open = d.Open.Minus(share)
	switch {
	case !draining:
		// The gate is shut with this decision; what is in work is asked for in the next.
		d.wakeAt(in.Now)
	case in.Idle(share):
		d.Write = write(ReasonGrant, receiver, receiver.Next, nil, receiver.Donor)
	case in.Now-h.drainingSince >= m.limits.Step:
		d.Write = write(ReasonCallOff, receiver, nil, nil, receiver.Donor)
	default:
		d.wakeAt(h.drainingSince + m.limits.Step)
	}
}

// receiver returns the newcomer for which this instance has named a key that is
// not granted yet.
func (m *Machine) receiver() (Record, bool) {
	for _, r := range m.view.Records() {
		if r.Donor == m.name && r.Key == nil && r.Next != nil {
			return r, true
		}
	}
	return Record{}, false
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
	staying := m.withoutLeaving()
	successor, ok := staying.Successor(m.name)
	warm := !ok || successor.Cached.Covers(staying.Without(m.name).Owned(successor.Name))
	shut := m.leave.shut
	if !m.leave.shut && (warm || in.Now-m.leave.since >= m.limits.Leave) {
		m.leave.shut = true
	}
	if !m.leave.shut {
		// A share that is being drained for a receiver stays shut.
		if m.handover != nil && m.handover.draining {
			d.Open = d.Open.Intersect(in.Serving)
		}
		d.wakeAt(m.leave.since + m.limits.Leave)
		return
	}
	d.Open = nil
	if !shut {
		d.wakeAt(in.Now)
		return
	}
	if in.Idle(hashkey.All()) {
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
