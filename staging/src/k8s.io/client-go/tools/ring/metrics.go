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

	v1 "k8s.io/api/core/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
)

// Metrics takes what a member counts and measures. All labels have few values: the
// constants of this file, and the phases. The methods may be called from several
// goroutines and must not block.
type Metrics interface {
	// Registered is called for each registration, the first and those after the
	// loss of a record.
	Registered()
	// State tells the present phase, "" while not registered, and the owned share of
	// the key space, from 0 to 1.
	State(phase shardingv1alpha1.InstancePhase, owned float64)
	// Load tells with each renewal how many objects the instance is responsible for,
	// and how many are in work.
	Load(workloads, busy int64)
	// Renewed is called for each renewal of the record.
	Renewed(result string)
	// HandedOver is called for each handover: by who receives the range when its
	// gate has opened, or by who would have given it when that is called off.
	HandedOver(kind, result string)
	// Step tells how long a step of a handover took.
	Step(step string, took time.Duration)
	// Unserved tells how long the keys of a range had no worker, as far as the one
	// who works on it now can tell by its own clock. For a join and a move it counts
	// from when the giver's phase Wait was seen, which is one write later than the
	// giver has shut its gate; after a crash from when the dead instance was last
	// heard of, which is up to a third of the lease too long; when an instance has
	// left from when its record has gone, which leaves out how long it drained.
	Unserved(kind string, took time.Duration)
	// Refused is called for each write that was kept from being done, or was
	// refused, as the instance may not own the object any more.
	Refused(by string)
}

// How a range comes to an instance.
const (
	KindFirst = "first" // nobody owned a key
	KindJoin  = "join"  // the instance's first range, from its donor
	KindMove  = "move"  // a neighbour's, as a boundary was moved
	KindLeave = "leave" // a predecessor's that has left
	KindCrash = "crash" // a predecessor's whose record has expired
)

// How a handover ends.
const (
	ResultWarm      = "warm"       // the receiver held the range when it was granted
	ResultCold      = "cold"       // the receiver had to fill its caches first
	ResultCalledOff = "called_off" // the giver keeps the range
)

// How a renewal ends.
const (
	ResultRenewed = "renewed"
	ResultFailed  = "failed" // no answer, or an error
	ResultLost    = "lost"   // the record is gone
)

// The steps of a handover.
const (
	StepFill  = "fill"  // the receiver's: from when a range is named to when its caches hold it
	StepDrain = "drain" // the giver's: from when its gate is shut to when nothing of the range is in work
	StepGrant = "grant" // the giver's: from there to when the grant is in the log
	StepOpen  = "open"  // the receiver's: from when the range is its own to when its gate is open
)

// Who keeps a write from being done.
const (
	RefusedBySelf   = "self"   // the instance: it could not renew its record in time
	RefusedByServer = "server" // the API server's fence
)

// The reasons of events on ControllerInstances.
const (
	eventJoined    = "Joined"
	eventGranted   = "Granted"
	eventTookOver  = "TookOver"
	eventCalledOff = "CalledOff"
	eventFenced    = "Fenced"
)

// Events takes events on ControllerInstances; record.EventRecorder fits.
type Events interface {
	Eventf(object runtime.Object, eventType, reason, format string, args ...any)
}

type noMetrics struct{}

func (noMetrics) Registered()                                   {}
func (noMetrics) State(shardingv1alpha1.InstancePhase, float64) {}
func (noMetrics) Load(int64, int64)                             {}
func (noMetrics) Renewed(string)                                {}
func (noMetrics) HandedOver(string, string)                     {}
func (noMetrics) Step(string, time.Duration)                    {}
func (noMetrics) Unserved(string, time.Duration)                {}
func (noMetrics) Refused(string)                                {}

type noEvents struct{}

func (noEvents) Eventf(runtime.Object, string, string, string, ...any) {}

// observer tells Metrics and Events what one registration goes through. It draws
// that from the log alone, and from what the gate and the caches have come to. It
// is not safe for concurrent use.
type observer struct {
	name string
	// self is the instance's record as it was registered.
	self    Record
	metrics Metrics
	events  Events

	view *View
	// heard is when each record was last seen to change, draining when it was seen
	// to wait for its own work to end.
	heard, draining map[string]time.Time
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

type gain struct {
	kind, from  string
	ranges      hashkey.Ranges
	since, seen time.Time
	warm        bool
}

func newObserver(name string, view *View, metrics Metrics, events Events) *observer {
	self, _ := view.Get(name)
	return &observer{name: name, self: self, metrics: metrics, events: events, view: view, heard: map[string]time.Time{}, draining: map[string]time.Time{}}
}

// observe takes what a decision has come to: held are the keys that all caches
// hold, serving those that the gate is open for. idle says that nothing is in work
// in a range that the gate was shut for.
func (o *observer) observe(now time.Time, view *View, d Decision, held, serving hashkey.Ranges, idle bool) {
	if before := o.view; view != before {
		o.view = view
		o.listen(now, before)
		o.gained(now, before, held)
		o.given(now, before)
		o.forget()
	}
	o.opened(now, serving)

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

func (o *observer) listen(now time.Time, before *View) {
	for _, r := range o.view.Records() {
		old, _ := before.Get(r.Name)
		if old.Revision != r.Revision {
			o.heard[r.Name] = now
		}
		if r.Phase == shardingv1alpha1.InstanceWait && old.Phase != r.Phase {
			o.draining[r.Name] = now
		}
	}
}

// forget drops what is known of records that have gone, and of draining that has ended.
func (o *observer) forget() {
	for name := range o.heard {
		r, ok := o.view.Get(name)
		if !ok {
			delete(o.heard, name)
		}
		if r.Phase != shardingv1alpha1.InstanceWait {
			delete(o.draining, name)
		}
	}
}

// gained takes note of a range that has become the instance's own.
func (o *observer) gained(now time.Time, before *View, held hashkey.Ranges) {
	ranges := o.view.Owned(o.name).Minus(before.Owned(o.name))
	if ranges.Empty() {
		return
	}
	self, _ := o.view.Get(o.name)
	old, _ := before.Get(o.name)
	g := gain{kind: KindMove, ranges: ranges, since: now, seen: now, warm: held.Covers(ranges)}
	for _, r := range before.Ring() {
		if before.Owned(r.Name).Intersect(ranges).Empty() {
			continue
		}
		g.from = r.Name
		if _, stays := o.view.Get(r.Name); !stays {
			g.kind = KindCrash
			if r.Phase == shardingv1alpha1.InstanceLeaving {
				g.kind = KindLeave
			}
			break
		}
	}
	switch {
	case old.Key == nil && self.Donor == "":
		g.kind = KindFirst
	case old.Key == nil:
		g.kind, g.from = KindJoin, self.Donor
	}
	var since time.Time
	switch g.kind {
	case KindCrash:
		since = o.heard[g.from]
	case KindJoin, KindMove:
		since = o.draining[g.from]
	}
	if !since.IsZero() {
		g.since = since
	}
	o.gains = append(o.gains, g)
}

// given tells of handovers that this instance was to give, and that have ended.
func (o *observer) given(now time.Time, before *View) {
	for _, old := range before.Records() {
		if old.Next == nil || before.handover(old).giver != o.name {
			continue
		}
		r, there := o.view.Get(old.Name)
		switch {
		case there && r.Key != nil && *r.Key == *old.Next:
			if !o.drained.IsZero() {
				o.metrics.Step(StepGrant, now.Sub(o.drained))
				o.drained = time.Time{}
			}
			o.events.Eventf(reference(r), v1.EventTypeNormal, eventGranted, "%s has given away what lies up to hash key %d", o.name, *r.Key)
		case !there || r.Next == nil:
			kind := KindJoin
			if old.Key != nil {
				kind = KindMove
			}
			o.metrics.HandedOver(kind, ResultCalledOff)
			o.events.Eventf(reference(old), v1.EventTypeWarning, eventCalledOff, "%s keeps what lies up to hash key %d", o.name, *old.Next)
		}
	}
}

// opened tells of ranges that are worked on again.
func (o *observer) opened(now time.Time, serving hashkey.Ranges) {
	var waiting []gain
	for _, g := range o.gains {
		// Some of it may have been given away at once.
		g.ranges = g.ranges.Intersect(o.view.Owned(o.name))
		if !serving.Covers(g.ranges) {
			waiting = append(waiting, g)
			continue
		}
		if g.ranges.Empty() {
			continue
		}
		result := ResultCold
		if g.warm {
			result = ResultWarm
		}
		o.metrics.HandedOver(g.kind, result)
		o.metrics.Step(StepOpen, now.Sub(g.seen))
		o.metrics.Unserved(g.kind, now.Sub(g.since))
		self, _ := o.view.Get(o.name)
		switch g.kind {
		case KindFirst:
			o.events.Eventf(reference(self), v1.EventTypeNormal, eventJoined, "Works on all keys: nobody owned any")
		case KindJoin:
			o.events.Eventf(reference(self), v1.EventTypeNormal, eventJoined, "Works on %s, from %s", g.ranges, g.from)
		case KindMove:
			o.events.Eventf(reference(self), v1.EventTypeNormal, eventTookOver, "Works on %s, as a boundary has moved; from %s", g.ranges, g.from)
		case KindLeave:
			o.events.Eventf(reference(self), v1.EventTypeNormal, eventTookOver, "Works on %s, as %s has left", g.ranges, g.from)
		case KindCrash:
			o.events.Eventf(reference(self), v1.EventTypeWarning, eventTookOver, "Works on %s, as the record of %s has expired", g.ranges, g.from)
		}
	}
	o.gains = waiting
}

// fenced tells that the instance has stopped working to be on the safe side. It may
// be called from any goroutine.
func (o *observer) fenced(message string) {
	o.events.Eventf(reference(o.self), v1.EventTypeWarning, eventFenced, "%s", message)
}

func reference(r Record) *v1.ObjectReference {
	return &v1.ObjectReference{APIVersion: shardingv1alpha1.SchemeGroupVersion.String(), Kind: "ControllerInstance", Name: r.Name, UID: r.UID}
}
