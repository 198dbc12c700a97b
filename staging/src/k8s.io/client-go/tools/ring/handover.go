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

	"k8s.io/apimachinery/pkg/hashkey"
)

// handover is an open one: a record that names its next key. It is closed by a
// write of that record, which grants the key or calls it off. Since every write
// needs the record as it was decided on, the first that arrives makes all others
// void that are still under way.
type handover struct {
	record Record
	kind   handoverKind
	// giver owns what is to change hands and gives it to taker. A void handover
	// has neither.
	giver, taker string
	// closer is who calls a void handover off; "": the oldest instance.
	closer string
	// after is the view that a grant makes.
	after *View
}

// handoverKind orders the handovers of one giver: it serves them in this order.
type handoverKind int

const (
	// moveUp moves a boundary into the successor's range.
	moveUp handoverKind = iota
	// join gives a newcomer its first range.
	join
	// moveDown moves a boundary into the instance's own range.
	moveDown
	// void cannot be done: no donor, or a key that is not the neighbours' to share.
	void
)

// handovers returns the open ones, in order of the records' names.
func (v *View) handovers() []handover {
	var out []handover
	for _, r := range v.records {
		if r.Next != nil {
			out = append(out, v.handover(r))
		}
	}
	return out
}

func (v *View) handover(r Record) handover {
	granted := r
	granted.Key, granted.Next = r.Next, nil
	h := handover{record: r, kind: void, after: v.With(granted)}
	owner, ok := v.Owner(*r.Next)
	if !ok {
		return h
	}
	if r.Key == nil {
		h.closer = owner.Name
		if owner.Name == r.Donor && *owner.Key != *r.Next {
			h.kind, h.giver, h.taker = join, owner.Name, r.Name
		}
		return h
	}
	h.closer = r.Name
	successor, ok := v.Successor(r.Name)
	switch {
	case !ok, *owner.Key == *r.Next:
	case owner.Name == r.Name:
		h.kind, h.giver, h.taker = moveDown, r.Name, successor.Name
	case owner.Name == successor.Name:
		h.kind, h.giver, h.taker = moveUp, successor.Name, r.Name
	}
	return h
}

// share returns what the instance loses by a grant, which is nothing unless it
// owns the next key.
func (h *handover) share(name string, owned hashkey.Ranges) hashkey.Ranges {
	return owned.Minus(h.after.Owned(name))
}

// whyVoid says what is wrong with a void handover.
func (v *View) whyVoid(r Record) string {
	owner, ok := v.Owner(*r.Next)
	if !ok {
		return "nobody owns a key"
	}
	if r.Key == nil {
		if owner.Name != r.Donor {
			return fmt.Sprintf("nextHashKey %d is owned by %s, not by the donor %q", *r.Next, owner.Name, r.Donor)
		}
		return fmt.Sprintf("nextHashKey %d is the donor's own", *r.Next)
	}
	predecessor, successor, ok := v.Neighbours(r.Name)
	if !ok {
		return "there is no other instance on the ring, so no boundary to move"
	}
	return fmt.Sprintf("nextHashKey %d is not allowed: going up the ring it must lie after %d, the predecessor's key, before %d, the successor's, and not be %d, the present one",
		*r.Next, *predecessor.Key, *successor.Key, *r.Key)
}
