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

import "time"

const (
	// UndoneLimit is how long nobody may run a controller until the leader's term ends, so the next
	// leader runs it. The record of a replica that crashes as it starts is there for some seconds
	// and a lease, of 15 s. Where a leader dies, nobody works for as long.
	UndoneLimit = 20 * time.Second
	// ShareLimit is how long a leader goes on that runs all that it should, and something that the
	// rings could share. Nothing is undone meanwhile, so it can be long: twice the longest pause
	// that a kubelet makes before it starts a process that crashes again and again.
	ShareLimit = 10 * time.Minute
	// UnfitLimit is how long a candidate may stand with what would leave a controller undone, and
	// how often at most the registry is read because of it. It is also by how much a candidate is
	// ahead of a leader in leaving one to a ring, so the term that begins as another ends does not
	// end for the same reason.
	UnfitLimit = 2 * time.Second
)

// Term decides for how long a process stands or leads with what it has signed. Like Candidate, it
// has no client, goroutine or clock. It is not safe for concurrent use.
type Term struct {
	candidate *Candidate
	set       []string
	fitness   fitness
	// next is when the registry may be read again.
	next time.Duration
}

// TermInput is what a process knows when it decides on its term.
type TermInput struct {
	// Now is the time since some fixed instant, on a monotonic clock.
	Now time.Duration
	// Registry is what the registry has, as far as the process has seen it.
	Registry Views
	// Lists says what the process lists on each of its rings.
	Lists []RingControllers
	// Leads says that the process has been elected.
	Leads bool
}

// TermDecision is what follows.
type TermDecision struct {
	// Unfit says that what the process has signed fits no longer: it is to stand anew, or to end its
	// term.
	Unfit bool
	// Read says that the registry is to be read with quorum, and to be passed to Answer.
	Read bool
	// Wake is when to decide again though nothing has happened, as TermInput.Now counts; 0: there
	// is no such time.
	Wake time.Duration
}

// Term begins a term of a process that signs this set.
func (c *Candidate) Term(set []string) *Term { return &Term{candidate: c, set: set} }

// Decide decides by what was seen, which may be behind: so it never says Unfit.
func (t *Term) Decide(in TermInput) TermDecision {
	left, limited := t.observe(in)
	switch {
	case !limited:
		return TermDecision{}
	case left > 0:
		return TermDecision{Wake: in.Now + left}
	case in.Now < t.next:
		return TermDecision{Wake: t.next}
	}
	return TermDecision{Read: true}
}

// Answer decides by what was read after a decision has asked for it; ok is false if it could not be
// read.
func (t *Term) Answer(in TermInput, ok bool) TermDecision {
	if ok {
		if left, limited := t.observe(in); limited && left <= 0 {
			return TermDecision{Unfit: true}
		}
	}
	t.next = in.Now + UnfitLimit
	return TermDecision{Wake: t.next}
}

func (t *Term) observe(in TermInput) (left time.Duration, limited bool) {
	return t.fitness.observe(in.Now, t.candidate.fit(t.set, in.Registry, in.Lists), in.Leads)
}

// fit is how the set of controllers that a process has signed compares with what it would sign
// now.
type fit struct {
	// lacks says that a leader with that set leaves a controller undone: it is not in the set,
	// and no ring shares it.
	lacks bool
	// late says that a ring will share it once this process is registered there.
	late bool
	// spares says that the rings could share a controller of the set.
	spares bool
}

// fit compares set with what the process would sign now.
func (c *Candidate) fit(set []string, registry Views, lists []RingControllers) fit {
	now := c.signs(registry.Ring)
	f := fit{lacks: !c.runsAll(set, now), spares: !c.runsAll(now, set)}
	if f.lacks {
		registered, _ := c.registered(registry, lists)
		f.late = c.runsAll(set, registered)
	}
	return f
}

// fitness judges for how long a set may go on.
//
// While a replica that does not list a controller has a record, the ring does not work on that.
// A replica that crashes again and again must not end a term each time. So what counts is for
// how much longer a controller was undone than all were done since: a short visit ends no term,
// and none is undone for more than half of the time in the long run. Once the leader runs it, a
// term ends for the ring's sake only when no such replica was there for ShareLimit. So a loop
// ends one term at most, and so does a change that lasts.
type fitness struct {
	// fit is what was so as of at.
	fit
	at time.Duration
	// undone is how long some controller was undone, less how long none was since. More than
	// LateLimit makes no difference, and would take as long to be forgotten.
	undone time.Duration
	// sparing is since when the rings could share one.
	sparing time.Duration
}

// observe takes what is so from now on. It returns whether the set has a limit, and how long
// it may go on if that stays so.
func (f *fitness) observe(now time.Duration, is fit, leads bool) (left time.Duration, limited bool) {
	if passed := now - f.at; f.lacks {
		f.undone = min(f.undone+passed, LateLimit)
	} else {
		f.undone = max(0, f.undone-passed)
	}
	if is.spares && !f.spares {
		f.sparing = now
	}
	f.fit, f.at = is, now
	undone, share := UnfitLimit, ShareLimit-UnfitLimit
	if leads {
		undone, share = UndoneLimit, ShareLimit
	}
	if is.late {
		undone = LateLimit
	}
	switch {
	case is.lacks && is.spares:
		return min(undone-f.undone, share-(now-f.sparing)), true
	case is.lacks:
		return undone - f.undone, true
	case is.spares:
		return share - (now - f.sparing), true
	}
	return 0, false
}
