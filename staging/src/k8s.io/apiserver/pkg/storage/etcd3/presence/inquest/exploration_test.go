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

package inquest

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// step is what happens next, and its name.
type step struct {
	name string
	do   func(*world)
}

// steps are all that may happen next. A fault costs one of the budget.
func (w *world) steps() (all []step) {
	add := func(do func(*world), format string, args ...any) {
		all = append(all, step{fmt.Sprintf(format, args...), do})
	}
	for _, first := range []bool{true, false} {
		add(func(w *world) { w.pass(first) }, "a tick passes, servers first: %v", first)
	}
	for k, n := range w.notices {
		add(func(w *world) {
			w.notices = slices.Delete(w.notices, k, k+1)
			w.end(n.server, n.process, n.open, n.why, true)
		}, "server %d hears of the end of presence %d of %d", n.server, n.open, n.process)
	}
	for i := range w.servers {
		if w.servers[i].paused {
			add(func(w *world) { w.servers[i].paused = false }, "server %d goes on", i)
		}
		if w.servers[i].down {
			add(func(w *world) { w.servers[i].down = false }, "server %d is back", i)
		}
	}
	if w.stalled {
		add(func(w *world) { w.stalled = false }, "etcd goes on")
	}
	for i := range w.processes {
		if !w.processes[i].alive {
			continue
		}
		if w.processes[i].blocked {
			add(func(w *world) {
				p := &w.processes[i]
				p.blocked = false
				if p.sent == period-1 {
					p.sent = period
				}
				w.live(i)
			}, "requests of %d get through", i)
		}
		if w.processes[i].starved {
			add(func(w *world) { w.processes[i].starved = false; w.live(i) }, "%d runs on", i)
		}
		if w.processes[i].hangs {
			add(func(w *world) { w.processes[i].hangs = false }, "%d asks another server for a presence", i)
		}
		if w.processes[i].deaf {
			add(func(w *world) { w.processes[i].lose() }, "%d hears of the end", i)
		}
	}
	if w.budget == 0 {
		return all
	}
	fault := func(do func(*world), format string, args ...any) {
		add(func(w *world) { w.budget--; do(w) }, format, args...)
	}
	for i := range w.processes {
		w.faultsOf(i, fault)
	}
	if w.present() > 1 {
		for _, blocked := range []bool{true, false} {
			fault(func(w *world) {
				for i := range w.processes {
					if p := &w.processes[i]; p.present() {
						w.end(p.at, int8(i), p.open, mass, true)
						p.lose()
						p.blocked = p.blocked || blocked
					}
				}
			}, "all presences are cut, requests blocked: %v", blocked)
		}
	}
	if !w.stalled {
		fault(func(w *world) { w.stalled = true }, "etcd stalls")
	}
	for i := range w.servers {
		if s := w.servers[i]; s.paused || s.down {
			continue
		}
		fault(func(w *world) { w.servers[i].paused, w.failed = true, true }, "server %d is paused", i)
		fault(func(w *world) {
			w.failed = true
			for j := range w.processes {
				if p := &w.processes[j]; p.at == int8(i) {
					w.end(int8(i), int8(j), p.open, byServer, true)
					p.lose()
				}
			}
			if w.without != serverEnds {
				w.servers[i] = server{down: true, old: w.servers[i].old}
			}
		}, "server %d shuts down", i)
	}
	return all
}

// faultsOf are those of one process.
func (w *world) faultsOf(i int, fault func(do func(*world), format string, args ...any)) {
	p := w.processes[i]
	if !p.alive {
		return
	}
	who := int8(i)
	if p.present() {
		for _, hears := range []bool{true, false} {
			fault(func(w *world) {
				p := &w.processes[i]
				p.alive = false
				w.end(p.at, who, p.open, cut, hears)
			}, "%d is killed, its server hears: %v", i, hears)
			for _, knows := range []bool{true, false} {
				for _, blocked := range []bool{true, false} {
					fault(func(w *world) {
						p := &w.processes[i]
						w.end(p.at, who, p.open, cut, hears)
						p.deaf = true
						if knows {
							p.lose()
						}
						p.blocked = p.blocked || blocked
					}, "the presence of %d is cut, its server hears: %v, it hears: %v, requests blocked: %v", i, hears, knows, blocked)
				}
			}
		}
		fault(func(w *world) {
			p := &w.processes[i]
			w.end(p.at, who, p.open, cut, false)
			p.lose()
			p.hangs = true
		}, "the presence of %d is cut, its server does not hear, and the next one that it asks does not answer", i)
		fault(func(w *world) {
			p := &w.processes[i]
			old, server := *p, w.running(p)
			switch {
			case w.without == opensFirst:
				p.lose()
			case server < 0 || w.stalled:
				return
			default:
				w.opening(i, server)
			}
			w.end(old.at, who, old.open, onPurpose, true)
		}, "%d changes its presence on purpose", i)
		if w.without == ownWatch {
			fault(func(w *world) { w.end(p.at, who, p.open, byServer, true) }, "a reader of %d ends its watch", i)
		}
	}
	if !p.blocked {
		fault(func(w *world) { w.processes[i].blocked = true }, "requests of %d are blocked", i)
	}
	if !p.starved {
		fault(func(w *world) { w.processes[i].starved = true }, "%d is starved of CPU", i)
	}
	if p.sent >= period-1 {
		fault(func(w *world) { w.processes[i].sent, w.processes[i].missed = 0, true }, "a renewal of %d is lost", i)
	}
	for k, n := range w.notices {
		if n.process == who {
			fault(func(w *world) { w.notices = append(w.notices, w.notices[k]) }, "the end of presence %d of %d is doubled", n.open, i)
			break
		}
	}
}

// rank returns the place of an opening among those of its process that matter still.
func (w *world) rank(who, open int8) int8 {
	var smaller [128]bool
	p := w.processes[who]
	smaller[p.open], smaller[p.token] = true, true
	for _, n := range w.notices {
		if n.process == who {
			smaller[n.open] = true
		}
	}
	for i := range w.servers {
		for _, t := range w.servers[i].trials {
			if t.process == who {
				smaller[t.open] = true
			}
		}
	}
	rank := int8(0)
	for _, used := range smaller[:open] {
		if used {
			rank++
		}
	}
	return rank
}

// encode writes what of the state decides the future.
func (w *world) encode(buf []byte) []byte {
	bit := func(all ...bool) {
		b := byte(0)
		for i, set := range all {
			if set {
				b |= 1 << i
			}
		}
		buf = append(buf, b)
	}
	age := func(at time.Time) {
		if at.IsZero() {
			buf = append(buf, 255)
			return
		}
		// The inquest adds whole ticks, and the limits of the model are whole ticks, too.
		buf = binary.AppendVarint(buf, max(-100, int64(at.Sub(w.now)/tick)))
	}
	bit(w.stalled, w.failed)
	buf = append(buf, byte(w.budget))
	for i, p := range w.processes {
		bit(p.alive, p.starved, p.blocked, p.record, p.waiting, p.believes, p.deaf, p.missed)
		bit(p.hangs)
		buf = append(buf, byte(p.renewed), byte(p.sent), byte(p.at), byte(w.rank(int8(i), p.open)), byte(w.rank(int8(i), p.token)), byte(p.alone), byte(p.unable), byte(p.reopened), byte(w.announced[i]))
	}
	for _, s := range w.servers {
		bit(s.paused, s.down, s.old)
		buf = append(buf, byte(len(s.trials)))
		for _, t := range s.trials {
			bit(t.waiting, t.removing, t.fair, t.q.several, t.q.announced)
			buf = append(buf, byte(t.process), byte(w.rank(t.process, t.open)), byte(t.why))
			age(t.q.noticed)
			age(t.q.ended)
			age(t.q.due)
			age(t.q.silentFrom)
			age(t.q.silentTo)
			age(t.asked)
		}
	}
	buf = append(buf, byte(len(w.notices)))
	for _, n := range w.notices {
		buf = append(buf, byte(n.server), byte(n.process), byte(w.rank(n.process, n.open)), byte(n.why))
	}
	for _, lasts := range w.taken {
		buf = append(buf, byte(lasts))
	}
	return buf
}

// found is the outcome of an exploration.
type found struct {
	states int
	// how is what led to a violation; empty: there is none.
	how []string
	// removed is in how many states the record of a killed process was removed.
	removed int
}

// explore visits all states that can be reached from a world within that many steps (0: all), the
// nearest first.
func explore(from *world, depth int) found {
	type node struct {
		parent int32
		name   string
	}
	var (
		out   found
		seed  = maphash.MakeSeed()
		seen  = map[uint64]struct{}{}
		nodes = []node{{-1, ""}}
		layer = []*world{from}
		ids   = []int32{0}
		buf   []byte
	)
	for d := 0; len(layer) > 0 && (depth == 0 || d < depth); d++ {
		var next []*world
		var nextIDs []int32
		for i, w := range layer {
			for _, s := range w.steps() {
				to := w.clone()
				s.do(to)
				if to.broken == "" {
					buf = to.encode(buf[:0])
					key := maphash.Bytes(seed, buf)
					if _, ok := seen[key]; ok {
						continue
					}
					seen[key] = struct{}{}
				}
				nodes = append(nodes, node{ids[i], s.name})
				if to.broken != "" {
					out.states, out.how = len(nodes), []string{to.broken}
					for at := int32(len(nodes) - 1); nodes[at].parent >= 0; at = nodes[at].parent {
						out.how = append(out.how, nodes[at].name)
					}
					slices.Reverse(out.how)
					return out
				}
				for i := range to.processes {
					if w.processes[i].record && !to.processes[i].record && len(to.taken) > len(w.taken) {
						out.removed++
					}
				}
				if to.idle() {
					continue
				}
				next = append(next, to)
				nextIDs = append(nextIDs, int32(len(nodes)-1))
			}
		}
		layer, ids = next, nextIDs
	}
	out.states = len(nodes)
	return out
}

func (f found) String() string { return strings.Join(f.how, "\n") }

// scene is a world to explore.
type scene struct {
	processes, servers int
	faults             int8
	// old says that the last server tracks no presences.
	old bool
}

func (s scene) world(without rule) *world {
	w := newWorld(s.processes, s.servers, without, s.faults)
	if s.old {
		w.servers[s.servers-1].old = true
	}
	return w
}

func TestNoHealthyInstanceIsRemoved(t *testing.T) {
	long := os.Getenv("RING_EXPLORATION") == "long"
	for name, s := range map[string]struct {
		scene
		depth int
		long  bool
	}{
		"one server":           {scene{processes: 2, servers: 1, faults: 2}, 11, false},
		"two servers":          {scene{processes: 2, servers: 2, faults: 2}, 11, false},
		"one that tracks none": {scene{processes: 2, servers: 2, faults: 2, old: true}, 11, false},
		"three processes":      {scene{processes: 3, servers: 2, faults: 2}, 11, true},
		"three faults":         {scene{processes: 2, servers: 2, faults: 3}, 11, true},
		"to the end":           {scene{processes: 2, servers: 2, faults: 2}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			if s.long && !long {
				t.Skip("takes minutes: RING_EXPLORATION=long")
			}
			f := explore(s.world(none), s.depth)
			t.Logf("%d states, %d removals", f.states, f.removed)
			if len(f.how) > 0 {
				t.Error(f)
			}
			if f.removed == 0 {
				t.Error("no record was removed at all")
			}
		})
	}
}

func TestEachRuleIsNeeded(t *testing.T) {
	one, two := scene{processes: 2, servers: 1, faults: 2}, scene{processes: 2, servers: 2, faults: 2}
	old := two
	old.old = true
	for name, left := range map[string]struct {
		rule
		scene
	}{
		"own watch":           {ownWatch, two},
		"own transport":       {ownTransport, two},
		"newest wins":         {newestWins, two},
		"server's own ends":   {serverEnds, two},
		"late timers":         {lateTimers, one},
		"slow etcd":           {slowEtcd, one},
		"announcements":       {announces, two},
		"reopenings":          {reopens, two},
		"renewed is left":     {renewedKeeps, two},
		"rounded down":        {roundedDown, two},
		"overdue":             {overdue, two},
		"compared":            {compares, two},
		"slots":               {slots, two},
		"reacts at once":      {reacts, two},
		"renews on":           {persists, two},
		"opens the next":      {opensFirst, two},
		"says that it tracks": {saysSo, old},
	} {
		t.Run(name, func(t *testing.T) {
			var f found
			// As few faults as do it.
			for most, faults := left.faults, int8(1); faults <= most && len(f.how) == 0; faults++ {
				left.faults = faults
				f = explore(left.world(left.rule), 20)
			}
			if len(f.how) == 0 {
				t.Error("nothing goes wrong without this rule")
			}
			t.Logf("%d states:\n%s", f.states, f)
		})
	}
}

// A kill is what all this is for.
func TestTheRecordOfAKilledProcessIsRemoved(t *testing.T) {
	for age := range int8(period) {
		w := newWorld(2, 2, none, 0)
		p := &w.processes[0]
		p.renewed, p.sent = age, age
		p.alive = false
		w.end(0, 0, p.open, cut, true)
		ticks := 0
		for ; p.record && ticks < leaseTicks; ticks++ {
			w.pass(true)
		}
		// Its next turn, and half a second.
		if most := max(4, 7-int(age)) + 1; ticks > most {
			t.Errorf("renewed %d ticks before it was killed, its record lived for %d more, want %d", age, ticks, most)
		}
	}
}

// A server that was slow itself judges anew, and one that stays slow leaves the record at last.
func TestAnInquestBeginsAnewWhereTheServerWasSlow(t *testing.T) {
	for name, slow := range map[string]func(w *world, slow bool){
		"server": func(w *world, slow bool) { w.servers[0].paused = slow },
		"etcd":   func(w *world, slow bool) { w.stalled = slow },
	} {
		for lasts, removed := range map[int]bool{1: true, 4: true, 8: false} {
			w := newWorld(2, 1, none, 0)
			w.processes[0].alive = false
			w.end(0, 0, w.processes[0].open, cut, true)
			w.pass(true)
			slow(w, true)
			for range lasts {
				w.pass(true)
			}
			slow(w, false)
			ticks := 0
			for ; w.processes[0].record; ticks++ {
				w.pass(true)
			}
			// The lease began when the process was last heard of, as the world did.
			if expired := 1+lasts+ticks == leaseTicks; expired == removed || removed && ticks > 9 {
				t.Errorf("the %s was slow for %d ticks: the record lived for %d after that", name, lasts, ticks)
			}
		}
	}
}
