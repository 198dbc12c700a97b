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

	v1 "k8s.io/api/core/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/ring"
)

// observer tells Metrics and Events what one registration goes through. The views of
// the log say what changed hands, and how; the observer adds when, by this process's
// clock, and what its gate and caches have come to. It is not safe for concurrent use.
type observer struct {
	name string
	// self is the instance's record as it was registered.
	self ring.Record
	// lease is taken for that of every instance.
	lease   time.Duration
	metrics Metrics
	events  Events

	view *ring.View
	// calledOff is the calling off that was decided on last; nil: none was.
	calledOff *ring.Write
	// draining is when each instance was seen to wait for its own work to end.
	draining map[string]time.Time
	// ends are of the presences whose ends records tell of, by the UID of the record.
	ends map[types.UID]end
	// gains are the ranges that the gate has not been opened for yet.
	gains   []gain
	serving hashkey.Ranges
	// follow are the keys that the caches are to hold, filled those that they have
	// come to hold.
	follow, filled hashkey.Ranges
	// named is when follow changed, shut when the gate was shut for a range, drained
	// when the work there had ended; zero: not under way.
	named, shut, drained time.Time
}

// end is that of a presence.
type end struct {
	// at is when an API server noticed it, by its clock, and heard when the instance heard of it.
	at, heard time.Time
}

// deathLimit is for how long after it was heard that a presence has ended its record may be gone
// for that. The API server removes it within half a second, or leaves it to its lease.
const deathLimit = 2 * time.Second

// gain is a range that has become the instance's own.
type gain struct {
	ring.Received
	// ended is when the presence of the donor ended, for KindDeath.
	ended time.Time
	// unservedSince is when it was last worked on, seen when it was seen to be this
	// instance's.
	unservedSince, seen time.Time
	warm                bool
}

func newObserver(name string, view *ring.View, lease time.Duration, metrics Metrics, events Events) *observer {
	self, _ := view.Get(name)
	return &observer{name: name, self: self, lease: lease, metrics: metrics, events: events, view: view, draining: map[string]time.Time{}, ends: map[types.UID]end{}}
}

// hear takes what the log tells of a record.
func (o *observer) hear(now time.Time, r ring.Record) {
	if r.PresenceEnded.IsZero() {
		delete(o.ends, r.UID)
	} else if !o.ends[r.UID].at.Equal(r.PresenceEnded) {
		o.ends[r.UID] = end{at: r.PresenceEnded, heard: now}
	}
}

// observe takes what a decision has come to: held are the keys that all caches
// hold, serving those that the gate is open for. idle says that nothing is in work
// in a range that the gate was shut for.
func (o *observer) observe(now time.Time, view *ring.View, d ring.Decision, held, serving hashkey.Ranges, idle bool) {
	if before := o.view; view != before {
		o.view = view
		o.listen(now, before)
		o.received(now, before, held)
		o.gave(now, before)
		o.forget()
	}
	o.opened(now, serving)
	if d.Write != nil && d.Write.Reason == ring.ReasonCallOff {
		o.calledOff = d.Write
	}

	if !d.Follow.Equal(o.follow) {
		o.follow, o.named = d.Follow, now
	}
	if !o.named.IsZero() && held.Covers(o.follow) {
		if !o.follow.Minus(o.filled).Empty() {
			o.metrics.Step(StepFill, now.Sub(o.named))
		}
		o.filled, o.named = o.follow, time.Time{}
	}
	if !serving.Covers(o.serving) && o.shut.IsZero() {
		o.shut = now
	}
	if !o.shut.IsZero() && idle {
		o.metrics.Step(StepDrain, now.Sub(o.shut))
		o.shut, o.drained = time.Time{}, now
	}
	o.serving = serving
	o.metrics.State(d.Phase, float64(d.Owned.Width())/float64(hashkey.Limit))
}

// listen notes who has begun to drain.
func (o *observer) listen(now time.Time, before *ring.View) {
	for _, r := range o.view.Records() {
		old, _ := before.Get(r.Name)
		if r.Phase == shardingv1alpha1.InstanceWait && old.Phase != r.Phase {
			o.draining[r.Name] = now
		}
	}
}

// forget drops what is known of draining that has ended, and of records that have gone.
func (o *observer) forget() {
	for uid := range o.ends {
		if !slices.ContainsFunc(o.view.Records(), func(r *ring.Record) bool { return r.UID == uid }) {
			delete(o.ends, uid)
		}
	}
	for name := range o.draining {
		r, _ := o.view.Get(name)
		if r.Phase != shardingv1alpha1.InstanceWait {
			delete(o.draining, name)
		}
	}
}

// received notes ranges that have become the instance's own.
func (o *observer) received(now time.Time, before *ring.View, held hashkey.Ranges) {
	for _, r := range o.view.ReceivedSince(before, o.name) {
		var since time.Time
		donor, _ := before.Get(r.Donor)
		ended, ok := o.ends[donor.UID]
		if ok && r.Kind == ring.KindCrash && now.Sub(ended.heard) < deathLimit {
			r.Kind = KindDeath
		}
		switch r.Kind {
		case ring.KindCrash:
			since = now.Add(-o.lease)
		case KindDeath:
			// It is told by another clock.
			since = ended.at
			if since.After(now) {
				since = now
			} else if since.Before(now.Add(-o.lease)) {
				since = now.Add(-o.lease)
			}
		case ring.KindJoin, ring.KindMove:
			since = o.draining[r.Donor]
		}
		if since.IsZero() {
			since = now
		}
		o.gains = append(o.gains, gain{Received: r, ended: ended.at, unservedSince: since, seen: now, warm: held.Covers(r.Ranges)})
	}
}

// gave tells of handovers in which this instance was the donor, and that have ended.
func (o *observer) gave(now time.Time, before *ring.View) {
	for _, h := range before.Handovers() {
		if h.Donor != o.name {
			continue
		}
		ranges := h.Share(o.name, before.Owned(o.name))
		switch h.Outcome(o.view) {
		case ring.Granted:
			if !o.drained.IsZero() {
				o.metrics.Step(StepGrant, now.Sub(o.drained))
				o.drained = time.Time{}
			}
			by := ""
			if h.Kind == ring.KindMove && h.Record.Pinned() {
				by = ": a person has moved the boundary"
			}
			o.events.Eventf(reference(h.Record), v1.EventTypeNormal, eventGranted, "%s gave %s to %s%s", o.name, ranges, h.Receiver, by)
		case ring.CalledOff:
			o.metrics.HandedOver(h.Kind, ResultCalledOff)
			why := ""
			if w := o.calledOff; w != nil && w.Name == h.Record.Name && w.UID == h.Record.UID && w.Generation == h.Record.Generation {
				why = ": " + w.Detail
			}
			o.events.Eventf(reference(h.Record), v1.EventTypeWarning, eventCalledOff, "%s keeps %s, which %s was to receive%s", o.name, ranges, h.Receiver, why)
		}
	}
}

// opened tells of ranges that are worked on again.
func (o *observer) opened(now time.Time, serving hashkey.Ranges) {
	owned := o.view.Owned(o.name)
	var waiting []gain
	for _, g := range o.gains {
		// Some of it may have been given away at once.
		g.Ranges = g.Ranges.Intersect(owned)
		if !serving.Covers(g.Ranges) {
			waiting = append(waiting, g)
			continue
		}
		if g.Ranges.Empty() {
			continue
		}
		result := ResultCold
		if g.warm {
			result = ResultWarm
		}
		o.metrics.HandedOver(g.Kind, result)
		o.metrics.Step(StepOpen, now.Sub(g.seen))
		o.metrics.Unserved(g.Kind, now.Sub(g.unservedSince))
		o.welcome(g)
	}
	o.gains = waiting
}

// welcome tells the event of a range that is worked on again.
func (o *observer) welcome(r gain) {
	self, _ := o.view.Get(o.name)
	switch on := reference(self); r.Kind {
	case ring.KindFirst:
		o.events.Eventf(on, v1.EventTypeNormal, eventJoined, "Works on all keys: nobody owned any")
	case ring.KindJoin:
		o.events.Eventf(on, v1.EventTypeNormal, eventJoined, "Works on %s, from %s", r.Ranges, r.Donor)
	case ring.KindMove:
		o.events.Eventf(on, v1.EventTypeNormal, eventTookOver, "Works on %s, from %s: a boundary has moved", r.Ranges, r.Donor)
	case ring.KindLeave:
		o.events.Eventf(on, v1.EventTypeNormal, eventTookOver, "Works on %s: %s has left", r.Ranges, r.Donor)
	case ring.KindCrash:
		o.events.Eventf(on, v1.EventTypeWarning, eventTookOver, "Works on %s: the record of %s has expired", r.Ranges, r.Donor)
	case KindDeath:
		o.events.Eventf(on, v1.EventTypeWarning, eventTookOver, "Works on %s: the process of %s has died, as the end of its presence told at %s", r.Ranges, r.Donor, r.ended.UTC().Format(time.RFC3339Nano))
	}
}

// fenced tells that the instance has stopped working because it could no longer trust
// its lease. It may be called from any goroutine.
func (o *observer) fenced(message string) {
	o.events.Eventf(reference(o.self), v1.EventTypeWarning, eventFenced, "%s", message)
}

// withheld tells that the instance lets its lease end, and why. It may be called from any
// goroutine.
func (o *observer) withheld(reason error) {
	o.events.Eventf(reference(o.self), v1.EventTypeWarning, eventWithheld, "Does not renew its record, so that another takes its range over: %v", reason)
}
