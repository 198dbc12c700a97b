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
	"slices"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/ring"
)

const (
	// oldNews is how long ago a boundary has moved if those about it have most likely told what they
	// have since: one that has as much as before tells nothing. It is one wait of a handover, as
	// whoever is slower than that gets nothing either way.
	oldNews = 30 * time.Second
	// longSwing is how long many objects come and go until that no longer keeps a ring from being
	// evened out: they may never cease to, and by then most of what comes at once has come.
	longSwing = 3 * time.Minute
	// lastLease is how long after an instance has its first range the record of one that crashed at
	// its place may be there: the rest of the default lease of 15 s has passed while the process
	// started and joined.
	lastLease = 8 * time.Second
	// tryAgain is how long an instance that had nothing fit to give, or wants a shift, keeps to that
	// while the boundaries about it stay: to look for a key it reads all of its own.
	tryAgain = 5 * time.Second
	// spread is by how much later than the one before it in the ring an instance begins to move
	// boundaries after an instance has come or gone: it sees what others have begun, and the last of
	// a thousand begins after ten seconds.
	spread = 10 * time.Millisecond
)

// Config says how an instance evens its ring out.
type Config struct {
	Settings
	// DryRun has it only propose its shifts.
	DryRun bool
}

// Policy is the policy that evens a ring out by the load that its instances tell of. A copy of one
// is another: what it remembers is never changed in place.
type Policy struct {
	name   string
	config func() *Config
	// Log is what it has seen of the log. Those of all instances that have read as far may share it.
	Log
	// began is when it was first asked.
	began time.Duration
	// heaps is the last view in which it was long ago that an instance came or went, or in which heaps
	// could not be compared, as one that comes then knows of no earlier one; the first view until
	// then: what the others count since this instance came is about the same.
	heaps *ring.View
	// about are the keys of the predecessor's predecessor, the predecessor, the instance and the
	// successor: the bounds of three ranges. calmSince is when they were last others, or a handover
	// among them was open, calmAt the revisions at which each range was seen to be another.
	about     [4]int64
	calmSince time.Duration
	calmAt    [3]int64
	// objects is how many the ring had when these had last become more or fewer by the tolerance, of
	// that or of what it is taken to have at least; steadySince is when that was, swingsSince when it
	// first was so after it had been steady.
	objects                  int64
	steadySince, swingsSince time.Duration
	// tried is what the instance last found to give. It is never changed in place.
	tried *tried
}

// New returns the policy of the instance of that name. config is called with each decision; nil:
// the instance moves nothing.
func New(instance string, config func() *Config) *Policy {
	return &Policy{name: instance, config: config}
}

// Log is what can be seen of who has come and gone, and what has moved.
type Log struct {
	// view is the ring as it was observed last.
	view *ring.View
	// came and went are when an instance last got its first range, or had one no longer.
	came, went time.Duration
	// moves are those of boundaries, the latest first: all of the last minute, before that the last
	// one of each that is still there. It is never changed in place.
	moves []moved
	// planned is the plan that was last made for the view.
	planned *planned
}

// planned is a plan, and what it was made of; nil: there is none.
type planned struct {
	settings Settings
	free     bool
	heaps    *ring.View
	plan     *Plan
}

// moved is a boundary that has moved.
type moved struct {
	at       time.Duration
	boundary string
	// up says that it has moved up, into the range of its successor.
	up    bool
	width uint64
}

// tried is a look for a key to give: when it was, and what came of it, if anything. The first of
// the shifts is decided on that generation of the record.
type tried struct {
	at         time.Duration
	shifts     []ring.Shift
	uid        types.UID
	generation int64
}

// Observe takes the log's next view: if heaps cannot be compared there, all forget what they knew.
func (p *Policy) Observe(view *ring.View) {
	if p.heaps != nil && !comparesHeaps(view) {
		p.heaps = view
	}
}

// Shifts returns what the instance is to give now.
func (p *Policy) Shifts(view *ring.View, now time.Duration, turn *ring.Turn) ring.Advice {
	config := p.config()
	p.note(view, config, now)
	if config == nil || turn == nil {
		return ring.Advice{}
	}
	settings := config.Settings
	p.count(settings, now)
	if due := p.due(settings, turn); due > now {
		return ring.Advice{Wake: due}
	}
	self, _ := view.Get(p.name)
	if !p.isFresh(self, 1, now) {
		return ring.Advice{}
	}
	free := p.free(settings, now)
	plan := p.plan(settings, free)
	flows := slices.DeleteFunc(plan.from(p.name), func(f Flow) bool {
		return !p.takes(f, turn, now) || p.turnsBack(f, plan, settings, free, now)
	})
	if len(flows) == 0 {
		return ring.Advice{}
	}
	if !p.stands(flows, now) {
		limit, least := p.allowance(settings, uint64(max(1, len(plan.Donors()))), free, now)
		t := &tried{at: now}
		switch {
		case limit == 0:
		case turn.Keys == nil:
			return ring.Advice{NeedsKeys: true}
		default:
			keys := load(view, self, settings, turn.Keys, turn.Work)
			for _, f := range flows {
				if s, ok := plan.shift(f, &keys, settings, limit, least); ok {
					t.shifts = append(t.shifts, s)
				}
			}
		}
		if len(t.shifts) > 0 {
			r, _ := view.Get(t.shifts[0].Boundary)
			t.uid, t.generation = r.UID, r.Generation
		}
		p.tried = t
	}
	return ring.Advice{Shifts: p.tried.shifts, Wake: p.tried.at + tryAgain}
}

// note takes note of what has changed hands.
func (p *Policy) note(view *ring.View, config *Config, now time.Duration) {
	if p.heaps == nil {
		p.heaps, p.began = view, now
	}
	p.see(view, now)
	if config != nil && !p.free(config.Settings, now) {
		p.heaps = view
	}
	owners := view.Ring()
	i, n := view.Index(p.name), len(owners)
	if i < 0 {
		p.calmSince = now
		return
	}
	before := p.about
	for j := range p.about {
		r := owners[(i+j-2+2*n)%n]
		p.about[j] = *r.Key
		if stirred(r) {
			p.calmSince = now
		}
	}
	for j := range p.about {
		if p.about[j] == before[j] {
			continue
		}
		p.calmSince = now
		for _, bounded := range []int{j - 1, j} {
			if bounded >= 0 && bounded < len(p.calmAt) {
				p.calmAt[bounded] = view.Revision
			}
		}
	}
}

// stirred says that the instance hands something over, or is about to go.
func stirred(r *ring.Record) bool {
	return r.Next != nil || r.Gives != nil || !r.Stays()
}

// see notes what has changed hands in the view.
func (l *Log) see(view *ring.View, now time.Duration) {
	before := l.view
	if before == view {
		return
	}
	l.view, l.planned = view, &planned{}
	same := func(x, y *ring.Record) bool { return x.Name == y.Name && x.UID == y.UID && *x.Key == *y.Key }
	if before == nil || slices.EqualFunc(before.Ring(), view.Ring(), same) {
		return
	}
	for _, r := range before.Ring() {
		if later, ok := view.Get(r.Name); !ok || later.UID != r.UID || later.Key == nil {
			l.went = now
		}
	}
	var moves []moved
	for _, r := range view.Ring() {
		former, ok := before.Get(r.Name)
		switch {
		case !ok || former.UID != r.UID || former.Key == nil:
			l.came = now
		case *former.Key != *r.Key:
			up := uint64(*r.Key-*former.Key)&(hashkey.Limit-1) < hashkey.Limit/2
			moves = append(moves, moved{now, r.Name, up, distance(*former.Key, *r.Key)})
		}
	}
	newer := map[string]bool{}
	for _, move := range moves {
		newer[move.boundary] = true
	}
	for _, move := range l.moves {
		if now-move.at < time.Minute || !newer[move.boundary] && view.Index(move.boundary) >= 0 {
			moves = append(moves, move)
		}
		newer[move.boundary] = true
	}
	l.moves = moves
}

// Changed returns when an instance last came or went; zero: none has since the log was first seen.
func (l *Log) Changed() time.Duration { return max(l.came, l.went) }

// changed is when an instance last came or went, this one at the latest.
func (p *Policy) changed() time.Duration { return max(p.began, p.Changed()) }

// free says whether an instance has come or gone lately.
func (p *Policy) free(settings Settings, now time.Duration) bool {
	return now < p.changed()+settings.Free
}

// count notes since when the ring has had about as many objects as now.
func (p *Policy) count(settings Settings, now time.Duration) {
	objects := total(p.view)
	if change := max(objects-p.objects, p.objects-objects); change > settings.tolerated(max(p.objects, settings.Seed*int64(len(p.view.Ring())))) {
		if now >= p.steadySince+settings.Steady {
			p.swingsSince = now
		}
		p.objects, p.steadySince = objects, now
	}
}

// due is when the instance may next move a boundary.
func (p *Policy) due(settings Settings, turn *ring.Turn) time.Duration {
	calm := p.calmSince + settings.Calm
	steady := min(p.steadySince+settings.Steady, p.swingsSince+longSwing)
	due := max(calm, steady, max(p.began, p.came)+settings.AfterJoin, turn.Rests)
	if p.went > 0 {
		due = max(due, p.went+settings.AfterLoss)
	}
	if due != calm {
		// Else all of a large ring begin at the same moment.
		due += time.Duration(p.view.Index(p.name)) * spread
	}
	return due
}

// plan returns the plan for the view that was observed last. It must not be changed.
func (p *Policy) plan(settings Settings, free bool) *Plan {
	heaps := p.heaps
	if !free || !comparesHeaps(heaps) {
		heaps = nil
	}
	if last := p.planned; last.plan == nil || last.settings != settings || last.free != free || last.heaps != heaps {
		*last = planned{settings, free, heaps, NewPlan(p.view, settings, free, heaps)}
	}
	return p.planned.plan
}

// distance returns how many keys a boundary passes that moves from one key to the other, the
// shorter way round.
func distance(from, to int64) uint64 {
	return min(uint64(to-from)&(hashkey.Limit-1), uint64(from-to)&(hashkey.Limit-1))
}

// inMotion returns how many keys have moved in the last minute, or are about to.
func (l *Log) inMotion(now time.Duration) (keys uint64) {
	for _, move := range l.moves {
		if now-move.at < time.Minute {
			keys += move.width
		}
	}
	for _, h := range l.view.Handovers() {
		if h.Kind == ring.KindMove {
			keys += distance(*h.Record.Key, *h.Record.Next)
		}
	}
	return keys
}

// turnsBack says whether a boundary would go back after its last move, which was not long ago,
// though no more is too much, what the donor is to pass on with it, or too little than what comes
// and goes by itself. In a free plan it may undo what was before an instance came or went.
func (p *Policy) turnsBack(f Flow, plan *Plan, settings Settings, free bool, now time.Duration) bool {
	// In a ring of two, what goes over one boundary comes back over the other, too.
	i := slices.IndexFunc(p.moves, func(m moved) bool { return m.boundary == f.Boundary || len(p.view.Ring()) == 2 })
	if i < 0 {
		return false
	}
	last := p.moves[i]
	if same := last.up == (f.Donor != last.boundary); same || now-last.at >= settings.Back || free && last.at <= p.changed() {
		return false
	}
	donor, receiver := plan.part(f.Donor), plan.part(f.Receiver)
	passes := donor.passes
	if f.Donor != f.Boundary {
		passes = -passes
	}
	return donor.Load+max(0, passes)-donor.Wanted-donor.grown <= 2*donor.tolerated && receiver.Wanted-receiver.Load <= 4*receiver.tolerated
}

// stands says whether the last look for a key still counts, if these flows are wanted.
func (p *Policy) stands(flows []Flow, now time.Duration) bool {
	t := p.tried
	if t == nil || t.at <= p.calmSince || now >= t.at+tryAgain {
		return false
	}
	if len(t.shifts) == 0 {
		return true
	}
	first := t.shifts[0]
	same := func(f Flow) bool { return f.Boundary == first.Boundary && f.Receiver == first.Receiver }
	r, ok := p.view.Get(first.Boundary)
	return ok && slices.ContainsFunc(flows, same) && r.UID == t.uid && r.Generation == t.generation
}

// isFresh says whether the predecessor, the instance itself or the successor, by place 0 to 2, has
// told what it has since its range was another. One that has as much as before tells nothing: then
// that has to be long ago.
func (p *Policy) isFresh(r ring.Record, place int, now time.Duration) bool {
	return r.Revision > p.calmAt[place] || p.calmSince+oldNews <= now
}

// takes says whether the receiver can be given something now: it works, what it has told is not
// old, it does not rest, and none has come in its place.
func (p *Policy) takes(f Flow, turn *ring.Turn, now time.Duration) bool {
	place := 0
	if f.Boundary == p.name {
		place = 2
	}
	r, _ := p.view.Get(f.Receiver)
	return p.isFresh(r, place, now) && r.Phase == shardingv1alpha1.InstanceActive && !slices.Contains(turn.Resting, r.Name) && !p.replaced(r, now)
}

// replaced says whether another process has come to the instance's place, or is about to: it has
// most likely crashed, and its record is not gone yet.
func (p *Policy) replaced(r ring.Record, now time.Duration) bool {
	place, soon := ring.Place(r.Holder), now < max(p.began, p.came)+lastLease
	return place != "" && slices.ContainsFunc(p.view.Records(), func(other *ring.Record) bool {
		return (soon || other.Key == nil && !other.Drained) && other.Name != r.Name && ring.Place(other.Holder) == place
	})
}

// allowance returns how many keys this instance may move now, one of so many donors, and how many
// are worth a handover if that does not bring half of what is wanted.
func (p *Policy) allowance(settings Settings, donors uint64, free bool, now time.Duration) (limit, least uint64) {
	if free {
		return hashkey.Limit, 0
	}
	most := uint64(settings.Rate * float64(hashkey.Limit))
	return (most - min(most, p.inMotion(now))) / donors, most / donors / 2
}

// shift returns the shift that does the flow, by the keys of the donor's load, and whether there is
// one.
func (p *Plan) shift(f Flow, keys *loaded, settings Settings, limit, least uint64) (ring.Shift, bool) {
	upper, load, most := f.Boundary == f.Donor, max(f.Load, (settings.Least+1)/2), p.most(f)
	key, width, given := keys.cut(upper, load, most, limit)
	fits := given > 0 && 2*given >= settings.Least && (width >= least || 2*given >= f.Load)
	if !fits && limit >= least {
		if _, _, beyond := keys.cut(upper, load, most, hashkey.Limit); beyond > given && 2*beyond >= settings.Least {
			// The keys that may move now bring the boundary nearer to it.
			key, given = keys.reach(upper, limit)
			fits = true
		}
	}
	donor, receiver := p.part(f.Donor), p.part(f.Receiver)
	return ring.Shift{
		Boundary: f.Boundary, Donor: f.Donor, Receiver: f.Receiver, Key: key, Load: given,
		Has: donor.Load, Wanted: donor.Wanted, Takes: receiver.Load, Needs: receiver.Wanted,
	}, fits
}
