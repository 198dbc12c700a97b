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

import "slices"

// Policy says when the ranges of a ring are evened out.
type Policy struct {
	// Tolerance is how much more than it should have an instance may have, as a part of what
	// one has on average. Of too little it may have twice that.
	Tolerance float64
	// Least is the least load that is worth a handover, in objects.
	Least int64
}

// DefaultPolicy keeps the largest load below six fifths of the mean one.
var DefaultPolicy = Policy{Tolerance: 0.1, Least: 50}

// Plan says what would even out a ring.
type Plan struct {
	// Parts are those of all that own a range, in order of key.
	Parts []Part
	// Shifts are those that bring the ring nearer to what each should have, at most one for each
	// boundary, in order of the boundaries' keys. There are none where it is near enough.
	Shifts []Shift
}

// Part is the load of an instance, in objects.
type Part struct {
	Name string
	// Weight is what it has of the ring, and Wanted what it should have.
	Weight, Wanted int64
	// Own is what its process holds beyond other instances of such a weight: as many objects of the
	// ring would take as much memory.
	Own int64
}

// Shift is load that an instance is to give to one of its neighbours.
type Shift struct {
	// Boundary is the instance whose upper end moves. It is the donor where that end moves down, and
	// the receiver where it moves up.
	Boundary        string
	Donor, Receiver string
	// Load is how many objects are to change hands.
	Load int64
}

// Plan returns what would even out the ring, by what its instances have told of themselves. All that
// see the same records come to the same plan, so each donor can do its part alone.
func (v *View) Plan(policy Policy) Plan {
	n := len(v.ring)
	p := Plan{Parts: make([]Part, n)}
	bytes := v.bytesOfObject()
	var total int64
	for i, r := range v.ring {
		p.Parts[i] = Part{Name: r.Name, Weight: r.Weight, Own: own(r, bytes)}
		total += r.Weight
	}
	if n < 2 {
		for i := range p.Parts {
			p.Parts[i].Wanted = total
		}
		return p
	}
	v.want(p.Parts, total)
	tolerated := max(float64(policy.Least), policy.Tolerance*float64(total)/float64(n))
	if !slices.ContainsFunc(p.Parts, func(part Part) bool {
		excess := float64(part.Weight - part.Wanted)
		return excess > tolerated || -excess > 2*tolerated
	}) {
		return p
	}
	for i, flow := range flows(p.Parts) {
		self, successor := p.Parts[i], p.Parts[(i+1)%n]
		s := Shift{Boundary: self.Name, Donor: self.Name, Receiver: successor.Name, Load: min(flow, self.spare())}
		if flow < 0 {
			s.Donor, s.Receiver, s.Load = successor.Name, self.Name, min(-flow, successor.spare())
		}
		if s.Load >= policy.Least {
			p.Shifts = append(p.Shifts, s)
		}
	}
	return p
}

// bytesOfObject returns how many bytes of heap come to one object of the ring: the lower median, as
// the process that leads holds more.
func (v *View) bytesOfObject() float64 {
	var all []float64
	for _, r := range v.ring {
		if r.HeapWeight > 0 {
			all = append(all, float64(r.LiveBytes)/float64(r.HeapWeight))
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[(len(all)-1)/2]
}

// own returns what the instance's process holds beyond its weight, in objects of so many bytes.
func own(r Record, bytes float64) int64 {
	if bytes == 0 {
		return 0
	}
	return max(0, int64(float64(r.LiveBytes)/bytes)-r.HeapWeight)
}

// want shares the load out, so that all come to the same with what their processes hold beside it.
// None comes below its heaviest key, which stays whole.
func (v *View) want(parts []Part, total int64) {
	sum := func(level int64) (sum int64) {
		for i := range parts {
			parts[i].Wanted = max(v.ring[i].Heaviest, level-parts[i].Own, 0)
			sum += parts[i].Wanted
		}
		return sum
	}
	// The lowest level at which all of the load has a place lies in (low, high].
	low, high := int64(-1), total
	for _, part := range parts {
		high = max(high, total+part.Own)
	}
	for high-low > 1 {
		if middle := low + (high-low)/2; sum(middle) < total {
			low = middle
		} else {
			high = middle
		}
	}
	// One level lower there would be too little: some of those that it stands for have one too many.
	surplus := sum(high) - total
	for i := range parts {
		if surplus > 0 && parts[i].Wanted > v.ring[i].Heaviest {
			parts[i].Wanted--
			surplus--
		}
	}
}

// spare is what an instance can give in one handover. It keeps half of what it should have, so that
// load which is on its way to another does not empty it.
func (p Part) spare() int64 { return p.Weight - min(p.Weight, p.Wanted)/2 }

// flows returns the load that has to pass the upper end of each instance's range, to its successor,
// until each has what it should have; negative: from its successor. The ring is round, so one flow
// is free. It is chosen so that the least load moves: as many flow up as down.
func flows(parts []Part) []int64 {
	out := make([]int64, len(parts))
	var sum int64
	for i, part := range parts {
		sum += part.Weight - part.Wanted
		out[i] = sum
	}
	middle := slices.Sorted(slices.Values(out))[(len(out)-1)/2]
	for i := range out {
		out[i] -= middle
	}
	return out
}
