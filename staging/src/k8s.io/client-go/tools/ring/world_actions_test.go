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

// action is something that can happen.
type action struct {
	kind actionKind
	proc byte
	arg  byte
}

type actionKind byte

const (
	deliver    actionKind = iota // the process reads arg events of the log and decides
	decide                       // it decides
	report                       // it reports a phase or caches that have changed
	fill                         // its caches become complete as of now
	refresh                      // they become so for what they hold already
	finish                       // its work behind the shut gate ends
	land                         // its write arrives, and the answer comes back
	landLate                     // a write arrives on whose answer it has given up
	tell                         // the write of its report arrives, and the answer comes back
	tellLate                     // one arrives on whose answer it has given up
	renew                        // it renews its lease again, after the gate's deadline
	expire                       // its lease ends, and its record goes
	start                        // a process starts
	leave                        // it is asked to terminate
	move                         // an administrator writes nextHashKey, the end of cell arg; arg == cells: takes it back
	drain                        // an administrator drains it
	crash                        // fault: it dies
	lapse                        // fault: it cannot renew until the gate's deadline passes
	loseAnswer                   // fault: its write arrives, the answer is lost
	loseWrite                    // fault: no answer comes; the write may still arrive
	loseWork                     // fault: its work ends in an error; the request may still arrive
	cut                          // fault: its connection is cut; what it does behind the open gate may still arrive
	loseTold                     // fault: the write of its report arrives, the answer is lost
	loseNews                     // fault: no answer comes to the write of its report, which may still arrive
	stall                        // fault: a time limit passes
	gap                          // fault: its watch ends, and it lists the registry
	suspect                      // it takes process arg for dead because that is silent
)

// actions appends every action that can happen now.
func (s *state) actions(out []action) []action {
	fault := s.faults > 0
	for i, p := range s.proc {
		if p == nil {
			continue
		}
		add := func(enabled bool, kind actionKind, arg byte) {
			if enabled {
				out = append(out, action{kind, byte(i), arg})
			}
		}
		r, registered := s.head.Get(p.name)
		add(p.late.sent() && s.applies(p, &p.late), landLate, 0)
		add(p.lateNews.sent, tellLate, 0)
		add(registered && (!p.up || p.lapsed || !s.rules.selfFence && fault), expire, 0)
		if registered && r.Key != nil && s.moves > 0 {
			for cell := range cells {
				add(cell != cellOfKey(r.Key) && cell != cellOfKey(r.Next), move, byte(cell))
			}
			add(r.Next != nil, move, cells)
		}
		if !p.up {
			continue
		}
		for n := s.head.Revision - p.read; n > 0; n-- {
			add(true, deliver, byte(n))
		}
		add(p.undecided, decide, 0)
		add(registered && !p.news.sent && s.stale(p, r), report, 0)
		add(p.held != p.follow || p.heldAt < p.machine.gainedAt, fill, 0)
		add(p.held&^p.serving != 0 && p.held != p.follow && p.heldAt < p.machine.gainedAt, refresh, 0)
		add(p.busy != 0, finish, 0)
		add(p.flying.sent(), land, 0)
		add(p.news.sent, tell, 0)
		add(p.lapsed && registered, renew, 0)
		add(!p.leaving && s.leaves > 0, leave, 0)
		if !s.rules.death {
			for j, q := range s.proc {
				if q != nil && i != j && q.up && q.lapsed {
					_, known := p.machine.View().Get(q.name)
					add(known, suspect, byte(j))
				}
			}
		}
		if !fault {
			continue
		}
		add(!p.lapsed && registered, lapse, 0)
		add(true, crash, 0)
		add(p.flying.sent() && s.applies(p, &p.flying), loseAnswer, 0)
		add(p.flying.sent() && s.mayApply(p, &p.flying) && !p.late.sent(), loseWrite, 0)
		add(p.busy != 0, loseWork, 0)
		add(p.serving&^p.stray != 0, cut, 0)
		add(p.news.sent && s.stores(p, &p.news), loseTold, 0)
		add(p.news.sent && s.stores(p, &p.news) && !p.lateNews.sent, loseNews, 0)
		add(p.wakes, stall, 0)
		add(p.read < s.head.Revision, gap, 0)
	}
	if s.starts > 0 && s.alive() < maxAlive {
		for i := range s.proc {
			if s.proc[i] == nil {
				return append(out, action{kind: start})
			}
		}
	}
	return out
}

// stale says whether the process has something new to report.
func (s *state) stale(p *process, r Record) bool {
	return r.Phase != p.phase || cellsOf(r.Cached) != p.held || r.Weight != p.weight()
}

// do carries out an action.
func (s *state) do(a action) {
	i := int(a.proc)
	var p *process
	if a.kind != start {
		p = s.change(i)
	}
	if s.trace != nil {
		*s.trace = append(*s.trace, s.describe(a))
	}
	if a.kind >= crash && a.kind <= gap {
		s.faults--
	}
	switch a.kind {
	case deliver:
		for range a.arg {
			e := s.log[p.read-s.base()]
			p.read++
			if e.deleted {
				p.decider().Remove(e.record.Name, p.read)
			} else {
				p.decider().Apply(e.record)
			}
		}
		s.decide(i)
	case decide:
		s.decide(i)
	case report:
		r, _ := s.head.Get(p.name)
		r.Phase, r.Cached, r.Weight = p.phase, p.held.ranges(), p.weight()
		s.put(r)
	case fill:
		p.held, p.heldAt, s.fresh[i] = p.follow, s.head.Revision, p.follow
		s.decide(i)
	case refresh:
		p.heldAt, s.fresh[i] = s.head.Revision, p.held
		s.decide(i)
	case finish:
		p.busy = 0
		s.decide(i)
	case land:
		w := p.flying
		p.flying, p.undecided = Write{}, true
		if !s.applies(p, &w) {
			s.note("refused")
			break
		}
		s.land(&w)
		p.settled = s.head.Revision
		if w.Delete {
			s.end(p)
		}
	case landLate:
		w := p.late
		p.late = Write{}
		s.land(&w)
	case tell:
		n := p.news
		p.news, p.undecided = news{}, true
		if !s.stores(p, &n) {
			s.note("refused: the record has changed")
			break
		}
		s.store(p, &n)
		p.reported, p.reportedAt = n.Report, s.head.Revision
	case tellLate:
		n := p.lateNews
		p.lateNews = news{}
		s.store(p, &n)
	case renew:
		p.lapsed = false
	case expire:
		if p.up && !p.lapsed {
			s.faults--
		}
		s.remove(p.name)
		s.note("the ring is now %s", describeRing(s.head))
	case start:
		s.starts--
		s.start()
	case leave:
		s.leaves--
		p.leaving = true
		s.decide(i)
	case move:
		s.moves--
		r, _ := s.head.Get(p.name)
		r.Next = nil
		if a.arg < cells {
			key := cellKey(int(a.arg))
			r.Next = &key
		}
		s.put(r)
	case drain:
		r, _ := s.head.Get(p.name)
		r.Drained = true
		s.put(r)
	case crash:
		s.end(p)
	case lapse:
		p.lapsed = true
		p.stray |= p.serving | p.busy
	case loseAnswer:
		w := p.flying
		p.flying, p.undecided = Write{}, true
		s.land(&w)
	case loseWrite:
		p.late, p.flying, p.undecided = p.flying, Write{}, true
	case loseWork:
		p.stray |= p.busy
		p.busy = 0
		s.decide(i)
	case cut:
		p.stray |= p.serving
	case loseTold:
		n := p.news
		p.news, p.undecided = news{}, true
		s.store(p, &n)
	case loseNews:
		p.lateNews, p.news, p.undecided = p.news, news{}, true
	case stall:
		p.now += step
		s.decide(i)
	case gap:
		p.decider().Replace(s.head)
		p.read = s.head.Revision
		s.decide(i)
	case suspect:
		p.decider().Remove(s.proc[a.arg].name, p.machine.View().Revision)
		s.decide(i)
	}
	s.clean()
}

// store applies news to the registry.
func (s *state) store(p *process, n *news) {
	r, _ := s.head.Get(p.name)
	r.Report, r.Weight = n.Report, n.weight
	s.put(r)
	s.note("%s: %s", p.name, describeNews(n))
}

// next says whether an action of that kind can happen now in a fair run, where a
// process reads all of the log at once.
func (s *state) next(a *action) bool {
	p := s.proc[a.proc]
	if a.kind == start {
		return p == nil && s.starts > 0 && s.alive() < maxAlive
	}
	if p == nil {
		return false
	}
	r, registered := s.head.Get(p.name)
	switch a.kind {
	case deliver:
		a.arg = byte(s.head.Revision - p.read)
		return p.up && a.arg > 0
	case decide:
		return p.up && p.undecided
	case report:
		return p.up && registered && !p.news.sent && s.stale(p, r)
	case fill:
		return p.up && (p.held != p.follow || p.heldAt < p.machine.gainedAt)
	case finish:
		return p.busy != 0
	case land:
		return p.flying.sent()
	case landLate:
		return p.late.sent() && s.applies(p, &p.late) && !s.lateHeld
	case tell:
		return p.news.sent
	case tellLate:
		return p.lateNews.sent && !s.lateHeld
	case renew:
		return p.up && p.lapsed && registered
	case expire:
		return registered && !p.up
	}
	return false
}

// settle makes one fair run without faults until nothing happens any more, and returns
// what is wrong on the way or then. It calls visit, if any, after each action, and stops
// where that returns false.
func (s *state) settle(visit func() bool) *violation {
	waits := 0
	for rounds := 0; ; rounds++ {
		if rounds > 200 {
			return s.violates(rest, "the ring does not come to rest")
		}
		happened := false
		for kind := deliver; kind <= start; kind++ {
			for i := range s.proc {
				a := action{kind: kind, proc: byte(i)}
				if !s.next(&a) {
					continue
				}
				happened = true
				s.do(a)
				if v := s.check(); v != nil {
					return v
				}
				if visit != nil && !visit() {
					return nil
				}
			}
		}
		if happened {
			continue
		}
		if waits++; waits > 20 {
			break
		}
		for i, p := range s.proc {
			if p != nil && p.up && p.wakes {
				happened = true
				s.change(i).now += step
				s.note("a time limit of %s passes", p.name)
				s.decide(i)
				s.clean()
			}
		}
		if !happened {
			break
		}
	}
	return s.checkRest()
}
