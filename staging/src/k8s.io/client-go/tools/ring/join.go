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
	"cmp"
	"math/bits"
	"slices"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
)

// decideJoin is for an instance that owns nothing yet.
func (m *Machine) decideJoin(self Record, handovers []Handover, in Input, d *Decision) {
	named := self.Next != nil
	d.Phase = shardingv1alpha1.InstanceInit
	limit := m.limits.Step
	if named {
		d.Phase = shardingv1alpha1.InstanceLocked
		limit = m.receiveLimit(handovers, in.Room)
	}
	if !self.Held.Empty() && !self.Drained && in.Now < m.moved+m.limits.Step {
		// It may be given that back, once others have been.
		d.Follow = d.Follow.Union(self.Held)
		d.wakeAt(m.moved + m.limits.Step)
	}
	if len(m.view.Ring()) == 0 {
		m.decideFirst(self, d)
		return
	}
	if m.heir() && in.Room == nil {
		// Nobody else is left to take over from those that leave.
		d.Follow = hashkey.All()
	}
	if self.Drained && !named {
		m.wait = waiting{}
		return
	}
	since := m.await(waiting{Peer: self.Donor, Named: named}, in.Now)
	overdue := in.Now-since >= limit
	if !overdue {
		d.waitUntil(since + limit)
	}
	holder := m.holder(self)
	donors := m.donors(holder)
	if len(donors) == 0 {
		return
	}
	asked := donors.named(self.Donor)
	if overdue && asked != nil && len(donors) > 1 {
		m.slow = asked.name
	}
	if slow := donors.named(m.slow); slow != nil && (slow != asked || overdue) && len(donors) > 1 {
		donors = donors.without(slow)
	}
	best := m.toAsk(donors)
	if d := donors.named(holder); d != nil {
		// It has the objects already that lie there.
		best = d
	}
	switch {
	case overdue && named, asked == nil:
	case named, best == asked:
		return
	}
	d.Write = write(ReasonWish, self, nil, nil, best.name)
}

// heir says whether this instance is to take everything once all that own a range have
// left.
func (m *Machine) heir() bool {
	for _, o := range m.older() {
		if r, ok := m.view.Get(o.Name); ok && !r.leaving() {
			return false
		}
	}
	return len(m.withoutLeaving().Ring()) == 0
}

// decideFirst is for an instance on a ring where nobody owns a key. The oldest takes
// everything.
func (m *Machine) decideFirst(self Record, d *Decision) {
	m.wait = waiting{}
	if len(m.older()) > 0 {
		return
	}
	// Any key is the end of the whole line. What it begins with lies below that, unless its caches
	// are filled already, for those that have left.
	all, held := lastOf(self.Held)
	if !held {
		all = hashkey.Max
	}
	if d.Follow = d.Follow.Union(m.follow); d.Follow.Empty() {
		d.Follow = upperPart(all, hashkey.All(), hashkey.All(), max(hashkey.Limit/firstPiece, m.limits.Piece))
	}
	d.Write = write(ReasonFirst, self, &all, nil, "")
}

// donor is an instance that can be asked for a part of its range.
type donor struct {
	name string
	// weight is what it has and can share, and width how many keys it has; asked is how many ask
	// it for a part. cold is how many of the keys its caches do not follow, if it has lost its record
	// before and that is much of the line: little is soon filled, and where all begin with nothing
	// they share by weight, or the load is uneven for an hour.
	weight, width, cold uint64
	asked               uint64
}

// donors are in order of key.
type donors []*donor

// Shareable returns the load of which half can be given away, in objects: all of it, unless most of
// it lies on one key, which stays whole.
func (r Record) Shareable() int64 {
	return max(0, min(r.Weight, 2*(r.Weight-r.Heaviest)))
}

// named returns the donor of that name; nil: it is none.
func (ds donors) named(name string) *donor {
	i := slices.IndexFunc(ds, func(d *donor) bool { return d.name == name })
	if i < 0 {
		return nil
	}
	return ds[i]
}

func (ds donors) without(other *donor) donors {
	return slices.DeleteFunc(slices.Clone(ds), func(d *donor) bool { return d == other })
}

// best returns the donor with most to give to one more: by what nobody works on, then by weight,
// then by width.
func (ds donors) best() *donor {
	best := ds[0]
	for _, d := range ds[1:] {
		if d.compare(best) > 0 {
			best = d
		}
	}
	return best
}

// donors returns those that can be asked for a part of their range, with that one, which owns a
// range, whatever it does; "": with none.
func (m *Machine) donors(with string) donors {
	var out, filling donors
	for _, r := range m.view.Ring() {
		working := r.Phase == shardingv1alpha1.InstanceActive || r.Phase == shardingv1alpha1.InstanceWait
		owned := m.view.Owned(r.Name)
		if width := owned.Width(); width >= 2 && (working || r.Phase == shardingv1alpha1.InstanceLocked) {
			d := &donor{name: r.Name, weight: uint64(r.Shareable()), width: width}
			if !r.Held.Empty() {
				if cold := owned.Minus(r.Cached).Width(); cold >= hashkey.Limit/firstPiece {
					d.cold = cold
				}
			}
			if working || r.Name == with || d.cold > 0 {
				out = append(out, d)
			} else {
				filling = append(filling, d)
			}
		}
	}
	if len(out) == 0 {
		// Those that work on nothing yet give what they have not begun to fill.
		out = filling
	}
	for _, r := range m.view.Records() {
		if d := out.named(r.Donor); d != nil && r.joins() {
			d.asked++
		}
	}
	return out
}

// toAsk returns which donor this instance should ask. All that join work it out for each of
// them in order of name, so they spread over the donors instead of running to the same one.
func (m *Machine) toAsk(donors donors) *donor {
	for _, r := range m.view.Records() {
		if r.Next != nil && r.Name != m.name || !r.joins() {
			continue
		}
		asked := donors.named(r.Donor)
		if asked != nil {
			asked.asked--
		}
		best := donors.best()
		if asked != nil && !best.clearlyBetter(asked) {
			best = asked
		}
		if r.Name == m.name {
			return best
		}
		best.asked++
	}
	return donors.best()
}

// compare compares what two donors can give to one more.
func (d *donor) compare(other *donor) int {
	return cmp.Or(d.compareCold(other, 1), d.compareWorkloads(other, 1), d.compareWidth(other, 1))
}

func (d *donor) compareCold(other *donor, times uint64) int {
	return d.compareShares(d.cold, other, other.cold, times)
}

func (d *donor) compareWorkloads(other *donor, times uint64) int {
	return d.compareShares(d.weight, other, other.weight, times)
}

func (d *donor) compareWidth(other *donor, times uint64) int {
	return d.compareShares(d.width, other, other.width, times)
}

// compareShares compares a share of mine with that many of the other's, without rounding.
func (d *donor) compareShares(mine uint64, other *donor, others, times uint64) int {
	mineHigh, mineLow := bits.Mul64(mine, other.asked+1)
	otherHigh, otherLow := bits.Mul64(others, times*(d.asked+1))
	return cmp.Or(cmp.Compare(mineHigh, otherHigh), cmp.Compare(mineLow, otherLow))
}

// clearlyBetter keeps a joining instance from changing its mind with every report.
func (d *donor) clearlyBetter(other *donor) bool {
	if d.compareCold(other, 1) != 0 {
		return d.compareCold(other, 2) > 0
	}
	if d.compareWorkloads(other, 1) != 0 {
		return d.compareWorkloads(other, 2) > 0
	}
	return d.compareWidth(other, 2) >= 0
}
