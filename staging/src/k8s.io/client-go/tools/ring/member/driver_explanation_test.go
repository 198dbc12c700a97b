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
	"slices"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/client-go/tools/ring"
)

// What explains that a task has no worker:
//
//	the leader                its controller runs there, or who leads has just changed
//	its own work              it never ends
//	other work                it never ends, and the door of its controller is shut or its process
//	                          waits for it before it registers anew
//	no answers                its owner's gate has shut by itself, as it had to
//	a process that has ended  until its record has
//	trouble of whoever        of its last worker, its owner, and both sides of a handover: a
//	it depends on             pause, a late request, a silent watch
//	caches that are filled    only if its last owner was lost, and only while its own are
//
// A kill or a handover explains nothing by itself; a brownout makes a pause longer that is allowed.

const (
	// pauseAllowed is how long a task may be without a worker where it changes hands and nothing
	// is slow, and requestsOfPause how many requests follow one another then.
	pauseAllowed    = 1500 * time.Millisecond
	requestsOfPause = 4
	// recoveryAllowed is how much longer it may be where its owner was lost: processes that all
	// have to register anew pause between their attempts, and the first one waits half a lease for
	// the others. They send as many requests again.
	recoveryAllowed = worldLease/2 + 2*time.Second
	// noticesSilence is how soon a member has to notice that its watch gets nothing.
	noticesSilence = 2*worldLease + lookInterval
	// aftermath is how long after it has ended a trouble still shows. forgotten is how long it
	// does where a record was given up for it.
	aftermath = 1500 * time.Millisecond
	forgotten = 2 * worldLease
	// latest is how late a request may come: that of a process that has died can be a renewal.
	latest = 10 * time.Second
	// leftLate is why a task may be lost where a process is in a hurry to stop.
	leftLate = "its owner was to stop and has waited for half a lease"
)

// begins looks why the task's last worker does not work on it.
func (j *judge) begins(what task) {
	p := j.last[what]
	if p == nil {
		return
	}
	if stopped := p.stoppedAt(); !p.diedAt().IsZero() {
		j.lost[what] = "its owner was killed"
	} else if !stopped.IsZero() && time.Since(stopped) > worldLease/2 {
		j.lost[what] = leftLate
	} else if l, ok := j.losses[p]; ok && time.Since(l.at) < worldLease {
		j.lost[what] = l.why
	} else if !slices.ContainsFunc(j.view.Ring(), stays) {
		j.lost[what] = "all owners were asked to leave"
	} else if why := p.troubled(slowed, time.Now().Add(-aftermath), time.Now()); why != "" {
		j.lost[what] = "its owner could not see who was ready: " + why
	} else if r, ok := j.view.Owner(what.key); ok && j.world.of(r) != p {
		if why := j.world.of(r).troubled(slowed, time.Now().Add(-aftermath), time.Now()); why != "" {
			j.lost[what] = "its next owner is late: " + why
		} else if !stays(&r) {
			j.lost[what] = "its owner was asked to leave, and so was the next"
		}
	}
}

// stays says whether nobody has asked an instance to leave.
func stays(r *ring.Record) bool {
	return !r.Drained && !r.Deleting && r.Phase != shardingv1alpha1.InstanceLeaving
}

// allowed is how long a pause may be at that time.
func (j *judge) allowed(what task, now time.Time) time.Duration {
	var slowest time.Duration
	j.world.network.during(nil, now.Add(-latest), now, func(c *condition) { slowest = max(slowest, c.latency) })
	allowed := pauseAllowed + requestsOfPause*slowest
	if j.lost[what] != "" {
		allowed += recoveryAllowed + requestsOfPause*slowest
	}
	return allowed
}

// parties returns the processes on whom it depends that somebody works on a task: its last
// worker, its owner, and donor and receiver where it is to change hands. Where nobody owns
// anything, that is everybody.
func (j *judge) parties(what task) []*process {
	var out []*process
	add := func(p *process) {
		if p != nil && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	add(j.last[what])
	owner, ok := j.view.Owner(what.key)
	if !ok {
		return j.world.all()
	}
	add(j.world.of(owner))
	for _, h := range j.view.Handovers() {
		donor, _ := j.view.Get(h.Donor)
		if receiver, ok := j.view.Get(h.Receiver); ok && h.Share(h.Donor, j.view.Owned(h.Donor)).Contains(what.key) {
			add(j.world.of(donor))
			add(j.world.of(receiver))
		}
	}
	return out
}

// explanation says why a task may have no worker now; "" if nothing explains it.
func (j *judge) explanation(what task, parties []*process, now time.Time) string {
	w := j.world
	if why := w.leaders.explains(what.controller); why != "" {
		return why
	}
	if stuck := w.stuck.Load(); stuck != nil {
		if stuck.key == what.key {
			return "its own work never ends"
		}
		shut := func(q *process) bool { return q.claims(*stuck) && q.gate.For(what.controller).serving().Empty() }
		if stuck.controller == what.controller && slices.ContainsFunc(parties, shut) {
			return "its controller's door is shut while other work never ends"
		}
	}
	if j.heldUp(what) {
		return "work that never ends had begun just before its gate was shut"
	}
	if p, shut := j.shutByItself(what); shut {
		return whyShut(p, now)
	}
	owner, owned := j.view.Owner(what.key)
	p := w.of(owner)
	for _, q := range parties {
		if why := j.absent(q, now, aftermath); why != "" {
			return why
		}
	}
	for _, r := range j.view.Records() {
		// One that owns keys is the task's owner; where nobody does, it may be the oldest.
		if q := w.of(*r); (!owned || r.Name == owner.Name) && q.lives() && !q.holds(*r) && j.absent(q, now, forgotten) != "" {
			return "a registration lives on of which its process does not know, or that it has given up"
		}
	}
	if j.lost[what] != "" && owned && slices.ContainsFunc(p.sources, func(s *informer) bool { return s.fills(what.key) }) {
		return "caches are filled after " + j.lost[what]
	}
	return ""
}

// heldUp says whether the gate was shut for a task together with work that never ends: whoever
// shuts it cannot know yet, and waits a step.
func (j *judge) heldUp(what task) bool {
	stuck, s := j.world.stuck.Load(), j.spells[what]
	if stuck == nil || s == nil || s.until.Sub(s.from) > DefaultStepLimit+pauseAllowed {
		return false
	}
	holds := func(p *process) bool { return p != nil && p.claims(*stuck) }
	owner, ok := j.view.Owner(what.key)
	return holds(j.last[what]) || ok && holds(j.world.of(owner))
}

// shutByItself says whether the task's owner does not work on it though its gate is open.
func (j *judge) shutByItself(what task) (owner *process, shut bool) {
	r, ok := j.view.Owner(what.key)
	owner = j.world.of(r)
	return owner, ok && owner.lives() && owner.holds(r) && owner.gate.For(what.controller).Serves(what.key)
}

// whyShut says why that is.
func whyShut(p *process, now time.Time) string {
	if p.whenResumed() != nil {
		return "its owner is paused"
	}
	if !p.trusts() && !p.mustBelieve(now) {
		return "its owner had no answer for too long"
	}
	return ""
}

// absent says why a process does not do its part now, or did not a moment ago; "" if it can.
func (j *judge) absent(p *process, now time.Time, moment time.Duration) string {
	if over := p.overAt(); !over.IsZero() {
		for _, r := range j.view.Records() {
			if j.world.of(*r) == p && now.Before(over.Add(worldLease+latest)) {
				return "the record of a process that has ended lives on"
			}
		}
		return ""
	}
	if why := p.troubled(slowed, now.Add(-moment), now); why != "" {
		return why
	}
	if n := j.world.network; n.reached(p, now.Add(-moment-n.latency(p, now)), now) != reachServer {
		return "API servers are away"
	}
	if p.drainsLate() {
		return "a write fares badly"
	}
	if stuck := j.world.stuck.Load(); stuck != nil && p.claims(*stuck) {
		if _, registered := p.gate.identity(); !registered || !p.stoppedAt().IsZero() {
			return "work never ends in a process that is to stop, or to register anew"
		}
	}
	return ""
}
