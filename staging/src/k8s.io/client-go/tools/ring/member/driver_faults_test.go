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

package member

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/client-go/tools/ring"
)

// maxLiving is how many processes live at once at most.
const maxLiving = 6

// faults says which classes of faults a history has. The zero value has none.
type faults struct {
	// At random, all the time.
	requests bool // some are late, lost, or have no answer
	watches  bool // some events are late, watches end or are too old
	fills    bool // some take up to a minute, and some caches catch up late
	leaders  bool // they sign changing sets of controllers
	leases   bool // processes hear late of leaders, or cannot read who leads

	// Now and then.
	brownouts   bool // each request takes seconds for a while
	outages     bool // the API servers are away for a while
	connections bool // all connections of a process are dead
	silences    bool // the present watch of a process gets nothing any more
	joins       bool // another process starts
	kills       bool // a process dies, and may be started again
	stops       bool // a process stops, and may be started again
	pauses      bool // a process does nothing for a while
	hangs       bool // a callback hangs for a while
	barren      bool // one source never fills one range
	stuck       bool // work on one key never ends
	moves       bool // a person moves a boundary, pins it, or calls a move off
	drains      bool // a person drains an instance, or ends that
	deletes     bool // a person deletes a record
	removals    bool // a person deletes a record by force
}

// faultClass is a field of faults.
type faultClass struct {
	name string
	on   func(*faults) *bool
	// weight is how often it happens beside others, and happen what; nil: it happens all the time.
	weight int
	happen func(*world, *dice)
}

var faultClasses = []faultClass{
	{"requests", func(f *faults) *bool { return &f.requests }, 0, nil},
	{"watches", func(f *faults) *bool { return &f.watches }, 0, nil},
	{"fills", func(f *faults) *bool { return &f.fills }, 0, nil},
	{"leaders", func(f *faults) *bool { return &f.leaders }, 0, nil},
	{"leases", func(f *faults) *bool { return &f.leases }, 0, nil},
	{"brownouts", func(f *faults) *bool { return &f.brownouts }, 2, brownOut},
	{"outages", func(f *faults) *bool { return &f.outages }, 2, goAway},
	{"connections", func(f *faults) *bool { return &f.connections }, 2, killConnections},
	{"silences", func(f *faults) *bool { return &f.silences }, 2, silence},
	{"joins", func(f *faults) *bool { return &f.joins }, 3, join},
	{"kills", func(f *faults) *bool { return &f.kills }, 3, killSomeone},
	{"stops", func(f *faults) *bool { return &f.stops }, 2, stopSomeone},
	{"pauses", func(f *faults) *bool { return &f.pauses }, 2, pauseSomeone},
	{"hangs", func(f *faults) *bool { return &f.hangs }, 2, hangSomeone},
	{"barren", func(f *faults) *bool { return &f.barren }, 1, makeBarren},
	{"stuck", func(f *faults) *bool { return &f.stuck }, 1, getStuck},
	{"moves", func(f *faults) *bool { return &f.moves }, 4, move},
	{"drains", func(f *faults) *bool { return &f.drains }, 2, drain},
	{"deletes", func(f *faults) *bool { return &f.deletes }, 1, deleteRecord},
	{"removals", func(f *faults) *bool { return &f.removals }, 1, removeRecord},
}

// faultsOf returns the faults of these names.
func faultsOf(names string) (faults, error) {
	var out faults
	for name := range strings.SplitSeq(names, ",") {
		found := false
		for _, c := range faultClasses {
			if c.name == name {
				*c.on(&out), found = true, true
			}
		}
		if !found {
			return faults{}, fmt.Errorf("there is no class of faults %q", name)
		}
	}
	return out, nil
}

// drawFaults draws some classes.
func drawFaults(d *dice) faults {
	var out faults
	for _, c := range faultClasses {
		*c.on(&out) = d.chance(0.3)
	}
	return out
}

// String lists the names of the classes.
func (f faults) String() string {
	var names []string
	for _, c := range faultClasses {
		if *c.on(&f) {
			names = append(names, c.name)
		}
	}
	return strings.Join(names, ",")
}

// happen has one fault happen.
func (f faults) happen(w *world, d *dice) {
	var all []faultClass
	for _, c := range faultClasses {
		for range c.weight {
			if *c.on(&f) {
				all = append(all, c)
			}
		}
	}
	if len(all) > 0 {
		pick(d, all).happen(w, d)
	}
}

// someone draws a process that lives; nil: there are less than so many.
func (w *world) someone(d *dice, least int) *process {
	living := w.living()
	if len(living) < least {
		return nil
	}
	return pick(d, living)
}

// someoneOrAll draws a process, or nil for all.
func (w *world) someoneOrAll(d *dice) *process {
	if d.chance(0.5) {
		return nil
	}
	return w.someone(d, 1)
}

// someRecord draws one of the ring; false: there is none.
func (w *world) someRecord(d *dice) (ring.Record, bool) {
	records := w.view().Records()
	if len(records) == 0 {
		return ring.Record{}, false
	}
	return *pick(d, records), true
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func brownOut(w *world, d *dice) {
	latency := seconds(pick(d, []float64{1, 2.1, 3, 4.5, 5.5, 8, 9}))
	w.network.impose(condition{of: w.someoneOrAll(d), latency: latency}, seconds(pick(d, []float64{4, 10, 20, 30})))
}

func goAway(w *world, d *dice) {
	lasts := seconds(pick(d, []float64{1, 3, 6, 9, 14, 25}))
	w.network.impose(condition{of: w.someoneOrAll(d), reach: pick(d, []reach{reachNobody, reachRefusal})}, lasts)
}

// killConnections makes black holes of the connections that a process has.
func killConnections(w *world, d *dice) {
	p := w.someone(d, 1)
	if p == nil {
		return
	}
	w.chronicle.of(p, "has dead connections")
	p.transport.die()
	p.trouble("its connections are dead", severed).endAfter(time.Millisecond)
	// Each of those kept may have to be found out by a renewal of its own.
	p.trouble("its connections are dead", silenced).endAfter((maxIdleConnections + 1) * renewalPeriod)
	p.trouble("its connections are dead", slowed).endAfter(worldLease)
}

func silence(w *world, d *dice) {
	if p := w.someone(d, 1); p != nil {
		w.chronicle.of(p, "gets no more events from its present watch")
		p.stalls.Store(true)
		w.network.wake()
	}
}

func join(w *world, d *dice) {
	if len(w.living()) < maxLiving {
		w.start("host" + strconv.Itoa(d.below(maxLiving)))
	}
}

func killSomeone(w *world, d *dice) {
	p := w.someone(d, 2)
	if p == nil {
		return
	}
	w.chronicle.of(p, "is killed")
	p.kill()
	w.comeBack(p, d)
}

func stopSomeone(w *world, d *dice) {
	p := w.someone(d, 2)
	if p == nil {
		return
	}
	p.stop()
	w.comeBack(p, d)
}

// comeBack may start another process, in the place of this one or elsewhere.
func (w *world) comeBack(p *process, d *dice) {
	place := p.place
	switch draw := d.below(100); {
	case draw < 30:
		return
	case draw < 50:
		place = "host" + strconv.Itoa(d.below(maxLiving))
	}
	pause := d.upTo(10 * time.Second)
	w.running.Go(func() {
		time.Sleep(pause)
		if w.disturbed.Load() && len(w.living()) < maxLiving {
			w.start(place)
		}
	})
}

func pauseSomeone(w *world, d *dice) {
	if p := w.someone(d, 2); p != nil {
		p.pause(d.upTo(pick(d, []time.Duration{3 * time.Second, 10 * time.Second, 25 * time.Second})))
	}
}

func hangSomeone(w *world, d *dice) {
	if p := w.someone(d, 2); p != nil {
		p.hang(d.upTo(12 * time.Second))
	}
}

func makeBarren(w *world, d *dice) {
	p := w.someone(d, 2)
	if p == nil {
		return
	}
	s, key := pick(d, p.sources), pick(d, w.keys)
	w.chronicle.of(p, "will never fill its %s for what has key %d", s.name, key)
	s.lock.Lock()
	defer s.lock.Unlock()
	s.barren = &key
}

func getStuck(w *world, d *dice) {
	what := task{pick(d, worldControllers), pick(d, w.keys)}
	if w.stuck.CompareAndSwap(nil, &what) {
		w.chronicle.note(nil, "work on %v never ends from now on", what)
	}
}

func move(w *world, d *dice) {
	r, ok := w.someRecord(d)
	to := pick(d, w.keys) + int64(d.below(3)) - 1
	pins, callsOff := d.chance(0.3), d.chance(0.2)
	if !ok || r.Key == nil {
		return
	}
	if callsOff && r.Next != nil {
		w.chronicle.note(nil, "a person calls off the move of %s", r.Name)
		w.edit(r.Name, func(i *shardingv1alpha1.ControllerInstance) { i.Spec.NextHashKey = nil })
		return
	}
	if w.view().CheckMove(r.Name, to) != nil && d.chance(0.8) {
		return
	}
	w.chronicle.note(nil, "a person moves %s to %d, pinned: %v", r.Name, to, pins)
	w.edit(r.Name, func(i *shardingv1alpha1.ControllerInstance) {
		i.Spec.NextHashKey = (*shardingv1alpha1.HashKey)(&to)
		if pins {
			i.Spec.PinnedHashKey = (*shardingv1alpha1.HashKey)(&to)
		}
	})
}

func drain(w *world, d *dice) {
	if r, ok := w.someRecord(d); ok {
		w.chronicle.note(nil, "a person sets %s drained: %v", r.Name, !r.Drained)
		w.edit(r.Name, func(i *shardingv1alpha1.ControllerInstance) { i.Spec.Drained = !r.Drained })
	}
}

// deleteRecord asks an instance to leave.
func deleteRecord(w *world, d *dice) {
	r, ok := w.someRecord(d)
	if !ok {
		return
	}
	w.chronicle.note(nil, "a person deletes %s", r.Name)
	w.registry.lock.Lock()
	defer w.registry.lock.Unlock()
	if instance, ok := w.registry.newest()[r.Name]; ok && instance.DeletionTimestamp == nil {
		if instance.Spec.HashKey == nil {
			w.ends(r.UID, false)
		}
		w.registry.askToLeaveLocked(instance)
	}
}

// removeRecord deletes a record by force.
func removeRecord(w *world, d *dice) {
	r, ok := w.someRecord(d)
	if !ok {
		return
	}
	w.chronicle.note(nil, "a person deletes %s by force", r.Name)
	w.registry.lock.Lock()
	defer w.registry.lock.Unlock()
	if _, ok := w.registry.newest()[r.Name]; ok {
		w.ends(r.UID, false)
		w.registry.removeLocked(r.Name)
	}
}

// undrain ends what is drained.
func (w *world) undrain() {
	for _, r := range w.view().Records() {
		if r.Drained {
			w.edit(r.Name, func(i *shardingv1alpha1.ControllerInstance) { i.Spec.Drained = false })
		}
	}
}
