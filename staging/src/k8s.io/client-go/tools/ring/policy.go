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
)

// Policy evens out a ring, for one of its instances: from what the records tell it says which
// boundaries of the instance's range are to move. It moves none itself: the Machine checks a shift
// as it checks a move that a person asks for, and writes it. It is not safe for concurrent use.
type Policy interface {
	// Observe takes the log's next view, whether or not anything is decided on it.
	Observe(view *View)
	// Shifts returns the moves that are to be made now. It is called with each decision. turn is nil
	// where the instance may begin none.
	Shifts(view *View, now time.Duration, turn *Turn) Advice
}

// Turn is an instance's, to move a boundary of its range: it has nothing else to do.
type Turn struct {
	// Rests is until when the instance begins no handover, as Input.Now counts: one has failed lately.
	Rests time.Duration
	// Resting are those of its neighbours to which it gives nothing now: it has waited for them in
	// vain lately, or they belong to a crash loop.
	Resting []string
	// Keys are as in Input. Work holds keys on which the instance has lately worked, as often as it
	// has, in any order.
	Keys, Work []int64
}

// Advice is what a policy says.
type Advice struct {
	// Shifts are the moves to make, the best first. One at a time is made: the first that can be.
	Shifts []Shift
	// NeedsKeys says that Turn.Keys were not there, and a shift may follow from them: ask again at
	// once, with them.
	NeedsKeys bool
	// Wake is when to ask again though nothing has happened, as Input.Now counts; 0: there is no such
	// time.
	Wake time.Duration
}

// Shift is a move of a boundary that evens a ring out: one instance gives load to a neighbour.
type Shift struct {
	// Boundary is the instance whose upper end moves. It is the donor where that end moves down, and
	// the receiver where it moves up.
	Boundary        string
	Donor, Receiver string
	// Key is where the boundary is to be, and Load what changes hands by that, in objects.
	Key, Load int64
	// Has and Wanted are the load that the donor has and should have, Takes and Needs those of the
	// receiver.
	Has, Wanted, Takes, Needs int64
}

// String says what is to move, and why.
func (s *Shift) String() string {
	return fmt.Sprintf("%s gives %d to %s: they have %d and %d, and should have %d and %d",
		s.Donor, s.Load, s.Receiver, s.Has, s.Takes, s.Wanted, s.Needs)
}

// decideShift begins the best of the policy's shifts that can be made, if nothing else is to be
// done: who wishes a key gets it first.
func (m *Machine) decideShift(in Input, d *Decision) {
	if d.Write != nil || d.NeedsKeys || d.Phase != shardingv1alpha1.InstanceActive || len(m.view.ring) < 2 {
		return
	}
	if _, off := m.view.BalanceOff(); off {
		return
	}
	d.Turn = &Turn{Rests: m.rests[registration{}]}
	predecessor, successor, _ := m.view.Neighbours(m.name)
	for _, r := range []Record{predecessor, successor} {
		if m.restsUntil(r, nil) > in.Now {
			d.Turn.Resting = append(d.Turn.Resting, r.Name)
		}
	}
	i := slices.IndexFunc(in.Shifts, func(s Shift) bool { return m.canShift(s, in.Stuck) })
	if i < 0 {
		return
	}
	d.Proposal = &in.Shifts[i]
	if in.DryRun {
		return
	}
	r, _ := m.view.Get(d.Proposal.Boundary)
	d.Write = write(ReasonBalance, r, r.Key, &d.Proposal.Key, r.Donor)
	d.Write.Detail = d.Proposal.String()
}

// canShift says whether this instance can make the shift: a person could move that boundary there,
// and that gives keys of this instance away, none of which has work that may never end.
func (m *Machine) canShift(s Shift, stuck []int64) bool {
	if m.view.CheckMove(s.Boundary, s.Key) != nil {
		return false
	}
	r, _ := m.view.Get(s.Boundary)
	gives := m.view.Owned(m.name).Minus(m.view.ownedAfter(r, s.Key, m.name))
	return !gives.Empty() && !containsAny(gives, stuck)
}
