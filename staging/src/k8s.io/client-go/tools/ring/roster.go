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
)

// Roster decides for one instance which of its controllers it works on. An instance works on
// a controller only while all instances of its ring list it and the leader does not run it.
// Like Machine, a roster has no client, goroutine or clock, and is not safe for concurrent
// use.
//
// It keeps the leader and the ring apart without comparing clocks. An instance first says in
// its record that it works on the controller, then reads with quorum who leads, and begins
// only if that leader does not run it. It says that it has ceased only once its work has
// ended, with a higher epoch, so nothing of it is stored later. A leader first takes the
// Lease, signed with what it will run, then reads all records with quorum, and begins only
// once none says that an instance works on that.
//
//	      may            stored            the leader is read
//	off ───────▶ announcing ────▶ asking ────────────────────▶ on
//	 ▲             │                 │                          │
//	 │   idle      ▼                 ▼          may not         │
//	 └───────── ending ◀────────────────────────────────────────┘
type Roster struct {
	controllers []string
	duties      map[string]*duty
	reading     bool
}

// duty is an instance's part in one controller.
type duty struct {
	stage
	// read says that the leader is being read since the registry has had the stage.
	read bool
}

type stage int

const (
	// off: the record does not say that the instance works on the controller.
	off stage = iota
	// announcing: it is to say so.
	announcing
	// asking: it does, and the leader is to be read.
	asking
	// on: the instance works on the controller.
	on
	// ending: no work may begin any more, and some may be under way.
	ending
)

// RosterInput is what an instance knows when it decides on its controllers.
type RosterInput struct {
	// View is the ring, from the log.
	View *View
	// Leader is who leads, as last seen; nil: that is not known yet, so nothing begins. On
	// a ring that no leader shares controllers with it is the zero Leader.
	Leader *Leader
	// Barred says why the instance must not work on any controller; empty if nothing bars it.
	Barred string
	// Reported are the controllers of which the registry is known to say that the instance works
	// on them, if it has the instance's present epoch: a report of an earlier one that is still
	// on its way could be stored yet.
	Reported []string
	// Busy are the controllers that the gate is open for, or whose work is still under way.
	Busy []string
}

// RosterDecision is what follows. Its fields are carried out in their order.
type RosterDecision struct {
	// Open are the controllers to work on. First shut the gate for all others, at once. Open
	// it for what is new once the caches hold all that the instance owns as of a moment
	// after this decision.
	Open []string
	// Raise, second, says that the instance's epoch is to be raised, before the next report
	// and before the next decision.
	Raise bool
	// States, third, is what the record is to say.
	States []ControllerState
	// Read, fourth, says that the leader is to be read with quorum, and to be passed to
	// Answer, however long that takes.
	Read bool
	// Again, last, says that another decision is due as soon as this one is carried out.
	Again bool
}

// ControllerState is what an instance says of one of its controllers.
type ControllerState struct {
	Name string
	// Working says that the instance may be working on it.
	Working bool
	// Reason says why it must not; empty if it may.
	Reason string
}

// NewRoster returns the roster of an instance that lists these controllers in its record.
func NewRoster(controllers []string) *Roster {
	r := &Roster{controllers: controllers, duties: map[string]*duty{}}
	for _, c := range controllers {
		r.duties[c] = &duty{}
	}
	return r
}

// Decide returns what is to be done now.
func (r *Roster) Decide(in RosterInput) RosterDecision {
	var d RosterDecision
	for _, c := range r.controllers {
		reason := whyNot(c, in)
		duty := r.duties[c]
		before := duty.stage
		duty.advance(c, reason == "", in, &d)
		d.Again = d.Again || duty.stage != before
		if duty.stage == on {
			d.Open = append(d.Open, c)
		}
		d.States = append(d.States, ControllerState{Name: c, Working: duty.stage != off, Reason: reason})
	}
	if r.reading {
		return d
	}
	for _, duty := range r.duties {
		if duty.stage == asking {
			duty.read, r.reading, d.Read = true, true, true
		}
	}
	return d
}

// advance takes the duty one step on.
func (d *duty) advance(controller string, may bool, in RosterInput, decision *RosterDecision) {
	switch {
	case d.stage == off && may:
		d.stage = announcing
	case d.stage == announcing && may && slices.Contains(in.Reported, controller):
		*d = duty{stage: asking}
	case d.stage != off && d.stage != ending && !may:
		d.stage = ending
	case d.stage == ending && !slices.Contains(in.Busy, controller):
		d.stage = off
		decision.Raise = true
	}
}

// Answer takes who leads, as read after a decision asked for it; ok is false if that could
// not be read.
func (r *Roster) Answer(leader Leader, ok bool) {
	r.reading = false
	if !ok {
		return
	}
	for c, duty := range r.duties {
		switch {
		case duty.stage != asking || !duty.read:
		case leader.Runs(c):
			duty.stage = ending
		default:
			duty.stage = on
		}
	}
}

// whyNot says why the instance must not work on the controller; "" if it may.
func whyNot(controller string, in RosterInput) string {
	if in.Barred != "" {
		return in.Barred
	}
	if other := in.View.unlisted(controller); other != "" {
		return fmt.Sprintf("ControllerInstance %s does not list it in spec.controllers", other)
	}
	switch l := in.Leader; {
	case l == nil:
		return "it is not known yet who leads"
	case !l.Runs(controller):
		return ""
	case !l.Signed():
		return fmt.Sprintf("the leader's Lease is held by %.256s, a kube-controller-manager without rings", Printable(l.Holder))
	default:
		return fmt.Sprintf("the leader, %.256s, runs it", Printable(l.Process()))
	}
}
