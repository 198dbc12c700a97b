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
	"fmt"
	"slices"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
)

// oldNews is how long ago a boundary has moved if those about it have most likely told what they have
// since: one that has as much as before tells nothing.
const oldNews = 30 * time.Second

// longSwing is how long many objects come and go until that no longer keeps a ring from being evened
// out: they may never cease to.
const longSwing = 3 * time.Minute

// lastLease is how long after an instance has come the record of one that crashed at its place may be
// there: a default lease ends within 7 s.
const lastLease = 8 * time.Second

// tryAgain is how long an instance that had nothing fit to give, or proposed a move, keeps to that while
// the boundaries about it stay: to look for a key it reads all of its own.
const tryAgain = 5 * time.Second

// spread is by how much later than the one before it in the ring an instance begins to move boundaries
// after an instance has come or gone.
const spread = 10 * time.Millisecond

// Balance says how an instance evens its ring out.
type Balance struct {
	Policy
	// DryRun has it decide, and write nothing.
	DryRun bool
}

// Proposal is a move of a boundary that evens the ring out.
type Proposal struct {
	Shift
	// Key is where the boundary is to be, and Given the load that changes hands by that.
	Key   int64
	Given int64
	// Has and Wanted are the load that the donor has and should have, Takes and Needs those of the
	// receiver.
	Has, Wanted, Takes, Needs int64
}

// String says what is to move, and why.
func (p *Proposal) String() string {
	return fmt.Sprintf("%s gives %d to %s: they have %d and %d, and should have %d and %d",
		p.Donor, p.Given, p.Receiver, p.Has, p.Takes, p.Wanted, p.Needs)
}

// balancing is what an instance remembers of its ring for its part in evening it out.
type balancing struct {
	// view is the ring as it was observed last.
	view *View
	// came and went are when an instance last got its first range, or had one no longer.
	came, went time.Duration
	// heaps is the last view in which that was long ago, or in which heaps could not be compared, as one
	// that comes then knows of no earlier one; the first view until then: what the others count since
	// this instance came is about the same.
	heaps *View
	// about are the keys of the predecessor's predecessor, the predecessor, the instance and the
	// successor: the bounds of three ranges. calmSince is when they were last others, or a handover
	// among them was open, calmAt the revisions at which each range was seen to be another.
	about     [4]int64
	calmSince time.Duration
	calmAt    [3]int64
	// objects is how many the ring had when these had last become more or fewer by a tenth, of that or of
	// what it is taken to have at least; steadySince is when that was, swingsSince when it first was so
	// after it had been steady.
	objects                  int64
	steadySince, swingsSince time.Duration
	// moves are those of boundaries, the latest first: all of the last minute, before that the last one of
	// each that is still there. It is never changed in place.
	moves []moved
	// planned is what was planned last; nil: nothing. It is never changed in place.
	planned *planned
	// tried is what the instance last found to give. It is never changed in place.
	tried *tried
}

// planned is a plan, and what it was made of.
type planned struct {
	view   *View
	policy Policy
	free   bool
	heaps  *View
	plan   Plan
}

// plan returns the plan for the view that was observed last. It must not be changed.
func (b *balancing) plan(policy Policy, free bool) *Plan {
	heaps := b.heaps
	if !free || !heaps.comparesHeaps() {
		heaps = nil
	}
	if p := b.planned; p == nil || p.view != b.view || p.policy != policy || p.free != free || p.heaps != heaps {
		b.planned = &planned{b.view, policy, free, heaps, b.view.Plan(policy, free, heaps)}
	}
	return &b.planned.plan
}

// tried is a look for a key to give: when it was, and what came of it, if anything. The move that is
// proposed is decided on that generation of the record.
type tried struct {
	at         time.Duration
	proposal   *Proposal
	record     registration
	generation int64
}

// stands says whether the last look for a key still counts, if these are to be given.
func (b *balancing) stands(shifts []Shift, now time.Duration) bool {
	t := b.tried
	if t == nil || t.at <= b.calmSince || now >= t.at+tryAgain {
		return false
	}
	if t.proposal == nil {
		return true
	}
	same := func(s Shift) bool { return s.Boundary == t.proposal.Boundary && s.Receiver == t.proposal.Receiver }
	r, ok := b.view.Get(t.proposal.Boundary)
	return ok && slices.ContainsFunc(shifts, same) && r.registration() == t.record && r.Generation == t.generation
}

// moved is a boundary that has moved.
type moved struct {
	at       time.Duration
	boundary string
	// up says that it has moved up, into the range of its successor.
	up    bool
	width uint64
}

// free says whether an instance has come or gone lately.
func (b *balancing) free(policy Policy, now time.Duration) bool {
	return now < max(b.came, b.went)+policy.Free
}

// forget takes the log's next view, whether or not anything is decided on it: if heaps cannot be
// compared there, all forget what they knew.
func (b *balancing) forget(next *View) {
	if b.heaps != nil && !next.comparesHeaps() {
		b.heaps = next
	}
}

// observe takes note of what has changed hands.
func (b *balancing) observe(m *Machine, balance *Balance, now time.Duration) {
	if b.view == nil {
		b.view, b.heaps, b.came = m.view, m.view, now
	}
	if before := b.view; before != m.view {
		b.view = m.view
		b.compare(before, now)
	}
	i, n := m.view.place(m.name), len(m.view.ring)
	if balance != nil && !b.free(balance.Policy, now) {
		b.heaps = m.view
	}
	if i < 0 {
		b.calmSince = now
		return
	}
	before := b.about
	for j := range b.about {
		r := m.view.ring[(i+j-2+2*n)%n]
		b.about[j] = *r.Key
		if r.stirred() {
			b.calmSince = now
		}
	}
	for j := range b.about {
		if b.about[j] == before[j] {
			continue
		}
		b.calmSince = now
		for _, bounded := range []int{j - 1, j} {
			if bounded >= 0 && bounded < len(b.calmAt) {
				b.calmAt[bounded] = m.view.Revision
			}
		}
	}
}

// stirred says that the instance hands something over, or is about to go.
func (r Record) stirred() bool {
	return r.Next != nil || r.Gives != nil || !r.stays()
}

// compare notes what has changed hands since before.
func (b *balancing) compare(before *View, now time.Duration) {
	same := func(x, y *Record) bool { return x.Name == y.Name && x.UID == y.UID && *x.Key == *y.Key }
	if slices.EqualFunc(before.ring, b.view.ring, same) {
		return
	}
	for _, r := range before.ring {
		if later, ok := b.view.Get(r.Name); !ok || later.UID != r.UID || later.Key == nil {
			b.went = now
		}
	}
	var moves []moved
	for _, r := range b.view.ring {
		former, ok := before.Get(r.Name)
		switch {
		case !ok || former.UID != r.UID || former.Key == nil:
			b.came = now
		case *former.Key != *r.Key:
			up := uint64(*r.Key-*former.Key)&(hashkey.Limit-1) < hashkey.Limit/2
			moves = append(moves, moved{now, r.Name, up, distance(*former.Key, *r.Key)})
		}
	}
	newer := map[string]bool{}
	for _, move := range moves {
		newer[move.boundary] = true
	}
	for _, move := range b.moves {
		if now-move.at < time.Minute || !newer[move.boundary] && b.view.place(move.boundary) >= 0 {
			moves = append(moves, move)
		}
		newer[move.boundary] = true
	}
	b.moves = moves
}

// count notes since when the ring has had about as many objects as now.
func (b *balancing) count(policy Policy, now time.Duration) {
	objects := b.view.total()
	if change := max(objects-b.objects, b.objects-objects); change > max(b.objects, policy.Seed*int64(len(b.view.ring)))/10 {
		if now >= b.steadySince+policy.Steady {
			b.swingsSince = now
		}
		b.objects, b.steadySince = objects, now
	}
}

// distance returns how many keys a boundary passes that moves from one key to the other, the shorter
// way round.
func distance(from, to int64) uint64 {
	return min(uint64(to-from)&(hashkey.Limit-1), uint64(from-to)&(hashkey.Limit-1))
}

// inMotion returns how many keys have moved in the last minute, or are about to.
func (b *balancing) inMotion(now time.Duration) (keys uint64) {
	for _, move := range b.moves {
		if now-move.at < time.Minute {
			keys += move.width
		}
	}
	for _, h := range b.view.Handovers() {
		if h.Kind == KindMove {
			keys += distance(*h.Record.Key, *h.Record.Next)
		}
	}
	return keys
}

// turnsBack says whether a boundary would go back after its last move, which was not long ago, though
// no more is too much, what the donor is to pass on with it, or too little than what comes and goes by
// itself. In a free plan it may undo what was before an instance came or went.
func (b *balancing) turnsBack(s Shift, plan *Plan, policy Policy, free bool, now time.Duration) bool {
	// In a ring of two, what goes over one boundary comes back over the other, too.
	i := slices.IndexFunc(b.moves, func(m moved) bool { return m.boundary == s.Boundary || len(b.view.ring) == 2 })
	if i < 0 {
		return false
	}
	last := b.moves[i]
	if same := last.up == (s.Donor != last.boundary); same || now-last.at >= policy.Back || free && last.at <= max(b.came, b.went) {
		return false
	}
	donor, receiver := plan.part(s.Donor), plan.part(s.Receiver)
	passes := donor.passes
	if s.Donor != s.Boundary {
		passes = -passes
	}
	return donor.Load+max(0, passes)-donor.Wanted-donor.grown <= 2*donor.tolerated && receiver.Wanted-receiver.Load <= 4*receiver.tolerated
}

// decideBalance names a key for a boundary of this instance's range, if the ring is to be evened out
// and nothing else is to be done: who wishes a key gets it first.
func (m *Machine) decideBalance(self Record, in Input, d *Decision) {
	if in.Balance == nil || d.Write != nil || d.Phase != shardingv1alpha1.InstanceActive || len(m.view.ring) < 2 {
		return
	}
	if _, off := m.view.BalanceOff(); off {
		return
	}
	policy, b := in.Balance.Policy, &m.balance
	b.count(policy, in.Now)
	free := b.free(policy, in.Now)
	steady := min(b.steadySince+policy.Steady, b.swingsSince+longSwing)
	due := max(b.calmSince+policy.Calm, steady, b.came+policy.AfterJoin, m.rests[registration{}])
	if b.went > 0 {
		due = max(due, b.went+policy.AfterLoss)
	}
	if due != b.calmSince+policy.Calm {
		// Else all of a large ring begin at the same moment.
		due += time.Duration(m.view.place(m.name)) * spread
	}
	if due > in.Now {
		d.wakeAt(due)
		return
	}
	if !m.told(self, 1, in.Now) {
		return
	}
	plan := b.plan(policy, free)
	mine := slices.DeleteFunc(plan.from(m.name), func(s Shift) bool {
		return !m.takes(s, in.Now) || b.turnsBack(s, plan, policy, free, in.Now)
	})
	if len(mine) == 0 {
		return
	}
	if !b.stands(mine, in.Now) {
		if limit, _ := m.allowance(policy, plan.donors(), free, in.Now); limit > 0 && in.Keys == nil {
			d.NeedsKeys = true
			return
		}
		b.tried = m.try(self, mine, plan, free, in, d.Owned)
	}
	d.wakeAt(b.tried.at + tryAgain)
	if d.Proposal = b.tried.proposal; d.Proposal == nil || in.Balance.DryRun {
		return
	}
	r, _ := m.view.Get(d.Proposal.Boundary)
	d.Write = write(ReasonBalance, r, r.Key, &d.Proposal.Key, r.Donor)
	d.Write.Detail = d.Proposal.String()
}

// try looks for a key to give, for the first of the plan's shifts for which there is one.
func (m *Machine) try(self Record, shifts []Shift, plan *Plan, free bool, in Input, owned hashkey.Ranges) *tried {
	policy := in.Balance.Policy
	limit, least := m.allowance(policy, plan.donors(), free, in.Now)
	if limit == 0 {
		return &tried{at: in.Now}
	}
	keys := m.view.load(self, policy, owned, in.keysIn(owned), in.Work)
	for _, s := range shifts {
		upper, load, most := s.Boundary == m.name, max(s.Load, (policy.Least+1)/2), plan.most(s)
		key, width, given := keys.cut(upper, load, most, limit)
		fits := given > 0 && 2*given >= policy.Least && (width >= least || 2*given >= s.Load)
		if !fits && limit >= least {
			if _, _, beyond := keys.cut(upper, load, most, hashkey.Limit); beyond > given && 2*beyond >= policy.Least {
				// The keys that may move now bring the boundary nearer to it.
				key, given = keys.reach(upper, limit)
				fits = true
			}
		}
		if !fits || m.view.CheckMove(s.Boundary, key) != nil || m.isStuck(s.Boundary, key, in.Stuck) {
			continue
		}
		r, _ := m.view.Get(s.Boundary)
		return &tried{in.Now, plan.propose(s, key, given), r.registration(), r.Generation}
	}
	return &tried{at: in.Now}
}

// told says whether the predecessor, the instance itself or the successor, by place 0 to 2, has told
// what it has since its range was another. One that has as much as before tells nothing: then that has
// to be long ago.
func (m *Machine) told(r Record, place int, now time.Duration) bool {
	return r.Revision > m.balance.calmAt[place] || m.balance.calmSince+oldNews <= now
}

// takes says whether the receiver can be given something now: it works, what it has told is not old,
// it has not let this instance wait lately, and none has come in its place.
func (m *Machine) takes(s Shift, now time.Duration) bool {
	place := 0
	if s.Boundary == m.name {
		place = 2
	}
	r, _ := m.view.Get(s.Receiver)
	return m.told(r, place, now) && r.Phase == shardingv1alpha1.InstanceActive && m.restsUntil(r, nil) <= now && !m.replaced(r, now)
}

// replaced says whether another process has come to the instance's place, or is about to: it has most
// likely crashed, and its record is not gone yet.
func (m *Machine) replaced(r Record, now time.Duration) bool {
	place, soon := Place(r.Holder), now < m.balance.came+lastLease
	return place != "" && slices.ContainsFunc(m.view.records, func(other *Record) bool {
		return (soon || other.Key == nil && !other.Drained) && other.Name != r.Name && Place(other.Holder) == place
	})
}

// donors returns how many instances may give something, at least one.
func (p *Plan) donors() uint64 {
	donors := map[string]bool{}
	for _, s := range p.Shifts {
		donors[s.Donor] = true
	}
	for _, part := range p.Parts {
		if part.surplus > 0 {
			donors[part.Name] = true
		}
	}
	return uint64(max(1, len(donors)))
}

// allowance returns how many keys this instance may move now, one of so many donors, and how many are
// worth a handover if that does not bring half of what is wanted.
func (m *Machine) allowance(policy Policy, donors uint64, free bool, now time.Duration) (limit, least uint64) {
	if free {
		return hashkey.Limit, 0
	}
	most := uint64(policy.Rate * float64(hashkey.Limit))
	return (most - min(most, m.balance.inMotion(now))) / donors, most / donors / 2
}

// propose returns the move that gives so much of the shift.
func (p *Plan) propose(s Shift, key, given int64) *Proposal {
	donor, receiver := p.part(s.Donor), p.part(s.Receiver)
	return &Proposal{Shift: s, Key: key, Given: given, Has: donor.Load, Wanted: donor.Wanted, Takes: receiver.Load, Needs: receiver.Wanted}
}
