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
	"slices"
	"time"
)

// The model's clock goes in ticks. What the limits say in fractions of one happens within a tick.
const tick = 500 * time.Millisecond

var modelLimits = Limits{Gather: 2 * tick, Window: 4 * tick, Overdue: tick, Poll: tick, Late: tick / 2, Again: 6 * tick}

const (
	// leaseTicks is the lease of a record, 15 s, and period how often it is renewed.
	leaseTicks, period = 30, 5
	// window is how long a process has to be unable to renew before its record may be removed.
	window = int8(4)
	// longAgo is a time that no inquest asks after any more.
	longAgo = int8(24)
	// hurryTicks is how long a process that has lost its presence renews in each tick. After that it
	// does so every lackingTicks until it has another.
	hurryTicks, lackingTicks = int8(4), int8(2)
	// announcedTicks is how long an announcement lasts.
	announcedTicks = 10
)

// rule is one of those that keep a healthy instance's record. A test leaves one out.
type rule int

const (
	none rule = iota
	// ownWatch: only a watch by the instance itself is its presence.
	ownWatch
	// ownTransport: failures of renewals do not end presences.
	ownTransport
	// newestWins: the end of any but the newest presence is void.
	newestWins
	// serverEnds: what the server has ended itself is no end.
	serverEnds
	// lateTimers: a server whose timers are late begins anew.
	lateTimers
	// slowEtcd: so does one that etcd answers late.
	slowEtcd
	// announces: so does one if another has announced the removal of another process.
	announces
	// reopens: so does one if another process that had lost its presence has opened one.
	reopens
	// renewedKeeps: what has been renewed since the end is left.
	renewedKeeps
	// roundedDown: what remains of a lease is rounded down.
	roundedDown
	// overdue: the process's next renewal has to be overdue.
	overdue
	// compares: the removal compares that the presence is the newest still.
	compares
	// slots: a quarter of the ring at most, and one at least, is removed in a lease.
	slots
	// reacts: a process that hears of the end renews, and opens a presence, at once.
	reacts
	// persists: it renews more often than in turn until it has a presence.
	persists
	// opensFirst: a process opens the next presence before it ends one on purpose.
	opensFirst
	// saysSo: a server says that it tracks presences.
	saysSo
	rules
)

// cause is why a presence ended.
type cause int8

const (
	// cut: its connection alone was cut, or its process was killed.
	cut cause = iota
	// mass: connections of several processes were cut at once.
	mass
	// byServer: the server ended it, or somebody else's watch.
	byServer
	// onPurpose: the process ended it.
	onPurpose
)

// process runs one instance.
type process struct {
	alive, starved, blocked bool
	// record says that it has one, and renewed how long ago that was renewed, in ticks.
	record  bool
	renewed int8
	// sent is when the last renewal was sent; waiting says that etcd has yet to see one.
	sent    int8
	waiting bool
	// at is the server that has the process's presence, as it knows; -1: none. open is the number of
	// that opening, and token the newest that etcd has.
	at          int8
	open, token int8
	believes    bool
	// deaf says that the presence has ended, and the process has yet to hear of it.
	deaf bool
	// alone is for how long it has known of the end, hurryTicks at most; hangs says that the server
	// that it has asked for another presence does not answer.
	alone int8
	hangs bool
	// unable is for how long it could not renew, for reasons of its own, or had not heard that it has
	// to. missed says that it has missed a turn, too.
	unable int8
	missed bool
	// reopened is how long ago it opened a presence because it had lost one, longAgo at most.
	reopened int8
}

// notice is an end that a server has yet to hear of.
type notice struct {
	server, process, open int8
	why                   cause
}

// trial is an inquest at a server.
type trial struct {
	process, open int8
	why           cause
	q             Inquest
	// asked is when etcd was asked, if it has not answered yet.
	asked   time.Time
	waiting bool
	// removing says that the removal is on its way, which sees no further renewal, and fair that the
	// process had been unable to renew for the window by then.
	removing, fair bool
}

type server struct {
	paused, down, old bool
	trials            []trial
}

// world is a state of everything.
type world struct {
	now     time.Time
	without rule
	budget  int8
	stalled bool
	// failed says that a server was paused, or shut down, or that a lease has ended.
	failed    bool
	processes []process
	servers   []server
	notices   []notice
	// announced is for how long yet the removal of each process is announced, taken how long each slot
	// that was taken is.
	announced []int8
	taken     []int8
	broken    string
}

func newWorld(processes, servers int, without rule, budget int8) *world {
	w := &world{now: time.Unix(1000, 0), without: without, budget: budget, announced: make([]int8, processes)}
	w.servers = make([]server, servers)
	for i := range processes {
		// Half of them at each server, their renewals at different times.
		w.processes = append(w.processes, process{
			alive: true, record: true, renewed: int8(i), sent: int8(i), at: int8(i % servers), open: 1, token: 1, believes: true, reopened: longAgo,
		})
	}
	return w
}

func (w *world) clone() *world {
	c := *w
	c.processes, c.notices = slices.Clone(w.processes), slices.Clone(w.notices)
	c.announced, c.taken = slices.Clone(w.announced), slices.Clone(w.taken)
	c.servers = slices.Clone(w.servers)
	for i := range c.servers {
		c.servers[i].trials = slices.Clone(c.servers[i].trials)
	}
	return &c
}

// running returns a server that answers the process; -1: none.
func (w *world) running(p *process) int8 {
	if p.blocked {
		return -1
	}
	for i, s := range w.servers {
		if !s.paused && !s.down {
			return int8(i)
		}
	}
	return -1
}

// end is the end of the presence that a server has of a process. hears says that the server hears
// of it now.
func (w *world) end(server, who, open int8, why cause, hears bool) {
	if !hears {
		w.notices = append(w.notices, notice{server, who, open, why})
		return
	}
	s := &w.servers[server]
	if s.down || s.old || why == byServer && w.without != serverEnds && w.without != ownWatch {
		return
	}
	s.trials = append(s.trials, trial{process: who, open: open, why: why, q: *New(w.limits(), w.now)})
}

func (w *world) limits() Limits {
	l := modelLimits
	if w.without == overdue {
		l.Overdue = -time.Hour
	}
	return l
}

// judge lets a server go on with its inquests.
func (w *world) judge(server int) {
	s := &w.servers[server]
	if s.paused || s.down {
		return
	}
	var left []trial
	for _, t := range s.trials {
		if !t.removing && !t.waiting && !w.now.Before(t.q.Due()) {
			now := w.now
			if w.without == lateTimers {
				now = t.q.Due()
			}
			verdict := t.q.Fire(now)
			if verdict.Left() {
				continue
			}
			t.asked, t.waiting = w.now, verdict == Ask
		}
		if t.waiting && !w.stalled {
			t.waiting = false
			asked := t.asked
			if w.without == slowEtcd {
				asked = w.now
			}
			verdict := t.q.Hear(asked, w.now, w.answer(t))
			if verdict.Left() {
				continue
			}
			if verdict == Announce {
				w.announced[t.process] = announcedTicks
			}
			p := &w.processes[t.process]
			t.removing, t.fair = verdict == Remove, p.missed && p.unable >= window-1
		}
		left = append(left, t)
	}
	s.trials = left
}

// answer is etcd's, of the presence that the inquest is into.
func (w *world) answer(t trial) Answer {
	p := &w.processes[t.process]
	a := Answer{Newest: p.record && (p.token == t.open || w.without == newestWins), Granted: leaseTicks * int64(tick) / int64(time.Second)}
	a.Remaining = int64((leaseTicks - int64(p.renewed)) * int64(tick) / int64(time.Second))
	since := int8(w.now.Sub(t.q.noticed.Add(-modelLimits.Gather)) / tick)
	for i, other := range w.processes {
		if i != int(t.process) && (other.reopened <= since && w.without != reopens || w.announced[i] > 0 && w.without != announces) {
			a.Several = true
		}
	}
	switch w.without {
	case renewedKeeps:
		a.Remaining = 0
	case roundedDown:
		a.Remaining--
	}
	return a
}

// remove carries out what was decided a tick ago.
func (w *world) remove() {
	if w.stalled {
		return
	}
	for i := range w.servers {
		s := &w.servers[i]
		if s.paused || s.down {
			continue
		}
		var left []trial
		for _, t := range s.trials {
			if !t.removing {
				left = append(left, t)
			} else if refused := w.removeRecord(t); refused && !t.q.Unanswered(w.now).Left() {
				t.removing = false
				left = append(left, t)
			}
		}
		s.trials = left
	}
}

// removeRecord removes a record, if there is a place for that. refused says that it is not as it
// was found.
func (w *world) removeRecord(t trial) (refused bool) {
	p := &w.processes[t.process]
	if !p.record || p.token != t.open && w.without != compares && w.without != newestWins {
		return true
	}
	for other, lasts := range w.announced {
		if other != int(t.process) && lasts > 0 && w.without != announces {
			return true
		}
	}
	if free := max(1, len(w.processes)/4) - len(w.taken); free <= 0 && w.without != slots {
		return false
	}
	p.record = false
	w.taken = append(w.taken, leaseTicks)
	switch {
	case len(w.taken) > max(1, len(w.processes)/4):
		w.broken = "more than a quarter of the ring was removed within a lease"
	case !p.alive:
	// What a server knew of others is lost with it, and what has no record has no inquest.
	case t.why != cut && !(t.why == mass && w.failed):
		w.broken = "a healthy instance was removed whose presence did not end alone"
	case p.token != t.open:
		w.broken = "a healthy instance was removed that has a newer presence"
	case !t.fair:
		w.broken = "a healthy instance was removed that could have renewed"
	}
	return false
}

// live lets a process do what it does in a tick.
func (w *world) live(who int) {
	p := &w.processes[who]
	if !p.alive || p.starved || !p.record {
		return
	}
	server := w.running(p)
	alone := p.at < 0
	hurries := alone && w.without != reacts && (p.alone < hurryTicks || p.sent >= lackingTicks && w.without != persists)
	if p.sent >= period || hurries {
		p.sent = 0
		if server < 0 {
			// An error is tried again soon, and what hangs gets through at last.
			p.sent = period - 1
			if w.without == ownTransport && p.at >= 0 {
				w.end(p.at, int8(who), p.open, onPurpose, true)
				p.lose()
			}
		} else if w.stalled {
			p.waiting = true
		} else {
			p.renew()
		}
	}
	if alone && !p.hangs && server >= 0 && !w.stalled && (w.without != reacts || p.sent == 0) {
		w.opening(who, server)
		p.reopened = 0
	}
}

// present says whether the process has a presence, for all it and its server know.
func (p *process) present() bool { return p.alive && p.record && p.at >= 0 && !p.deaf }

func (w *world) present() (n int) {
	for _, p := range w.processes {
		if p.present() && !w.servers[p.at].old {
			n++
		}
	}
	return n
}

func (p *process) renew() { p.renewed, p.waiting, p.missed = 0, false, false }

// idle says that no record can be removed any more.
func (w *world) idle() bool {
	return w.budget == 0 && len(w.notices) == 0 && !slices.ContainsFunc(w.servers, func(s server) bool { return len(s.trials) > 0 })
}

// lose has the process know that it has no presence.
func (p *process) lose() { p.at, p.believes, p.deaf, p.alone, p.hangs = -1, false, false, 0, false }

func (w *world) opening(who int, server int8) {
	p := &w.processes[who]
	s := &w.servers[server]
	p.at, p.open, p.deaf, p.alone, p.hangs = server, max(p.open, p.token)+1, false, 0, false
	p.believes = !s.old || w.without == saysSo
	if !s.old {
		p.token = p.open
	} else if p.believes {
		w.broken = "a process takes a server for one that tracks presences"
	}
}

// pass lets a tick pass. first says whether servers come before processes in it.
func (w *world) pass(first bool) {
	w.now = w.now.Add(tick)
	for i := range w.processes {
		p := &w.processes[i]
		p.renewed, p.sent = min(p.renewed+1, leaseTicks), min(p.sent+1, period)
		p.reopened = min(p.reopened+1, longAgo)
		if p.at < 0 {
			p.alone = min(p.alone+1, hurryTicks)
		}
		if p.record && p.renewed >= leaseTicks {
			p.record, w.failed = false, true
		}
	}
	w.remove()
	for _, servers := range []bool{first, !first} {
		if servers {
			for i := range w.servers {
				w.judge(i)
			}
			continue
		}
		for i := range w.processes {
			w.live(i)
		}
	}
	for i := range w.processes {
		p := &w.processes[i]
		if !w.stalled && p.waiting {
			p.renew()
		}
		switch {
		case p.blocked || p.starved || p.deaf:
			p.unable = min(p.unable+1, window)
			p.missed = p.missed || p.blocked || p.starved
		case !w.stalled && w.running(p) >= 0:
			p.unable = 0
		}
		w.announced[i] = max(0, w.announced[i]-1)
	}
	for i := range w.taken {
		w.taken[i]--
	}
	w.taken = slices.DeleteFunc(w.taken, func(lasts int8) bool { return lasts <= 0 })
}
