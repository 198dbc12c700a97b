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
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/hashkey"
)

// Kind is how a range comes to an instance.
type Kind string

const (
	KindFirst Kind = "first" // nobody owned a key
	KindJoin  Kind = "join"  // the instance's first range, from its donor
	KindMove  Kind = "move"  // a neighbour's, as a boundary has moved
	KindLeave Kind = "leave" // a predecessor's that has left
	KindCrash Kind = "crash" // a predecessor's whose record has expired
)

// Handover is an open one: a record names its next key. The write of that record
// that grants the key or calls the handover off closes it. Every write needs the
// spec as it was decided on, so the first that arrives voids all others that are still
// under way.
type Handover struct {
	// Kind is KindJoin or KindMove, or empty for a void handover.
	Kind Kind
	// Record is the one that names its next key: the receiver's in a join; in a move
	// that of the instance whose upper end moves.
	Record Record
	// Donor owns what is to change hands, Receiver gets it. A void handover has neither.
	Donor, Receiver string
	// Void says why the handover cannot be done; nil if it can.
	Void error
	// closer calls a void handover off; "": the oldest instance does.
	closer string
	// before is the view that it is open in.
	before *View
}

// Handovers returns the open ones, in order of their records' names.
func (v *View) Handovers() []Handover {
	var out []Handover
	for _, r := range v.records {
		if r.Next != nil {
			out = append(out, v.handover(*r))
		}
	}
	return out
}

func (v *View) handover(r Record) Handover {
	h := Handover{Record: r, before: v}
	owner, ok := v.Owner(*r.Next)
	if !ok {
		h.Void = errors.New("nobody owns a key")
		return h
	}
	if r.Key == nil {
		h.closer = owner.Name
		if h.Void = v.checkJoin(r, owner); h.Void == nil {
			h.Kind, h.Donor, h.Receiver = KindJoin, owner.Name, r.Name
		}
		return h
	}
	h.closer = r.Name
	if err := v.CheckMove(r.Name, *r.Next); err != nil {
		h.Void = fmt.Errorf("nextHashKey %s %w", hashkey.Format(*r.Next), err)
		return h
	}
	h.Kind, h.Donor, h.Receiver = KindMove, owner.Name, r.Name
	if owner.Name == r.Name {
		successor, _ := v.Successor(r.Name)
		h.Receiver = successor.Name
	}
	return h
}

// checkJoin says why the range of owner cannot be split at the next key of r.
func (v *View) checkJoin(r, owner Record) error {
	switch {
	case owner.Name != r.Donor:
		return fmt.Errorf("nextHashKey %s is owned by %s, not by the donor %q", hashkey.Format(*r.Next), owner.Name, r.Donor)
	case *owner.Key == *r.Next:
		return fmt.Errorf("nextHashKey %s is the donor's own", hashkey.Format(*r.Next))
	}
	return nil
}

// CheckMove says why the upper end of the instance's range cannot move to next; nil
// if it can. It can move to any key between those of its neighbours: down, into the
// range of the instance, or up, into that of its successor.
func (v *View) CheckMove(name string, next int64) error {
	self, ok := v.Get(name)
	if !ok || v.Index(name) < 0 {
		return errors.New("must be unset: the instance owns no range in its ring")
	}
	predecessor, successor, ok := v.Neighbours(name)
	if !ok {
		return errors.New("must be unset: the instance owns all hash keys, so there is no boundary to move")
	}
	after, before := *predecessor.Key, *successor.Key
	if next != *self.Key && next != before && hashkey.Between(after, before).Contains(next) {
		return nil
	}
	seam := ""
	if after >= before {
		seam = " (going on from the highest hash key to the lowest)"
	}
	return fmt.Errorf("must lie between %s and %s%s, the hash keys of the neighbours %s and %s, and must not be %s, the present one",
		hashkey.Format(after), hashkey.Format(before), seam, predecessor.Name, successor.Name, hashkey.Format(*self.Key))
}

// Share returns what of owned, the keys of that instance, it loses by a grant:
// nothing unless it owns the next key.
func (h *Handover) Share(name string, owned hashkey.Ranges) hashkey.Ranges {
	return owned.Minus(h.OwnedAfter(name))
}

// OwnedAfter returns what the instance owns once the handover is granted.
func (h *Handover) OwnedAfter(name string) hashkey.Ranges {
	return h.before.ownedAfter(h.Record, *h.Record.Next, name)
}

// up says whether a boundary moves into the range of its instance's successor.
func (h *Handover) up() bool { return h.Kind == KindMove && h.Receiver == h.Record.Name }

// rank orders the handovers of one donor, which serves the lowest first: boundaries
// that move up into its range, then joins, then its own boundary that moves down.
func (h *Handover) rank() int {
	switch {
	case h.up():
		return 0
	case h.Kind == KindJoin:
		return 1
	default:
		return 2
	}
}

// Outcome is what has become of a handover.
type Outcome int

const (
	Open      Outcome = iota // the record names the key still, or another one by now
	Granted                  // the record has the key
	CalledOff                // the record is gone or another's, or names no key any more
)

// Outcome returns what has become of the handover in a later view.
func (h *Handover) Outcome(later *View) Outcome {
	r, ok := later.Get(h.Record.Name)
	switch {
	case !ok, r.UID != h.Record.UID:
		return CalledOff
	case r.Key != nil && *r.Key == *h.Record.Next:
		return Granted
	case r.Next == nil:
		return CalledOff
	default:
		return Open
	}
}

// Received is a range that the log has given an instance.
type Received struct {
	Kind Kind
	// Donor is who owned the range before; empty for KindFirst.
	Donor  string
	Ranges hashkey.Ranges
}

// ReceivedSince returns what the instance has come to own since before, in order of
// the former owners' keys.
func (v *View) ReceivedSince(before *View, name string) []Received {
	gain := v.Owned(name).Minus(before.Owned(name))
	if gain.Empty() {
		return nil
	}
	if len(before.ring) == 0 {
		return []Received{{Kind: KindFirst, Ranges: gain}}
	}
	var out []Received
	for _, former := range before.ring {
		if part := before.Owned(former.Name).Intersect(gain); !part.Empty() {
			out = append(out, Received{Kind: v.kindOf(before, name, *former), Donor: former.Name, Ranges: part})
		}
	}
	return out
}

// kindOf says how the range of former, an owner in the view before, came to receiver.
func (v *View) kindOf(before *View, receiver string, former Record) Kind {
	old, _ := before.Get(receiver)
	self, _ := v.Get(receiver)
	if old.Key == nil && self.Donor == former.Name {
		return KindJoin
	}
	switch now, stays := v.Get(former.Name); {
	case stays && now.UID == former.UID:
		return KindMove
	case former.leaving():
		return KindLeave
	default:
		return KindCrash
	}
}
