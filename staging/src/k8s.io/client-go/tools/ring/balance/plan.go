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

package balance

import (
	"cmp"
	"math"
	"slices"
	"time"

	"k8s.io/client-go/tools/ring"
)

// Settings say when and how fast the ranges of a ring are evened out. A ring that is even enough
// stays as it is.
type Settings struct {
	// Tolerance is how much more load than it should have an instance may have, as a part of what
	// one has on average. Of too little it may have twice that.
	Tolerance float64
	// Least is how much more it may have at least, in objects: a handover is worth half of that,
	// unless there is more that lies further away than Rate allows.
	Least int64
	// Seed is how many objects there are to be to an instance, on average. What is missing is taken
	// to lie evenly on the line of keys: the ranges of a ring without objects become equally wide.
	Seed int64
	// Rate is the part of all keys, from 0 to 1, that all instances together move in a minute.
	Rate float64
	// Back is for how long after a boundary has moved it moves back only for twice as much too much or
	// too little: where objects come and go, loads swing by some.
	Back time.Duration
	// Free is for how long after an instance has come or gone a plan is a free one, and Rate does not
	// count.
	Free time.Duration
	// Calm is how long the boundaries of an instance must have been as they are before it moves one.
	Calm time.Duration
	// Steady is how long the ring must have had about as many objects as now, give or take what is
	// tolerated. While many come or go, they do so earlier in one range than in another, and that
	// passes by itself. What swings for more than three minutes counts as steady.
	Steady time.Duration
	// AfterJoin and AfterLoss are how long ago the last instance must have come, and the last one
	// must have gone: others may be about to come, too, or again.
	AfterJoin, AfterLoss time.Duration
}

// Default keeps the largest load below six fifths of the mean one.
var Default = Settings{
	Tolerance: 0.1,              // By about as much loads swing where objects come and go.
	Least:     20,               // A handover holds some work up, and half of it is about worth that.
	Seed:      200,              // With as many, Tolerance is Least.
	Rate:      0.05,             // All keys take 20 minutes, so little is read anew at once.
	Back:      10 * time.Minute, // Most swings are over, and a boundary that still has to move may.
	Free:      2 * time.Minute,  // A join fills caches in less, and the ring is even again by then.
	Calm:      time.Second,      // By then most of the ring have seen the last move.
	Steady:    10 * time.Second, // What is made at once is soon spread over all ranges.
	AfterJoin: 3 * time.Second,  // Processes that start together join within as much.
	AfterLoss: 20 * time.Second, // A process that starts again has its range back by then.
}

// tolerated returns how much of a load too much is tolerated, beside Least.
func (s Settings) tolerated(load int64) int64 { return int64(s.Tolerance * float64(load)) }

// Plan says what would even out a ring.
type Plan struct {
	// Parts are those of all that own a range, in order of key.
	Parts []Part
	// Flows are those that bring the ring nearer to what each should have, at most one for each
	// boundary, in order of the boundaries' keys. There are none where it is near enough.
	Flows []Flow
}

// Donors returns those who may give something, in order of key.
func (p *Plan) Donors() []string {
	var donors []string
	for _, part := range p.Parts {
		if part.surplus > 0 || slices.ContainsFunc(p.Flows, func(f Flow) bool { return f.Donor == part.Name }) {
			donors = append(donors, part.Name)
		}
	}
	return donors
}

// part returns the part of the instance of that name, which owns a range.
func (p *Plan) part(name string) *Part {
	return &p.Parts[slices.IndexFunc(p.Parts, func(part Part) bool { return part.Name == name })]
}

// Flow is load that an instance is to give to one of its neighbours.
type Flow struct {
	// Boundary is the instance whose upper end moves. It is the donor where that end moves down, and
	// the receiver where it moves up.
	Boundary        string
	Donor, Receiver string
	// Load is how much is to change hands, in objects.
	Load int64
}

// NewPlan returns what would even out the ring, by what its instances have told of themselves. All
// that see the same records, and the same heaps, come to the same plan, so each donor can do its
// part alone. What has about what it should have stays as it is, so that what is told late or
// roughly moves nothing. No load passes boundaries that are pinned: what lies between two of them
// is evened out by itself.
//
// A free plan is one for the time after an instance has come or gone. What processes hold beside
// their rings is that of heaps in it, the view of before that, or nothing if it is nil: heaps swing
// while caches are filled. One that holds more now gets less: it may lead since, and would give it
// back. And an instance may give half of what it should have before it gets as much from its other
// neighbour. In others it passes no more than is tolerated on, as what it waits for may never come.
func NewPlan(view *ring.View, settings Settings, free bool, heaps *ring.View) *Plan {
	pass := 0.5
	if !free {
		heaps, pass = view, settings.Tolerance
	}
	p := &Plan{Parts: measure(view, settings, heaps)}
	flows := p.evenOut(settings, pass)
	p.makeRoom(flows)
	p.limit(flows, settings)
	return p
}

// evenOut sets what each part should have, and returns what is to flow over the upper end of each
// range: to its successor or, if it is negative, from it.
func (p *Plan) evenOut(settings Settings, pass float64) []int64 {
	n := len(p.Parts)
	flows := make([]int64, n)
	first := slices.IndexFunc(p.Parts, func(part Part) bool { return part.pinned }) + 1
	for begin := 0; begin < n; {
		end := begin + 1
		for end < n && !p.Parts[(first+end-1)%n].pinned {
			end++
		}
		l := line{round: first == 0}
		for i := begin; i < end; i++ {
			l.parts = append(l.parts, &p.Parts[(first+i)%n])
		}
		for i, flow := range l.evenOut(settings, pass) {
			flows[(first+begin+i)%n] = flow
		}
		begin = end
	}
	return flows
}

// across returns who gives and gets what flows over the upper end of a range, how much that is, and
// which end of the donor's range it is: 0 is the lower one, 1 the upper one.
func (p *Plan) across(flows []int64, i int) (donor, receiver *Part, flow int64, end int) {
	self, successor := &p.Parts[i], &p.Parts[(i+1)%len(p.Parts)]
	if flows[i] < 0 {
		return successor, self, -flows[i], 0
	}
	return self, successor, flows[i], 1
}

// makeRoom finds the heavy keys that are in the way of more load than they have. Such a key is
// given whole, unless the donor has little, and gets more before, or nothing else. The receiver is
// to pass as much on, and makes room for it.
func (p *Plan) makeRoom(flows []int64) {
	for i := range flows {
		donor, receiver, flow, end := p.across(flows, i)
		side := donor.sides()[end]
		lump := side + donor.heaviest
		if load := min(flow, donor.spare(side), receiver.room); side > load || lump <= load || lump > flow {
			continue
		}
		if donor.Load >= donor.least && lump < donor.Load {
			donor.lumps[end] = lump
		}
	}
	for i := range flows {
		if donor, receiver, _, end := p.across(flows, i); donor.lumps[end] > 0 {
			receiver.least = min(receiver.least, max(0, receiver.Wanted+receiver.tolerated/2-donor.lumps[end]))
		}
	}
}

// limit sets which part of the flows changes hands now. One that passes load on does so before it
// gets more: else it would have too much, and give it back.
func (p *Plan) limit(flows []int64, settings Settings) {
	n := len(flows)
	for i, flow := range flows {
		before := flows[(i+n-1)%n]
		p.Parts[i].passes = max(0, min(before, flow)) + min(0, max(before, flow))
		donor, receiver, flow, end := p.across(flows, i)
		load := min(flow, donor.spare(donor.sides()[end]), receiver.room)
		if lump := donor.lumps[end]; lump <= receiver.room {
			load = max(load, lump)
		}
		if load > 0 && 2*load >= settings.Least {
			p.Flows = append(p.Flows, Flow{Boundary: p.Parts[i].Name, Donor: donor.Name, Receiver: receiver.Name, Load: load})
		}
	}
}

// from returns what the instance may give, the best first: what the plan says, and then half of
// what it has more than another neighbour, if keys with many objects are in the way of the plan. A
// neighbour that has too much itself would give it back, or pass it on, unless it has far less.
func (p *Plan) from(name string) []Flow {
	n := len(p.Parts)
	i := slices.IndexFunc(p.Parts, func(part Part) bool { return part.Name == name })
	out := slices.DeleteFunc(slices.Clone(p.Flows), func(f Flow) bool { return f.Donor != name })
	slices.SortStableFunc(out, func(x, y Flow) int { return cmp.Compare(y.Load, x.Load) })
	self := &p.Parts[i]
	for _, step := range []int{-1, 1} {
		other := &p.Parts[(i+step+n)%n]
		boundary, side := self, self.after
		if step < 0 {
			boundary, side = other, self.before
		}
		more := self.Load + self.Beside - other.Load - other.Beside
		f := Flow{Boundary: boundary.Name, Donor: name, Receiver: other.Name, Load: min(self.surplus, self.spare(side), more/2)}
		if other.grown > 0 {
			f.Load = min(f.Load, other.room)
		}
		far := more > 4*self.tolerated
		if !boundary.pinned && f.Load > 0 && (other.surplus == 0 || far) && !slices.ContainsFunc(out, func(o Flow) bool { return o.Boundary == f.Boundary }) {
			out = append(out, f)
		}
	}
	return out
}

// most is how much may change hands where it cannot be exactly as much as it is to. A heavy key
// that is in the way may pass whole, unless the receiver comes to have too much, and more than the
// donor. One that has too much may give less than twice that, if the larger load of the two falls
// by half of what is too much. So it does not come back. One that holds more than before gets no
// more than it is to.
func (p *Plan) most(f Flow) int64 {
	donor, receiver := p.part(f.Donor), p.part(f.Receiver)
	if receiver.grown > 0 {
		return f.Load
	}
	end := 0
	if f.Boundary == f.Donor {
		end = 1
	}
	if lump := donor.lumps[end]; lump > 0 && receiver.Load+lump <= max(receiver.Wanted+receiver.tolerated, donor.Load+donor.Beside-receiver.Beside) {
		return max(f.Load, lump)
	}
	if donor.surplus == 0 {
		return f.Load
	}
	falls := donor.Load + donor.Beside - receiver.Load - receiver.Beside - (min(f.Load, donor.surplus)+1)/2
	return max(f.Load, min(2*f.Load-1, falls))
}

// spare is what an instance can give in one handover at the end of its range where side lies. It
// keeps the rest of what it should have: what it is to pass on is still on its way.
func (p *Part) spare(side int64) int64 {
	if p.fixed {
		return max(0, side)
	}
	return max(0, p.Load-max(p.least, p.heaviest))
}

// sides are how much of the load lies below the heaviest key and above it.
func (p *Part) sides() [2]int64 { return [2]int64{p.before, p.after} }

// line are parts next to each other in the ring, in order of key.
type line struct {
	parts []*Part
	// round says that the last one is next to the first, too.
	round bool
	// loads are what they have after what is to flow, and flows what is to pass the upper end of each
	// range, to its successor; negative: from its successor.
	loads, flows []int64
}

// evenOut sets what each part should have, and returns the flows that bring it near enough. One may
// give pass of what it should have, from 0 to 1, before it gets as much.
func (l *line) evenOut(settings Settings, pass float64) []int64 {
	var total int64
	for _, part := range l.parts {
		total += part.Load
		l.loads = append(l.loads, part.Load)
	}
	l.flows = make([]int64, len(l.parts))
	want(l.parts, total)
	tolerated := max(settings.Least, int64(settings.Tolerance*float64(total)/float64(len(l.parts))))
	above := func(i int, tolerated int64) int64 {
		return l.loads[i] - l.parts[i].Wanted - l.parts[i].grown - tolerated
	}
	below := func(i int, tolerated int64) int64 { return l.parts[i].Wanted - tolerated - l.loads[i] }
	room := func(i int) int64 {
		if l.parts[i].fixed {
			return 0
		}
		return max(0, below(i, -tolerated/2))
	}
	for i, part := range l.parts {
		part.tolerated = tolerated
		part.least = part.Wanted - max(tolerated, int64(pass*float64(part.Wanted)))
		part.room = room(i)
	}
	// Who has too much gives so much that a little more does not make it too much again.
	l.carry(+1, func(i int) int64 {
		if above(i, tolerated) <= 0 {
			return 0
		}
		l.parts[i].surplus = above(i, tolerated/2)
		return l.parts[i].surplus
	}, room)
	// Who has too little may have twice that too little.
	l.carry(-1, func(i int) int64 {
		if below(i, 2*tolerated) <= 0 {
			return 0
		}
		return below(i, tolerated)
	}, func(i int) int64 { return above(i, -tolerated/2) })
	// Less is not worth a handover.
	for i, flow := range l.flows {
		if max(flow, -flow) < tolerated/4 {
			l.flows[i] = 0
		}
	}
	return l.flows
}

// carry lets load flow between each part that has a need and the nearest ones that have room: to
// them if sign is 1, from them if it is -1.
func (l *line) carry(sign int64, need, room func(i int) int64) {
	n := len(l.parts)
	// open are how much may still pass the lower and the upper end of a range: a heavy key is in the
	// way of all that lies behind it, and of what comes from elsewhere.
	open := make([][2]int64, n)
	for i, part := range l.parts {
		open[i] = [2]int64{math.MaxInt64, math.MaxInt64}
		if part.fixed {
			open[i] = part.sides()
		}
	}
	needs, blocked := make([]int64, n), make([][2]bool, n)
	var order []int
	// left is how much can find a place at all.
	left := int64(0)
	for i := range l.parts {
		if needs[i] = need(i); needs[i] > 0 {
			order = append(order, i)
		}
		left += max(0, room(i))
	}
	for distance := 1; distance < n && len(order) > 0 && left > 0; distance++ {
		for _, i := range order {
			for _, step := range []int{1, -1} {
				j, way := i+step*distance, (1+step)/2
				if !l.round && (j < 0 || j >= n) || blocked[i][way] {
					continue
				}
				j = (j + n) % n
				blocked[i][way] = l.parts[j].fixed
				// What flows leaves its donor at the end that lies towards the receiver.
				side := &open[i][way]
				if sign < 0 {
					side = &open[j][1-way]
				}
				load := min(needs[i], room(j), *side)
				if load <= 0 {
					continue
				}
				needs[i] -= load
				left -= load
				*side -= load
				l.loads[i] -= sign * load
				l.loads[j] += sign * load
				for k := range distance {
					boundary := i + k
					if step < 0 {
						boundary = i - k - 1
					}
					l.flows[(boundary+n)%n] += sign * int64(step) * load
				}
			}
		}
		order = slices.DeleteFunc(order, func(i int) bool { return needs[i] == 0 })
	}
}

// want shares the load of the parts out, so that all come to the same with what their processes
// hold beside it. None comes below its heaviest key, which stays whole.
func want(parts []*Part, total int64) {
	sum := func(level int64) (sum int64) {
		for _, part := range parts {
			rest := max(level-part.Beside-part.grown, 0)
			part.Wanted, part.fixed = max(part.heaviest, rest), part.heaviest > rest
			sum += part.Wanted
		}
		return sum
	}
	// The lowest level at which all of the load has a place lies in (low, high].
	low, high := int64(-1), total
	for _, part := range parts {
		high = max(high, total+part.Beside+part.grown)
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
	for _, part := range parts {
		if surplus > 0 && part.Wanted > part.heaviest {
			part.Wanted--
			surplus--
		}
	}
}
