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
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
)

// This is the world in which the exploration drives the Machine: a registry with its
// log, and up to three processes with their caches, gates and requests, which read the
// log at their own pace. A state is a value. A copy is a world of its own, and shares
// with the original only what neither changes.

const (
	// maxAlive processes run at a time. There is one more place, so that a process can
	// start while the record of one that crashed is still there.
	maxAlive = 3
	places   = maxAlive + 1
	// step is both time limits of the machines. Time passes in steps only.
	step = time.Second
)

// state is one state of the world.
type state struct {
	rules *rules
	// invariants are those that are checked.
	invariants invariant
	// lateHeld keeps what is late on its way in a fair run.
	lateHeld bool
	// trace, if not nil, takes what happens, for people.
	trace *[]string

	// balance says that the processes even out the load.
	balance bool

	// head is the registry. log holds the events that some process has not read yet.
	head *View
	log  []*logEntry
	// proc are the processes; nil: a free place. States share them, so one that changes
	// is copied first.
	proc [places]*process
	// fresh holds, for each process, the keys for which its caches hold all that others
	// have done.
	fresh [places]cellSet
	// started counts the processes ever started, and so names the next.
	started byte
	budget
}

// budget says how often things may still happen that could otherwise happen without
// end.
type budget struct {
	starts, moves, leaves, faults byte
}

// logEntry is an event of the registry's log.
type logEntry struct {
	record  Record
	deleted bool
}

// process is an instance: a Machine, with what its driver and its controller add. One
// that is not up has ended, but its record, a write or a request of it is still there.
type process struct {
	name    string
	up      bool
	machine Machine
	policy  Balancer // nil: it is not up
	read    int64
	now     time.Duration
	leaving bool
	// lapsed says that no renewal got through in time: the gate's deadline has passed.
	lapsed bool
	// undecided says that something has happened since the last decision.
	undecided bool
	wakes     bool

	// serving is what the gate is open for, busy what is still in work behind a shut
	// gate.
	serving, busy cellSet
	// stray is where a request that the process no longer knows of may still be stored,
	// of those that carry its present epoch; old is where one of an earlier epoch may.
	stray, old cellSet
	epoch      int64
	// follow is what the caches follow; they are complete for held as of revision heldAt.
	follow, held cellSet
	heldAt       int64

	// phase and owned are what the next report says.
	phase shardingv1alpha1.InstancePhase
	owned cellSet

	// flying is a write whose answer the process waits for, late one that may still
	// arrive though the process has given up on its answer. The next write waits until
	// the log has come to revision settled.
	flying, late Write
	settled      int64
	// news and lateNews are the same for the write of its report. The answer to the last
	// one said that reported is stored, at revision reportedAt.
	news, lateNews news
	reported       Report
	reportedAt     int64
}

// news is a write of the status that changes the report. Phase, caches and load, on which
// no safety rests, are stored at once when they are reported.
type news struct {
	sent bool
	Report
	// revision is that of the record that it changes, weight what it says besides.
	revision int64
	weight   int64
}

// sent says whether there is a write.
func (w *Write) sent() bool { return w.Reason != "" }

// known is the newest report of its own that the process knows to be stored.
func (p *process) known() Report {
	self, _ := p.machine.View().Get(p.name)
	if p.reportedAt > self.Revision {
		return p.reported
	}
	return self.Report
}

// effective is where a request that the process no longer knows of can still be stored: the
// transaction compares that the record is there, with no higher epoch than the request's.
func (s *state) effective(p *process) cellSet {
	r, ok := s.head.Get(p.name)
	switch {
	case s.rules.comparison && !ok:
		return 0
	case !s.rules.comparison, !s.rules.epoch, r.Epoch < p.epoch:
		return p.stray | p.old
	}
	return p.stray
}

// base is the revision before the first event in the log.
func (s *state) base() int64 { return s.head.Revision - int64(len(s.log)) }

// add appends to a copy of the log, which other states share.
func (s *state) add(e *logEntry) {
	log := make([]*logEntry, len(s.log)+1)
	copy(log, s.log)
	log[len(s.log)] = e
	s.log = log
}

func (s *state) put(r Record) {
	old, _ := s.head.Get(r.Name)
	r.Revision, r.Generation = s.head.Revision+1, nextGeneration(old, r)
	next := s.head.With(r)
	next.Revision = r.Revision
	s.head = next
	s.add(&logEntry{record: r})
}

func (s *state) remove(name string) {
	r, _ := s.head.Get(name)
	next := *s.head.Without(name)
	next.Revision++
	r.Revision = next.Revision
	s.head = &next
	s.add(&logEntry{record: r, deleted: true})
}

func (s *state) registered(p *process) bool {
	_, ok := s.head.Get(p.name)
	return ok
}

func (s *state) alive() int {
	n := 0
	for _, p := range s.proc {
		if p != nil && p.up {
			n++
		}
	}
	return n
}

// change returns a process that may be changed.
func (s *state) change(i int) *process {
	p := *s.proc[i]
	if p.policy != nil {
		p.policy = p.policy.Copy()
	}
	s.proc[i] = &p
	return &p
}

// clean drops what can have no effect any more, so that states that differ in nothing
// else become one.
func (s *state) clean() {
	oldest := s.head.Revision
	for i, p := range s.proc {
		if p == nil {
			continue
		}
		if p.late.sent() && !s.mayApply(p, &p.late) {
			p = s.change(i)
			p.late = Write{}
		}
		if p.lateNews.sent && !s.stores(p, &p.lateNews) {
			p = s.change(i)
			p.lateNews = news{}
		}
		if effective := s.effective(p); s.rules.statusPrecondition && (p.stray|p.old)&^effective != 0 {
			// Epochs do not fall, so what is refused now is always refused.
			p = s.change(i)
			p.stray &= effective
			if r, ok := s.head.Get(p.name); !ok || r.Epoch == p.epoch {
				p.old = 0
			}
		}
		if p.up {
			oldest = min(oldest, p.read)
		} else if !s.registered(p) && !p.late.sent() && !p.lateNews.sent && p.stray|p.old == 0 {
			s.proc[i] = nil
		}
	}
	s.log = s.log[oldest-s.base():]
}

// applies says whether the registry would accept the write of the process now.
func (s *state) applies(p *process, w *Write) bool {
	if !s.mayApply(p, w) {
		return false
	}
	return !s.rules.fencedGrant || !isGrant(w) || s.gives(p, w)
}

// mayApply says whether the registry would accept the write now or, where it is a grant,
// may do so once the donor's record gives it.
func (s *state) mayApply(p *process, w *Write) bool {
	r, ok := s.head.Get(w.Name)
	if !ok || r.UID != w.UID || r.Generation != w.Generation && s.rules.precondition {
		return false
	}
	return !isGrant(w) || !s.rules.fencedGrant || s.registered(p)
}

func isGrant(w *Write) bool { return w.Reason == ReasonGrant || w.Reason == ReasonMove }

// gives says whether the record of the process gives what the write grants.
func (s *state) gives(p *process, w *Write) bool {
	r, ok := s.head.Get(p.name)
	return ok && r.Gives != nil && *r.Gives == Gift{w.Name, *w.Key}
}

// stores says whether the registry would store the news of the process now.
func (s *state) stores(p *process, n *news) bool {
	r, ok := s.head.Get(p.name)
	return ok && (r.Revision == n.revision || !s.rules.statusPrecondition)
}

// land applies a write to the registry.
func (s *state) land(w *Write) {
	if w.Delete {
		s.remove(w.Name)
	} else {
		r, _ := s.head.Get(w.Name)
		r.Key, r.Next, r.Donor = w.Key, w.Next, w.Donor
		s.put(r)
	}
	s.note("%s; the ring is now %s", describeWrite(w), describeRing(s.head))
}

// evenOut has the processes even out the load from now on, at once and without a limit. Loads are
// cells.
func (s *state) evenOut() {
	s.balance = true
	for i, p := range s.proc {
		if p != nil {
			s.change(i).undecided = true
		}
	}
}

// weight is what the process says that it has: so many cells.
func (p *process) weight() int64 { return int64(bits.OnesCount8(uint8(p.owned))) }

// start registers a new process in a free place.
func (s *state) start() {
	for i := range s.proc {
		if s.proc[i] != nil {
			continue
		}
		name := string('a' + s.started)
		s.started++
		s.put(Record{Name: name, UID: types.UID(name), Phase: shardingv1alpha1.InstanceInit})
		s.proc[i] = &process{
			name: name, up: true, read: s.head.Revision, phase: shardingv1alpha1.InstanceInit,
			machine: *NewMachine(name, s.head, Limits{Step: step, Fill: step, Leave: step, Piece: 1 << cellBits}),
			policy:  NewBalancer(name, true),
		}
		s.fresh[i] = 0
		s.note("%s registers", name)
		s.decide(i)
		return
	}
	panic("no place for another process")
}

// decide runs the machine of a process that may be changed, and carries out its
// decisions as the driver in package member does.
func (s *state) decide(i int) {
	p := s.proc[i]
	p.undecided = false
	for {
		in := Input{Now: p.now, Leaving: p.leaving, Serving: p.serving.ranges(), Reported: p.known(), Keys: cellKeys}
		if s.rules.drain && s.rules.raiseDrained {
			in.Draining = p.busy.ranges()
		}
		d := p.consult(in, s.balance)
		if d.Gone {
			s.note("%s finds its record gone", p.name)
			s.end(p)
			return
		}
		open := cellsOf(d.Open)
		if shut := p.serving &^ open; shut != 0 {
			p.serving &= open
			p.busy |= shut
			s.note("%s shuts its gate for %v", p.name, shut)
		}
		p.follow = cellsOf(d.Follow)
		p.held &= p.follow
		s.fresh[i] &= p.held
		opened := false
		if gain := open &^ p.serving & p.held; gain != 0 && (p.heldAt >= d.Since || !s.rules.grantRevision) {
			p.serving |= gain
			p.busy &^= gain
			opened = true
			s.note("%s opens its gate for %v", p.name, gain)
		}
		p.phase, p.owned, p.wakes = d.Phase, cellsOf(d.Owned), d.Wake != 0
		if d.Report.Epoch > p.epoch {
			p.epoch, p.old, p.stray = d.Report.Epoch, p.old|p.stray, 0
		}
		if r, ok := s.head.Get(p.name); ok && !p.news.sent && !d.Report.Equal(p.known()) {
			p.news = news{true, d.Report, r.Revision, p.weight()}
			s.note("%s sends: %s", p.name, describeNews(&p.news))
		}
		// A cell stands for one key, so a key within it is no place to split.
		if w := d.Write; w != nil && !p.flying.sent() && p.machine.View().Revision >= p.settled && (w.Next == nil || uint64(*w.Next)&aligned == aligned) &&
			(s.rules.raiseDrained || !isGrant(w) || p.busy == 0) {
			p.flying = *w
			s.note("%s sends: %s", p.name, describeWrite(w))
		}
		if !opened {
			return
		}
	}
}

// consult asks the machine, and the policy if it is to even out the load.
func (p *process) consult(in Input, balance bool) Decision {
	if balance {
		return p.decider().Consult(in, nil, nil)
	}
	d := p.machine.Decide(in)
	p.policy.Shifts(p.machine.View(), in.Now, nil)
	return d
}

func (p *process) decider() Decider { return Decider{Machine: &p.machine, Policy: p.policy} }

// end ends a process. What it has sent lives on.
func (s *state) end(p *process) {
	p.stray |= p.serving | p.busy
	if p.flying.sent() {
		p.late = p.flying
	}
	if p.news.sent {
		p.lateNews = p.news
	}
	*p = process{name: p.name, stray: p.stray, old: p.old, epoch: p.epoch, late: p.late, lateNews: p.lateNews}
}
