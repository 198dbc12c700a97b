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
	"k8s.io/apimachinery/pkg/types"
)

// simulatedProcess is a process with its instance: a Machine, and what package member adds.
type simulatedProcess struct {
	day    *day
	holder string
	// term counts its registrations. What was begun in one term is void in the next.
	term int
	// ended says that the process is gone, leaving that it was told to go.
	ended, leaving bool
	// pausedUntil is until when it does nothing.
	pausedUntil time.Duration
	// deaf is until when its watch delivers nothing, listed when it last listed the registry
	// meanwhile.
	deaf, listed time.Duration
	drained      bool

	// self is its record as it is known to be stored, empty while it has none.
	name    string
	uid     types.UID
	self    Record
	machine *Machine
	policy  *watchedPolicy // nil: it has none
	view    *simulatedView
	seen    int
	// grew are the revisions at which it came to own keys.
	grew []int64

	// blocked counts the reasons why it cannot renew. cut says that it has not renewed since there
	// was one, cuts how often that has been so; lapsed, that it can no longer trust its lease.
	blocked, cuts int
	cut, lapsed   bool
	// renewed shifts its renewals against those of others.
	renewed time.Duration
	// visible is from when the newest view is that it can have seen, slow until when it sees none.
	visible, slow time.Duration

	serving, follow, held hashkey.Ranges
	busy                  []lastWork
	covered               hashkey.Ranges
	filling, asking       bool
	ready                 hashkey.Ranges
	readySince            int64
	phase                 shardingv1alpha1.InstancePhase
	epoch                 int64

	due, decided time.Duration
	writing      int // counts writes; odd: one is under way
	settled      int64
	retryAt      time.Duration
	retry        time.Duration
	refused      Write
	telling      bool
	told         status
	toldAt       time.Duration
	newsRetry    time.Duration
	newsRetryAt  time.Duration
	weighed      hashkey.Ranges
	// samples are keys of objects that it has lately worked on, of those that it owned then.
	samples   []int64
	sampled   hashkey.Ranges
	sampledAt time.Duration
}

// watchedPolicy is a policy of which is known when it last looked whether there is something to
// give.
type watchedPolicy struct {
	Policy
	lookedAt time.Duration
}

// tryAgain is after which time it looks again.
const tryAgain = 5 * time.Second

func (w *watchedPolicy) Shifts(view *View, now time.Duration, turn *Turn) Advice {
	advice := w.Policy.Shifts(view, now, turn)
	if advice.Wake == now+tryAgain {
		w.lookedAt = now
	}
	return advice
}

type lastWork struct {
	ranges hashkey.Ranges
	end    time.Duration
}

// status is what an instance tells of itself.
type status struct {
	phase            shardingv1alpha1.InstancePhase
	cached           hashkey.Ranges
	report           Report
	weight           int64
	heaviest, before int64
	live             int64
	work             int32
}

const (
	simulatedLease = 15 * time.Second
	// simulatedConfidence is fence.Confidence of that.
	simulatedConfidence = simulatedLease - simulatedLease/6
	renewalPeriod       = simulatedLease / 6
	// readPause is how long a process that has decided reads nothing.
	readPause      = 200 * time.Millisecond
	simulatedBytes = 3000
	// simulatedBaseBytes and simulatedIdleWork are what package balance takes for that of a process
	// without objects, and for little to do.
	simulatedBaseBytes = 16 << 20
	simulatedIdleWork  = 500
)

var simulatedLimits = Limits{Step: 30 * time.Second, Fill: 300 * time.Second, Leave: simulatedLease / 2}

// do lets the process do something, now or when its pause is over, unless its term is over.
func (p *simulatedProcess) do(after time.Duration, f func()) {
	term := p.term
	var try func()
	try = func() {
		switch {
		case p.term != term || p.ended:
		case p.pausedUntil > p.day.now:
			p.day.at(p.pausedUntil, try)
		default:
			f()
		}
	}
	p.day.after(after, try)
}

// register creates its record.
func (p *simulatedProcess) register() {
	d := p.day
	p.do(d.network.oneWay(), func() {
		if d.now < d.registry.stalled {
			p.do(d.registry.stalled-d.now, p.register)
			return
		}
		d.uids++
		p.uid = types.UID(fmt.Sprintf("u%d", d.uids))
		for taken := true; taken; {
			p.name = fmt.Sprintf("ring-%05x", d.network.rand.Intn(1<<20))
			_, taken = d.registry.get(p.name)
		}
		d.processes[p.name] = p
		p.self = d.registry.put(Record{Name: p.name, UID: p.uid, Holder: p.holder, Phase: shardingv1alpha1.InstanceInit, Drained: p.drained}, "")
		view := *d.registry.publish()
		d.note("%s registers as %s", p.holder, p.name)
		p.machine = NewMachine(p.name, view.View, simulatedLimits)
		if d.policy != nil {
			p.policy = &watchedPolicy{Policy: d.policy(p.name)}
		}
		p.view, p.seen = &view, d.registry.skipped+len(d.registry.views)-1
		p.renewed = d.now % renewalPeriod
		p.lapsed, p.cut = false, false
		p.visible = d.now
		if p.blocked > 0 {
			p.stopRenewing()
		}
		if _, off := view.BalanceOff(); off {
			r, _ := d.registry.get(p.name)
			r.BalanceOff = true
			d.registry.put(r, "")
		}
		p.kick(d.network.oneWay())
	})
}

// lose ends the term, and begins another.
func (p *simulatedProcess) lose(why string) {
	p.day.note("%s loses its record: %s", p.name, why)
	p.finish()
	if p.leaving {
		p.ended = true
		p.day.gone(p)
		return
	}
	p.register()
}

// finish ends the term.
func (p *simulatedProcess) finish() {
	// The record, if it is there yet, is nobody's any more.
	if p.machine != nil {
		p.stopRenewing()
		if p.day.processes[p.name] == p {
			delete(p.day.processes, p.name)
		}
	}
	p.term++
	p.serving, p.follow, p.held, p.busy, p.ready, p.weighed = nil, nil, nil, nil, nil, nil
	p.filling, p.asking, p.telling, p.writing = false, false, false, 0
	p.cover()
	p.machine, p.view, p.self, p.told, p.phase, p.grew = nil, nil, Record{}, status{}, "", nil
	p.readySince, p.settled, p.epoch, p.toldAt, p.retryAt, p.newsRetryAt = 0, 0, 0, 0, 0, 0
	p.due = 0
}

// crash ends the process. Its record expires.
func (p *simulatedProcess) crash() {
	p.day.note("%s crashes", p.name)
	p.finish()
	p.ended = true
	p.day.gone(p)
}

// lastRenewal is when the last renewal was sent that came to the registry, if none was kept back.
func (p *simulatedProcess) lastRenewal() time.Duration {
	return p.day.now - (p.day.now+renewalPeriod-p.renewed)%renewalPeriod
}

// stopRenewing has the gate shut, and the record expire, when their time comes, unless it is
// renewed before. While nothing keeps a process from renewing, its renewals are not simulated.
func (p *simulatedProcess) stopRenewing() {
	if p.cut {
		return
	}
	p.cut = true
	p.cuts++
	cut, d, term, name, uid := p.cuts, p.day, p.term, p.name, p.uid
	sent := p.lastRenewal()
	d.at(sent+simulatedConfidence, func() {
		if p.cuts == cut && p.cut && p.term == term {
			d.note("%s can no longer trust its lease", p.name)
			p.lapsed = true
			// What is under way is given up.
			p.busy = nil
			p.cover()
			p.kick(0)
		}
	})
	var expire func()
	expire = func() {
		r, ok := d.registry.get(name)
		switch {
		case p.term == term && (p.cuts != cut || !p.cut), !ok, r.UID != uid:
		case d.now < d.registry.stalled:
			d.at(d.registry.stalled+2*time.Second, expire)
		default:
			d.note("the record %s expires", name)
			d.registry.remove(name, "expired")
		}
	}
	d.at(sent+simulatedLease+d.network.oneWay(), expire)
}

// hold keeps the process from renewing, until release is called.
func (p *simulatedProcess) hold() {
	p.blocked++
	if p.machine != nil {
		p.stopRenewing()
	}
}

// release lets it renew again.
func (p *simulatedProcess) release() {
	p.blocked--
	d := p.day
	p.do(time.Duration(d.network.rand.Int63n(int64(renewalPeriod/3)))+d.network.oneWay(), func() {
		if p.machine == nil || p.blocked > 0 || !p.cut {
			return
		}
		// Another may have the name by now.
		if r, ok := d.registry.get(p.name); !ok || r.UID != p.uid {
			p.lose("it cannot be renewed")
			return
		}
		p.cut = false
		p.renewed = d.now % renewalPeriod
		if p.lapsed {
			d.note("%s trusts its lease again", p.name)
			p.lapsed = false
			p.cover()
		}
		p.kick(0)
	})
}

// pause stops the process for a while.
func (p *simulatedProcess) pause(length time.Duration) {
	d := p.day
	if p.ended || p.machine == nil || p.pausedUntil > d.now {
		return
	}
	d.note("%s pauses for %v", p.name, length)
	p.hold()
	p.pausedUntil = d.now + length
	for i := range p.busy {
		p.busy[i].end += length
	}
	d.at(p.pausedUntil, func() {
		if !p.ended {
			p.finishDrains()
			p.release()
		}
	})
}

// deliver has the process see what is published now, and decide.
func (p *simulatedProcess) deliver() {
	d := p.day
	if p.ended || p.machine == nil {
		return
	}
	at, lag := d.now, d.network.lag()
	if lag > usualLag {
		p.slow = max(p.slow, at+lag)
	}
	p.do(max(at+lag, p.slow)-at, func() {
		p.visible = max(p.visible, at)
		p.kickAt(max(d.now, p.decided+readPause))
	})
}

// turnDeaf has its watch deliver nothing for a while. Then it lists the registry.
func (p *simulatedProcess) turnDeaf(length time.Duration) {
	d := p.day
	if p.ended || p.machine == nil || p.deaf > d.now {
		return
	}
	d.note("the watch of %s stalls for %v", p.name, length)
	p.deaf = d.now + length
	p.kickAt(d.now + time.Second)
	p.do(length, func() {
		if next, seen := d.registry.seen(d.now); next != nil && next.Revision > p.machine.View().Revision {
			p.advance(next, seen, true)
		}
		p.kick(0)
	})
}

// leave tells the process to go. If it cannot in time, its record expires.
func (p *simulatedProcess) leave() {
	p.day.note("%s is to leave", p.name)
	p.leaving = true
	if p.machine == nil {
		p.finish()
		p.ended = true
		p.day.gone(p)
		return
	}
	p.kick(0)
	p.do(simulatedLease, func() {
		p.day.note("%s could not leave in time", p.name)
		p.finish()
		p.ended = true
		p.day.gone(p)
	})
}

// kick has the process decide soon.
func (p *simulatedProcess) kick(after time.Duration) {
	p.kickAt(max(p.day.now+after, p.decided+10*time.Millisecond))
}

func (p *simulatedProcess) kickAt(at time.Duration) {
	at = max(at, p.day.now)
	if p.ended || p.machine == nil || p.due != 0 && p.due <= at {
		return
	}
	p.due = at
	p.do(at-p.day.now, func() {
		if p.due == at {
			p.due = 0
			p.decide()
		}
	})
}

// read takes the newest view that its watch has delivered.
func (p *simulatedProcess) read() {
	d := p.day
	var next *simulatedView
	seen := 0
	missed := false
	switch {
	case d.now < p.deaf:
		// A member that waits for others lists the registry each second.
		waits := p.phase != shardingv1alpha1.InstanceActive || p.machine.View().Revision < max(p.settled, p.self.Revision)
		if !waits {
			return
		}
		p.kickAt(p.listed + time.Second)
		if d.now < p.listed+time.Second {
			return
		}
		p.listed = d.now
		missed = true
		next, seen = d.registry.seen(d.now)
	default:
		horizon := p.visible
		if d.now >= p.slow {
			horizon = max(horizon, d.now-usualLag)
		}
		if next, seen = d.registry.seen(horizon); next == nil {
			// What it could see is kept no longer.
			return
		}
	}
	if next.Revision <= p.machine.View().Revision {
		return
	}
	p.advance(next, seen, missed)
}

func (p *simulatedProcess) advance(next *simulatedView, seen int, missed bool) {
	view := *next
	p.view, p.seen = &view, seen
	if missed {
		p.decider().Replace(view.View)
		p.grew = slices.DeleteFunc(p.grew, func(revision int64) bool { return revision <= view.Revision })
		return
	}
	p.machine.advance(view.View)
	if p.policy != nil {
		p.policy.Observe(view.View)
	}
	// What lies between the two views is made up for.
	for len(p.grew) > 0 && p.grew[0] <= view.Revision {
		p.machine.gainedAt = max(p.machine.gainedAt, p.grew[0])
		p.grew = p.grew[1:]
	}
}

// remember gives the machine what it would know had it decided on each view.
func (p *simulatedProcess) remember() {
	p.machine.history = p.view.history
	if p.policy != nil {
		if b, ok := p.policy.Policy.(Balancer); ok {
			b.Share(p.view.log)
		}
	}
}

func (p *simulatedProcess) decider() Decider {
	if p.policy == nil {
		return Decider{Machine: p.machine}
	}
	return Decider{Machine: p.machine, Policy: p.policy}
}

func (p *simulatedProcess) decide() {
	d := p.day
	p.read()
	p.decided = d.now
	p.remember()
	own, ok := p.machine.View().Get(p.name)
	if ok {
		p.learn(own)
		p.drained = own.Drained
	}
	d.decisions++
	if owned := p.machine.View().Owned(p.name); own.Work > simulatedIdleWork && d.policy != nil && (!owned.Equal(p.sampled) || d.now > p.sampledAt+time.Minute) {
		p.samples, p.sampled, p.sampledAt = d.objects.sample(d.network.rand, owned, 256), owned, d.now
	}
	in := Input{
		Now:       d.now,
		Leaving:   p.leaving,
		Reported:  p.self.Report,
		Announced: p.told.cached,
		Serving:   p.serving,
	}
	if !d.grantEarly {
		for _, w := range p.busy {
			in.Draining = in.Draining.Union(w.ranges)
		}
	}
	decision := p.decider().Consult(in, p.samples, d.objects.list)
	if decision.Gone {
		p.lose("the log says so")
		return
	}
	if lost := p.serving.Minus(decision.Open); !lost.Empty() {
		p.serving = p.serving.Intersect(decision.Open)
		if !p.lapsed {
			end := d.now + d.network.work()
			p.busy = append(p.busy, lastWork{lost, end})
			p.do(end-d.now, p.finishDrains)
		}
		d.note("%s shuts its gate for %v", p.name, lost)
		p.kick(0)
	}
	if !decision.Follow.Equal(p.follow) {
		p.follow = decision.Follow
		p.ready = p.ready.Intersect(p.follow)
		p.held = p.held.Intersect(p.follow)
	}
	p.fill()
	if gain := decision.Open.Minus(p.serving); !gain.Empty() && p.holds(gain, decision.Since) {
		p.serving = p.serving.Union(gain)
		d.note("%s opens its gate for %v", p.name, gain)
		p.kick(0)
	}
	p.phase, p.epoch = decision.Phase, decision.Report.Epoch
	p.cover()
	if wake := decision.Wake; wake != 0 {
		if p.policy != nil && wake == p.policy.lookedAt+tryAgain {
			// It has something to give, and looks again and again whether it may.
			if wake = d.now + d.patience(); d.now > p.view.at+time.Minute {
				wake += 20 * time.Second
			}
		}
		p.kickAt(max(wake, d.now+time.Millisecond))
	}
	p.report(&decision)
	if w := decision.Write; w != nil && p.writing%2 == 0 && p.machine.View().Revision >= p.settled {
		if d.now < p.retryAt && p.refused.Name == w.Name && p.refused.UID == w.UID && p.refused.Generation == w.Generation {
			p.kickAt(p.retryAt)
		} else if !p.lapsed {
			p.send(*w)
		}
	}
}

// finishDrains ends the work whose time has come.
func (p *simulatedProcess) finishDrains() {
	p.busy = slices.DeleteFunc(p.busy, func(w lastWork) bool { return w.end <= p.day.now })
	p.cover()
	p.kick(0)
}

// cover says what it works on.
func (p *simulatedProcess) cover() {
	d := p.day
	var now hashkey.Ranges
	if !p.lapsed {
		now = p.serving
		for _, w := range p.busy {
			now = now.Union(w.ranges)
		}
	}
	if now.Equal(p.covered) {
		return
	}
	for _, r := range p.covered.Minus(now) {
		d.fail(d.coverage.set(r, nil, d.now))
	}
	for _, r := range now.Minus(p.covered) {
		d.fail(d.coverage.set(r, p, d.now))
	}
	p.covered = now
	d.checkOwner(p)
}

// fill has the caches come to hold what they should follow.
func (p *simulatedProcess) fill() {
	if p.filling || p.held.Covers(p.follow) {
		return
	}
	d := p.day
	p.filling = true
	target := p.follow
	p.do(d.network.fill(d.objects.weight(target.Minus(p.held))), func() {
		p.filling = false
		p.held = p.held.Union(target.Intersect(p.follow))
		p.kick(0)
	})
}

// holds says whether the caches hold the ranges as of a moment after that revision.
func (p *simulatedProcess) holds(ranges hashkey.Ranges, since int64) bool {
	if p.readySince >= since && p.ready.Covers(ranges) {
		return true
	}
	if !p.held.Covers(ranges) || p.asking {
		return false
	}
	d := p.day
	p.asking = true
	at := p.machine.View().Revision
	p.do(d.network.oneWay()+d.network.oneWay(), func() {
		p.asking = false
		p.ready, p.readySince = ranges.Intersect(p.held), at
		p.kick(0)
	})
	return false
}

// learn notes a state of its own record.
func (p *simulatedProcess) learn(r Record) {
	if r.Name == p.name && r.UID == p.uid && r.Revision > p.self.Revision {
		p.self = r
	}
}

// report tells what others should know, as package member does. Heaps are as large as weights here,
// so none grows by itself.
func (p *simulatedProcess) report(decision *Decision) {
	d := p.day
	n := status{phase: decision.Phase, cached: p.held.Intersect(decision.Follow), report: decision.Report}
	n.weight = d.objects.weight(decision.Owned)
	n.heaviest, n.before = d.objects.heaviest(decision.Owned)
	n.work, n.live = d.workOf(n.weight), simulatedBaseBytes+simulatedBytes*n.weight
	differs := func(from, to, parts int64) bool {
		change := max(to-from, from-to)
		return change > 0 && parts*change >= from
	}
	s := &p.self
	due := d.now
	switch {
	case p.telling:
		return
	case s.Phase != n.phase, !s.Cached.Equal(n.cached), !s.Report.Equal(n.report), !decision.Owned.Equal(p.weighed):
	case differs(s.Weight, n.weight, 20), differs(s.Shareable(), Record{Weight: n.weight, Heaviest: n.heaviest}.Shareable(), 20):
		due = p.toldAt + time.Second
	case differs(s.LiveBytes, n.live, 10), max(s.Work-n.work, n.work-s.Work) >= 100:
		due = p.toldAt + 30*time.Second
	default:
		return
	}
	if p.lapsed {
		return
	}
	if due = max(due, p.newsRetryAt); due > d.now {
		p.kickAt(due)
		return
	}
	p.telling, p.told, p.toldAt = true, n, d.now
	revision, owned := s.Revision, decision.Owned
	var stored Record
	conflict := false
	d.transmit(p, func() {
		r, ok := d.registry.get(p.name)
		if !ok || r.UID != p.uid {
			return
		}
		if conflict = r.Revision != revision; !conflict {
			r.Phase, r.Cached, r.Report, r.Work = n.phase, n.cached, n.report, n.work
			r.Weight, r.Heaviest, r.BeforeHeaviest = n.weight, n.heaviest, n.before
			r.LiveBytes, r.HeapObjects = n.live, n.weight
			r = d.registry.put(r, "")
		}
		stored = r
	}, func(answered bool) {
		p.telling = false
		p.learn(stored)
		switch {
		case !answered:
			p.newsFailed()
		case stored.Name == "":
			p.lose("its news was refused")
			return
		case conflict:
			again := p.newsRetry > 0
			p.newsFailed()
			if !again {
				p.newsRetryAt = 0
			}
		default:
			p.newsRetry, p.newsRetryAt = 0, 0
			p.weighed = owned
		}
		p.kick(0)
	})
}

func (p *simulatedProcess) newsFailed() {
	p.newsRetry = min(max(2*p.newsRetry, 10*time.Millisecond), time.Second)
	p.newsRetryAt = p.day.now + p.newsRetry
}

// send sends a write of a spec.
func (p *simulatedProcess) send(w Write) {
	d := p.day
	p.writing++
	var stored Record
	refused := false
	from, uid := p.name, p.uid
	d.transmit(p, func() {
		r, ok := d.registry.get(w.Name)
		donor, _ := d.registry.get(from)
		isGrant := w.Reason == ReasonGrant || w.Reason == ReasonMove
		gives := donor.UID == uid && donor.Gives != nil && isGrant && *donor.Gives == Gift{w.Name, *w.Key}
		if refused = !ok || r.UID != w.UID || !w.Delete && r.Generation != w.Generation || isGrant && !gives; refused {
			d.note("the %s of %s for %s is refused", w.Reason, from, w.Name)
			return
		}
		d.note("the %s of %s for %s is stored: key %s, next %s, donor %s. %s", w.Reason, from, w.Name,
			hashkey.FormatOptional(w.Key), hashkey.FormatOptional(w.Next), w.Donor, w.Detail)
		if w.Delete {
			d.registry.remove(w.Name, ReasonLeave)
			return
		}
		r.Key, r.Next, r.Donor = w.Key, w.Next, w.Donor
		stored = d.registry.put(r, w.Reason)
	}, func(answered bool) {
		p.writing++
		switch {
		case answered && !refused && w.Delete:
			p.lose("it has deleted it")
			return
		case answered && !refused:
			p.learn(stored)
			p.settled, p.refused, p.retry, p.retryAt = stored.Revision, Write{}, 0, 0
		default:
			if p.refused.Name != w.Name || p.refused.UID != w.UID || p.refused.Generation != w.Generation {
				p.retry = 0
			}
			p.refused = w
			p.retry = min(max(2*p.retry, 10*time.Millisecond), time.Second)
			p.retryAt = d.now + p.retry
		}
		p.kick(0)
	})
}
