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
	"math/rand"
	"slices"
	"sort"
	"strings"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
)

// day is a simulated day of a ring. Nothing in it is concurrent: a seed gives one day.
type day struct {
	*timetable
	size
	objects  *objects
	registry *simulatedRegistry
	coverage *coverage
	network  network
	// chance is what the scenes draw from, so that they are the same with and without balance.
	chance *rand.Rand
	// policy returns that of an instance; nil: they do not even out the ring.
	policy func(instance string) Policy
	// grantEarly breaks a rule: a donor grants without having drained. Then owners are not checked.
	grantEarly bool

	processes map[string]*simulatedProcess // by the name of its record
	alive     []*simulatedProcess
	uids      int
	hosts     int
	// order is that in which keys come to have objects: those at the first on places have some.
	order []int
	on    int
	hot   map[int]int64
	// intensity is the work that the mean load makes, in thousandths, if all instances are there.
	intensity float64
	weighed   float64

	// wrong is what must never be, restless what is wrong with the ring at the end of quiet phases.
	wrong    error
	restless []error
	began    bool
	history  []noted
	noted    int
	phase    *phase
	phases   []*phase
	// donors are those that may have something to give in the view of revision planned.
	donors    []string
	planned   int64
	plannedAt time.Duration
	progress  func(string)

	decisions int
}

// size is how large a day is.
type size struct {
	instances, keys int
	long            bool
}

type noted struct {
	at     time.Duration
	format string
	args   []any
}

// phase is a part of the day, with what was measured in it.
type phase struct {
	name          string
	begin, length time.Duration
	// quiet says that nothing goes wrong in it: at its end the ring must be at rest, and even.
	quiet bool

	joins, deaths, leaves int
	instances             int
	unworked, longest     float64
	byOthers, byBalance   float64 // of all keys, in percent
	moves                 int
	perMinute             float64
	most, mean, heaviest  float64
	evenAt                time.Duration // 0: not yet
	writes, news, peak    int
	seconds               float64
	recent                []movedKeys
	decisions             int
}

// movedKeys are so many that have changed hands.
type movedKeys struct {
	at    time.Duration
	width uint64
}

const historyLength = 4000

func newDay(seed int64, s size, policy func(instance string) Policy) *day {
	t := &timetable{}
	chance := rand.New(rand.NewSource(seed))
	d := &day{
		timetable: t,
		size:      s,
		objects:   newObjects(chance, s.keys),
		registry:  newSimulatedRegistry(t),
		coverage:  newCoverage(),
		network:   network{rand.New(rand.NewSource(seed + 1<<32))},
		chance:    chance,
		policy:    policy,
		processes: map[string]*simulatedProcess{},
		hot:       map[int]int64{},
		order:     chance.Perm(s.keys),
		history:   make([]noted, historyLength),
	}
	d.registry.changed, d.registry.published = d.changed, d.published
	return d
}

func (d *day) note(format string, args ...any) {
	d.history[d.noted%historyLength] = noted{d.now, format, args}
	d.noted++
}

// story is what has happened last.
func (d *day) story(n int) string {
	var out strings.Builder
	for i := max(0, d.noted-min(n, historyLength)); i < d.noted; i++ {
		e := &d.history[i%historyLength]
		fmt.Fprintf(&out, "%12.3f  %s\n", e.at.Seconds(), fmt.Sprintf(e.format, e.args...))
	}
	return out.String()
}

func (d *day) fail(err error) {
	if err != nil && d.wrong == nil {
		d.wrong = fmt.Errorf("at %v, in %q: %w", d.now, d.phase.name, err)
		d.note("WRONG: %v", err)
	}
}

// start lets a process begin at a place, a free one if that is empty.
func (d *day) start(host string) *simulatedProcess {
	if host == "" {
		d.hosts++
		host = fmt.Sprintf("host-%d", d.hosts)
	}
	p := &simulatedProcess{day: d, holder: fmt.Sprintf("%s_%d", host, d.uids)}
	if d.now < d.registry.stalled {
		p.blocked++
		d.at(d.registry.stalled, p.release)
	}
	d.alive = append(d.alive, p)
	d.phase.joins++
	p.register()
	return p
}

func (d *day) gone(p *simulatedProcess) {
	d.alive = slices.DeleteFunc(d.alive, func(o *simulatedProcess) bool { return o == p })
}

// checkOwner fails if the process works on keys that its record does not own.
func (d *day) checkOwner(p *simulatedProcess) {
	if p.covered.Empty() || d.grantEarly {
		return
	}
	r, ok := d.registry.get(p.name)
	if !ok || r.UID != p.uid {
		d.fail(fmt.Errorf("%s works on %v, but has no record", p.name, p.covered))
	} else if foreign := p.covered.Minus(d.registry.owned(r)); !foreign.Empty() {
		d.fail(fmt.Errorf("%s works on %v, which it does not own", p.name, foreign))
	}
}

// changed takes note of keys that have changed hands.
func (d *day) changed(c change) {
	if p := d.processes[c.loser]; p != nil {
		d.checkOwner(p)
	}
	if p := d.processes[c.gainer]; p != nil {
		p.grew = append(p.grew, c.revision)
	}
	f := d.phase
	part := float64(c.keys.Width()) / float64(hashkey.Limit)
	f.moves++
	if c.reason != ReasonMove || d.registry.named[c.boundary].reason != ReasonBalance {
		f.byOthers += part
		return
	}
	f.byBalance += part
	if d.registry.named[c.boundary].free {
		return
	}
	f.recent = append(f.recent, movedKeys{d.now, c.keys.Width()})
	sum := 0.0
	for i := len(f.recent) - 1; i >= 0; i-- {
		if f.recent[i].at <= d.now-time.Minute {
			f.recent = f.recent[i+1:]
			break
		}
		sum += float64(f.recent[i].width) / float64(hashkey.Limit)
	}
	f.perMinute = max(f.perMinute, sum)
}

// published has the instances see a new view that it concerns.
func (d *day) published(stirred map[string]bool) {
	names := make([]string, 0, len(stirred))
	for name := range stirred {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if p := d.processes[name]; p != nil {
			p.deliver()
		}
	}
	if len(names) > 0 {
		for _, r := range d.registry.records {
			if r.Key != nil || r.Next != nil && len(d.registry.ring) > 0 || stirred[r.Name] {
				continue
			}
			if p := d.processes[r.Name]; p != nil && d.now >= p.decided+time.Second {
				p.deliver()
			} else if p != nil {
				p.kickAt(p.decided + time.Second)
			}
		}
		d.measureEvenness()
	}
	d.refresh()
}

// refresh has those that would keep very old views alive see a newer one.
func (d *day) refresh() {
	g := d.registry
	if newest := g.skipped + len(g.views) - 1; newest%200 == 0 {
		next, seen := g.seen(d.now - usualLag)
		for _, p := range d.alive {
			if next != nil && p.machine != nil && d.now >= p.slow && d.now >= p.deaf && p.pausedUntil <= d.now && p.seen < newest-300 && next.Revision > p.machine.View().Revision {
				p.advance(next, seen, false)
				p.remember()
			}
		}
	}
}

// everySecond has those decide that have something to give, which each process works out for
// itself.
func (d *day) everySecond() {
	d.after(time.Second, d.everySecond)
	view := d.registry.views[len(d.registry.views)-1].View
	changed := d.planned != view.Revision
	if changed {
		d.planned, d.plannedAt = view.Revision, d.now
	}
	if d.policy == nil || len(view.ring) < 2 || !changed && len(d.donors) == 0 {
		return
	}
	if d.now > d.plannedAt+time.Minute && int64(d.now/time.Second)%30 != 0 {
		return
	}
	if changed {
		d.donors = d.donors[:0]
		if _, off := view.BalanceOff(); !off {
			d.donors = d.mayGive(view)
		}
	}
	for _, name := range d.donors {
		if p := d.processes[name]; p != nil && d.now >= p.decided+d.patience()-100*time.Millisecond {
			p.deliver()
		}
	}
}

// mayGive returns those that may have something to give: by a policy that cannot tell, all.
func (d *day) mayGive(view *View) []string {
	if b, ok := d.policy("").(Balancer); ok {
		return b.Donors(view)
	}
	var all []string
	for _, r := range view.ring {
		all = append(all, r.Name)
	}
	return all
}

// patience is how often an instance looks whether it may give something: each second, as package
// member has it, in a small ring. A large one would take hours to simulate.
func (d *day) patience() time.Duration {
	return max(time.Second, time.Duration(d.instances)*10*time.Millisecond)
}

// everyFive has those tell their load for which it has changed.
func (d *day) everyFive() {
	d.after(5*time.Second, d.everyFive)
	state := float64(d.objects.total)*1000 + d.intensity + float64(len(d.hot))/1000
	if state == d.weighed {
		return
	}
	d.weighed = state
	for _, p := range d.alive {
		if p.machine == nil || p.self.Key == nil {
			continue
		}
		owned := p.machine.View().Owned(p.name)
		weight := d.objects.weight(owned)
		work := d.workOf(weight)
		heaviest, _ := d.objects.heaviest(owned)
		if max(weight-p.self.Weight, p.self.Weight-weight)*20 >= p.self.Weight || max(work-p.self.Work, p.self.Work-work) >= 100 ||
			heaviest != p.self.Heaviest {
			p.kick(d.network.between(0, time.Second))
		}
	}
	d.measureEvenness()
}

// workOf returns what an instance with so many objects has to do, in thousandths.
func (d *day) workOf(weight int64) int32 {
	mean := float64(d.keys) / float64(d.instances)
	return int32(min(1000, d.intensity*float64(weight)/mean))
}

// evenness returns the largest load of an instance, the mean one, and that of the heaviest key.
func (d *day) evenness() (most, mean, heaviest float64) {
	for i := range d.registry.ring {
		w := d.objects.weight(hashkey.Between(*d.registry.owner(i - 1).Key, *d.registry.ring[i].Key))
		most = max(most, float64(w))
		mean += float64(w)
	}
	for _, place := range d.objects.heavy {
		heaviest = max(heaviest, float64(d.objects.count[place]))
	}
	return most, mean / float64(max(1, len(d.registry.ring))), heaviest
}

// even says whether no instance has more than six fifths of the mean load, or than the heaviest key
// and what is tolerated.
func (d *day) even() bool {
	most, mean, heaviest := d.evenness()
	return most <= max(1.2*mean, heaviest+0.1*mean, mean+float64(ByDefault.Least))
}

// checkEven says which instance has far too much: twice the mean beside the heaviest key of its
// own. That may keep it from giving anything beyond, and so may those of its neighbours. The table
// says the rest.
func (d *day) checkEven() error {
	_, mean, _ := d.evenness()
	for i := range d.registry.ring {
		owned := d.registry.owned(*d.registry.ring[i])
		most, _ := d.objects.heaviest(owned)
		weight, heaviest := float64(d.objects.weight(owned)), float64(most)
		if weight > heaviest+2*mean+float64(ByDefault.Least) {
			return fmt.Errorf("%s has %.0f objects, %.0f of them of one key, where the mean is %.0f", d.registry.ring[i].Name, weight, heaviest, mean)
		}
	}
	return nil
}

func (d *day) measureEvenness() {
	f := d.phase
	if !f.quiet {
		return
	}
	switch even := d.even(); {
	case !even:
		f.evenAt = 0
	case f.evenAt == 0:
		f.evenAt = d.now
	}
}

// load sets how many objects there are beside those of hot keys, as a part of the keys.
func (d *day) load(part float64) {
	for target := int(part * float64(d.keys)); d.on != target; {
		if d.on < target {
			d.add(d.order[d.on], 1)
			d.on++
		} else {
			d.on--
			d.add(d.order[d.on], -1)
		}
	}
}

func (d *day) add(place int, n int64) { d.objects.set(place, d.objects.count[place]+n) }

// heat gives a random key so many objects more.
func (d *day) heat(n int64) {
	place := d.chance.Intn(d.keys)
	d.add(place, n)
	d.hot[place] += n
}

// cool takes the objects of some of the hot keys away.
func (d *day) cool(part float64) {
	places := make([]int, 0, len(d.hot))
	for place := range d.hot {
		places = append(places, place)
	}
	sort.Ints(places)
	for _, place := range places {
		if d.chance.Float64() < part {
			d.add(place, -d.hot[place])
			delete(d.hot, place)
		}
	}
}

// random returns a process that is alive and registered; nil: there is none.
func (d *day) random() *simulatedProcess {
	for range 20 {
		if len(d.alive) == 0 {
			return nil
		}
		if p := d.alive[d.chance.Intn(len(d.alive))]; p.machine != nil && !p.leaving {
			return p
		}
	}
	return nil
}

// stall keeps the registry from storing anything for a while.
func (d *day) stall(length time.Duration) {
	if d.now < d.registry.stalled {
		return
	}
	d.note("the registry stalls for %v", length)
	d.registry.stalled = d.now + length
	for _, p := range d.alive {
		p.hold()
		d.at(d.registry.stalled, func() {
			if !p.ended {
				p.release()
			}
		})
	}
}

// run lets the phases of the day pass. It stops at once if two work on one key.
func (d *day) run(scenes []dayScene) error {
	d.phase = &phase{name: "before"}
	d.everySecond()
	d.everyFive()
	for _, s := range scenes {
		f := &phase{name: s.name, begin: d.now, length: s.length, quiet: s.quiet}
		d.phases = append(d.phases, f)
		d.phase = f
		unworked, decisions := d.coverage.seconds, d.decisions
		writes, news := d.registry.writes, d.registry.news
		d.coverage.longest = 0
		clear(d.registry.perSecond)
		if s.begin != nil {
			s.begin(d)
		}
		if f.quiet && d.even() {
			f.evenAt = d.now
		}
		end := d.now + s.length
		moves := 0
		reported := time.Now()
		for d.next(end) && d.wrong == nil {
			if f.quiet && d.now < end-s.length/3 {
				moves = f.moves
			}
			if time.Since(reported) > 5*time.Second && d.progress != nil {
				reported = time.Now()
				d.progress(fmt.Sprintf("%s: %v of the day, %d instances, %d decisions, revision %d", f.name, d.now.Round(time.Second), len(d.alive), d.decisions, d.registry.revision))
			}
		}
		d.coverage.count(d.now)
		_, longest := d.coverage.open(d.now)
		f.longest = max(d.coverage.longest, min(longest, s.length)).Seconds()
		f.unworked, f.seconds = d.coverage.seconds-unworked, s.length.Seconds()
		f.instances = len(d.registry.ring)
		f.most, f.mean, f.heaviest = d.evenness()
		f.writes, f.news, f.decisions = d.registry.writes-writes, d.registry.news-news, d.decisions-decisions
		for _, n := range d.registry.perSecond {
			f.peak = max(f.peak, n)
		}
		if d.wrong != nil {
			return d.wrong
		}
		if f.quiet {
			if err := d.checkRest(f.moves - moves); err != nil {
				d.restless = append(d.restless, fmt.Errorf("at %v, at the end of %q: %w", d.now, f.name, err))
			}
		}
	}
	return errors.Join(d.restless...)
}

// checkRest says what is wrong with a ring that should be at rest, and in which so many ranges have
// changed hands lately.
func (d *day) checkRest(moves int) error {
	var errs []error
	if gaps, _ := d.coverage.open(d.now); !gaps.Empty() {
		errs = append(errs, fmt.Errorf("nobody works on %v", gaps))
	}
	for _, r := range d.registry.records {
		drained := r.Drained && r.Key == nil
		// A boundary may be on the move still.
		if moves == 0 && (r.Next != nil || r.Gives != nil) || r.Phase != shardingv1alpha1.InstanceActive && !drained && (moves == 0 || r.Phase != shardingv1alpha1.InstanceWait) {
			errs = append(errs, fmt.Errorf("%s is %s, next key %s, gives %v", r.Name, r.Phase, hashkey.FormatOptional(r.Next), r.Gives))
		}
		if d.processes[r.Name] == nil {
			errs = append(errs, fmt.Errorf("the record %s is nobody's", r.Name))
		}
	}
	if len(d.registry.records) != len(d.alive) {
		errs = append(errs, fmt.Errorf("%d processes have %d records", len(d.alive), len(d.registry.records)))
	}
	// Little is passed on for long, from one instance to the next. What goes to and fro moves more
	// often.
	if moves > 3*len(d.alive) {
		errs = append(errs, fmt.Errorf("%d ranges changed hands in the last third of the phase", moves))
	}
	pinned := slices.ContainsFunc(d.registry.records, (*Record).Pinned)
	if d.policy != nil && !pinned {
		errs = append(errs, d.checkEven())
	}
	if len(errs) > 10 {
		errs = append(errs[:10], fmt.Errorf("and %d more", len(errs)-10))
	}
	return errors.Join(errs...)
}
