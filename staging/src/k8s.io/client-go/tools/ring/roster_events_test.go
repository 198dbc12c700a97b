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

// rosterEvent is something that can happen.
type rosterEvent struct {
	// text tells it; %[1]s is the instance, %[2]s what args chooses from.
	text string
	// args returns what it can happen with now: nothing if it cannot.
	args func(*rosterWorld, *rosterInstance) []controllerSet
	do   func(w *rosterWorld, p *rosterInstance, arg controllerSet)
	// fault: it counts as a fault.
	fault bool
	// explored says that it happens in an exploration, fair that it happens in a fair run.
	explored, fair bool
}

// rosterAction is an event that happens to the instance in that place, or to the leader.
type rosterAction struct {
	event, place byte
	arg          controllerSet
}

// leaderPlace is where events happen that happen to no instance.
const leaderPlace = rosterPlaces

// when returns the args of an event that can happen in one way, if it can.
func when(can func(*rosterWorld, *rosterInstance) bool) func(*rosterWorld, *rosterInstance) []controllerSet {
	return func(w *rosterWorld, p *rosterInstance) []controllerSet {
		if can(w, p) {
			return setsUpTo[0]
		}
		return nil
	}
}

// subsets returns the subsets of a set of controllers.
func subsets(of controllerSet) []controllerSet { return setsUpTo[of] }

var setsUpTo = func() (out [4][]controllerSet) {
	for of := range out {
		for c := range controllerSet(4) {
			if c&^controllerSet(of) == 0 {
				out[of] = append(out[of], c)
			}
		}
	}
	return out
}()

// The events of an instance, in the order of a fair run.
var instanceEvents = []rosterEvent{
	{
		text: "%[1]s believes that it may work on %[2]s",
		args: func(w *rosterWorld, p *rosterInstance) []controllerSet {
			if !p.up {
				return nil
			}
			return subsets(p.lists)
		},
		do: func(_ *rosterWorld, p *rosterInstance, may controllerSet) {
			p.view, p.leader, p.may = sharedView, &signedLeaders[3&^may], may
		},
		explored: true,
	},
	{
		text: "%[1]s sees the ring, the leader and its own record",
		args: when(func(_ *rosterWorld, p *rosterInstance) bool { return p.up }),
		do: func(w *rosterWorld, p *rosterInstance, _ controllerSet) {
			leader := w.lease.leader()
			p.view, p.leader = w.records(), &leader
			if !w.rules.allList {
				p.view = sharedView
			}
			p.may = 0
			for i, c := range rosterControllers {
				if p.lists&(1<<i) != 0 && whyNot(c, RosterInput{View: p.view, Leader: p.leader}) == "" {
					p.may |= 1 << i
				}
			}
			p.known = p.record
		},
		fair: true,
	},
	{
		text: "%[1]s sees its own record",
		args: when(func(_ *rosterWorld, p *rosterInstance) bool {
			return p.up && p.known.version != p.record.version
		}),
		do:       func(_ *rosterWorld, p *rosterInstance, _ controllerSet) { p.known = p.record },
		explored: true,
	},
	{
		text:     "%[1]s decides",
		args:     when(func(_ *rosterWorld, p *rosterInstance) bool { return p.up }),
		do:       func(w *rosterWorld, p *rosterInstance, _ controllerSet) { w.decide(p) },
		explored: true, fair: true,
	},
	{
		text: "%[1]s sends its status",
		args: when(func(_ *rosterWorld, p *rosterInstance) bool {
			return p.up && !p.flying.sent && (p.known.working != p.says || p.known.epoch != p.epoch)
		}),
		do: func(w *rosterWorld, p *rosterInstance, _ controllerSet) {
			p.flying = rosterWrite{true, rosterStatus{p.says, p.epoch, p.known.version}}
			w.note("it works on %v, epoch %d", p.says, p.epoch)
		},
		explored: true, fair: true,
	},
	{
		text: "the status of %[1]s arrives, and so does the answer",
		args: when(func(_ *rosterWorld, p *rosterInstance) bool { return p.up && p.flying.sent }),
		do: func(w *rosterWorld, p *rosterInstance, _ controllerSet) {
			if w.stores(p, &p.flying) {
				w.store(p, &p.flying)
				p.known = p.record
			} else {
				w.note("refused")
			}
			p.flying = rosterWrite{}
		},
		explored: true, fair: true,
	},
	{
		text: "the late status of %[1]s arrives",
		args: when(func(w *rosterWorld, p *rosterInstance) bool { return w.stores(p, &p.late) }),
		do: func(w *rosterWorld, p *rosterInstance, _ controllerSet) {
			w.store(p, &p.late)
			p.late = rosterWrite{}
		},
		explored: true, fair: true,
	},
	{
		text: "the Lease is read for %[1]s",
		args: when(func(_ *rosterWorld, p *rosterInstance) bool { return p.reading == askedToRead }),
		do: func(w *rosterWorld, p *rosterInstance, _ controllerSet) {
			p.reading, p.answer = hasRead, w.lease
			switch {
			case !w.rules.quorum:
				p.answer = leaseHolder{ours, w.all &^ p.may}
			case !w.rules.recordFirst:
				p.answer = p.before
			}
			w.note("%v", p.answer)
		},
		explored: true, fair: true,
	},
	{
		text: "%[1]s gets the answer who leads",
		args: when(func(_ *rosterWorld, p *rosterInstance) bool { return p.reading == hasRead }),
		do: func(_ *rosterWorld, p *rosterInstance, _ controllerSet) {
			p.roster.Answer(p.answer.leader(), true)
			p.reading, p.answer = notReading, leaseHolder{}
		},
		explored: true, fair: true,
	},
	{
		text: "%[1]s fills its caches, as of now",
		args: when(func(_ *rosterWorld, p *rosterInstance) bool { return p.open&^p.filled&^p.serving != 0 }),
		do: func(_ *rosterWorld, p *rosterInstance, _ controllerSet) {
			p.filled, p.stale = p.open, p.stale&^p.open
		},
		explored: true, fair: true,
	},
	{
		text: "%[1]s opens its gate",
		args: when(func(w *rosterWorld, p *rosterInstance) bool { return w.gain(p) != 0 }),
		do: func(w *rosterWorld, p *rosterInstance, _ controllerSet) {
			w.note("it works on %v", w.gain(p))
			p.serving |= w.gain(p)
		},
		explored: true, fair: true,
	},
	{
		text:     "%[1]s ends its work on %[2]s behind the shut gate",
		args:     busyControllers,
		do:       func(_ *rosterWorld, p *rosterInstance, c controllerSet) { p.busy &^= c },
		explored: true, fair: true,
	},
	{
		text: "the work of %[1]s on %[2]s behind the shut gate ends in errors; its requests may still be stored",
		args: busyControllers,
		do: func(_ *rosterWorld, p *rosterInstance, c controllerSet) {
			p.lose(c)
			p.busy &^= c
		},
		explored: true,
	},
	{
		text:     "the record of %[1]s expires",
		args:     when(func(_ *rosterWorld, p *rosterInstance) bool { return !p.up && p.registered }),
		do:       func(_ *rosterWorld, p *rosterInstance, _ controllerSet) { p.registered = false },
		explored: true, fair: true,
	},
	{
		text: "the record of %[1]s goes, so nothing of it is stored any more",
		args: when(func(w *rosterWorld, p *rosterInstance) bool { return p.up && w.leaves > 0 }),
		do: func(w *rosterWorld, p *rosterInstance, _ controllerSet) {
			spend(&w.leaves)
			p.registered = false
			p.end()
		},
		explored: true,
	},
	{
		text:     "%[1]s crashes",
		args:     when(func(_ *rosterWorld, p *rosterInstance) bool { return p.up }),
		do:       func(_ *rosterWorld, p *rosterInstance, _ controllerSet) { p.end() },
		explored: true, fault: true,
	},
	{
		text: "the status of %[1]s arrives, the answer is lost",
		args: when(func(w *rosterWorld, p *rosterInstance) bool { return p.up && w.stores(p, &p.flying) }),
		do: func(w *rosterWorld, p *rosterInstance, _ controllerSet) {
			w.store(p, &p.flying)
			p.flying = rosterWrite{}
		},
		explored: true, fault: true,
	},
	{
		text: "%[1]s gets no answer to its status, which may still arrive",
		args: when(func(w *rosterWorld, p *rosterInstance) bool {
			return p.up && w.stores(p, &p.flying) && !p.late.sent
		}),
		do:       func(_ *rosterWorld, p *rosterInstance, _ controllerSet) { p.late, p.flying = p.flying, rosterWrite{} },
		explored: true, fault: true,
	},
	{
		text: "%[1]s cannot read the Lease",
		args: when(func(_ *rosterWorld, p *rosterInstance) bool { return p.reading != notReading }),
		do: func(_ *rosterWorld, p *rosterInstance, _ controllerSet) {
			p.roster.Answer(Leader{}, false)
			p.reading, p.answer = notReading, leaseHolder{}
		},
		explored: true, fault: true,
	},
}

// gain is what the instance may open its gate for.
func (w *rosterWorld) gain(p *rosterInstance) controllerSet {
	gain := p.open &^ p.serving
	if w.rules.instanceCaches {
		gain &= p.filled
	}
	return gain
}

func busyControllers(_ *rosterWorld, p *rosterInstance) []controllerSet {
	switch p.busy {
	case 0:
		return nil
	case 3:
		return []controllerSet{1, 2}
	}
	return []controllerSet{p.busy}
}

// The events of leaders, and of what starts, in the order of a fair run.
var leaderEvents = []rosterEvent{
	{
		text: "an instance starts that lists %[2]s",
		args: func(w *rosterWorld, _ *rosterInstance) []controllerSet {
			if w.starts == 0 || w.alive() == rosterPlaces-1 || !slices.Contains(w.places[:], nil) {
				return nil
			}
			return subsets(w.all)
		},
		do: func(w *rosterWorld, _ *rosterInstance, lists controllerSet) {
			spend(&w.starts)
			w.start(lists)
			w.note("it registers as %s", string('a'+rune(w.started-1)))
		},
		explored: true,
	},
	{
		text: "a candidate takes the Lease that is to run %[2]s itself",
		args: func(w *rosterWorld, _ *rosterInstance) []controllerSet {
			if w.takes == 0 {
				return nil
			}
			return subsets(w.enabled)
		},
		do: func(w *rosterWorld, _ *rosterInstance, set controllerSet) {
			spend(&w.takes)
			w.elect(w.stand(NewViews(0, Record{Name: "all", Ring: rosterRing, Controllers: (3 &^ set).names()})), true)
		},
		explored: true,
	},
	{
		text: "a stock manager takes the Lease",
		args: when(func(w *rosterWorld, _ *rosterInstance) bool {
			return w.stock > 0 && (!w.rules.noRecord || !w.anyRecord())
		}),
		do: func(w *rosterWorld, _ *rosterInstance, _ controllerSet) {
			spend(&w.stock)
			w.elect(leaseHolder{kind: stock}, true)
		},
		explored: true,
	},
	{
		text:     "the leader ends its term",
		args:     when(func(w *rosterWorld, _ *rosterInstance) bool { return w.leader.up }),
		do:       func(w *rosterWorld, _ *rosterInstance, _ controllerSet) { w.elect(leaseHolder{}, false) },
		explored: true,
	},
	{
		text:     "the leader crashes",
		args:     when(func(w *rosterWorld, _ *rosterInstance) bool { return w.leader.up }),
		do:       func(w *rosterWorld, _ *rosterInstance, _ controllerSet) { w.elect(w.lease, false) },
		explored: true,
	},
	{
		text: "the leader ends its term, since its set no longer fits",
		args: when(func(w *rosterWorld, _ *rosterInstance) bool {
			return w.leader.up && w.lease.kind == ours && w.unfit()
		}),
		do:   func(w *rosterWorld, _ *rosterInstance, _ controllerSet) { w.elect(leaseHolder{}, false) },
		fair: true,
	},
	{
		text: "a candidate takes the Lease",
		args: when(func(w *rosterWorld, _ *rosterInstance) bool { return !w.leader.up }),
		do: func(w *rosterWorld, _ *rosterInstance, _ controllerSet) {
			w.elect(w.stand(w.registry()), true)
			w.note("%v", w.lease)
		},
		fair: true,
	},
	{
		text: "a candidate reads the records, and none works on anything",
		args: when(func(w *rosterWorld, _ *rosterInstance) bool {
			return !w.rules.readAfter && !w.early && w.idle(w.all)
		}),
		do:       func(w *rosterWorld, _ *rosterInstance, _ controllerSet) { w.early = true },
		explored: true,
	},
	{
		text: "the leader reads the records, and none works on its controllers",
		args: when(func(w *rosterWorld, _ *rosterInstance) bool {
			return w.leader.up && w.lease.kind == ours && !w.leader.clear && w.mayBegin()
		}),
		do: func(w *rosterWorld, _ *rosterInstance, _ controllerSet) {
			w.leader.clear = true
			if w.rules.leaderCaches {
				w.leader.stale = 0
			}
		},
		explored: true, fair: true,
	},
	{
		text: "the leader starts its controllers",
		args: when(func(w *rosterWorld, _ *rosterInstance) bool {
			return w.leader.up && w.leader.works == 0 && w.lease.runs()&w.all != 0 && (w.lease.kind == stock || w.leader.clear || !w.rules.wait)
		}),
		do:       func(w *rosterWorld, _ *rosterInstance, _ controllerSet) { w.leader.works = w.lease.runs() & w.all },
		explored: true, fair: true,
	},
}

// idle says whether no record says that an instance works on any of these.
func (w *rosterWorld) idle(set controllerSet) bool {
	view := w.records()
	return !slices.ContainsFunc(set.names(), func(c string) bool { return len(view.WorkingOn(c)) > 0 })
}

// event returns what happens, and to whom.
func (w *rosterWorld) event(a rosterAction) (*rosterEvent, *rosterInstance) {
	if a.place == leaderPlace {
		return &leaderEvents[a.event], nil
	}
	return &instanceEvents[a.event], w.places[a.place]
}

// actions appends every action of an exploration that can happen now.
func (w *rosterWorld) actions(out []rosterAction) []rosterAction {
	for place := range byte(leaderPlace + 1) {
		events, p := leaderEvents, (*rosterInstance)(nil)
		if place != leaderPlace {
			if events, p = instanceEvents, w.places[place]; p == nil {
				continue
			}
		}
		for i := range events {
			if e := &events[i]; e.explored && (!e.fault || w.faults > 0) {
				for _, arg := range e.args(w, p) {
					out = append(out, rosterAction{byte(i), place, arg})
				}
			}
		}
	}
	return out
}

// do carries out an action, and returns what is wrong then.
func (w *rosterWorld) do(a rosterAction) *violation {
	e, p := w.event(a)
	if p != nil {
		p = w.change(int(a.place))
	}
	if w.trace != nil {
		name := ""
		if p != nil {
			name = p.name
		}
		// Whatever the text leaves out is cut off.
		*w.trace = append(*w.trace, fmt.Sprintf(e.text+"%.0[1]s%.0[2]s", name, a.arg))
	}
	if e.fault {
		spend(&w.faults)
	}
	e.do(w, p, a.arg)
	w.clean()
	return w.observe()
}

// settle makes one fair run without faults until nothing happens any more, and returns what is
// wrong on the way or then.
func (w *rosterWorld) settle() *violation {
	var before, after []byte
	for range 100 {
		before = w.encode(before[:0])
		for place := range byte(leaderPlace + 1) {
			events := instanceEvents
			if place == leaderPlace {
				events = leaderEvents
			}
			for i := range events {
				a := rosterAction{event: byte(i), place: place}
				e, p := w.event(a)
				if !e.fair || place != leaderPlace && p == nil {
					continue
				}
				if args := e.args(w, p); len(args) > 0 {
					a.arg = args[0]
					if v := w.do(a); v != nil {
						return v
					}
				}
			}
		}
		if after = w.encode(after[:0]); slices.Equal(before, after) {
			return w.checkRest()
		}
	}
	return &violation{rest, "the ring and the leader do not come to rest"}
}
