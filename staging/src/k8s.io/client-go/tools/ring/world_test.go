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
	"encoding/binary"
	"fmt"
	"math/bits"
	"strings"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
)

// This file is the world that the exploration drives the Machine in: a registry
// with its log, up to three processes that read it at their own pace, their
// caches, gates and requests, and everything that can go wrong with them. A state
// is a value: copied, it is a world of its own, which shares with the other what
// neither changes.

// rules are what keeps keys apart. The exploration holds with all of them and must
// fail without any one.
type rules struct {
	// drain: a donor waits for its work to end before it grants.
	drain bool
	// grantRevision: a gate opens only when the caches hold what was written before the grant.
	grantRevision bool
	// precondition: a write is refused if its record has changed since it was decided on.
	precondition bool
	// selfFence: a gate is shut before the lease ends.
	selfFence bool
	// serverFence: a request of an instance that does not own the key is refused.
	serverFence bool
	// death: a successor takes over when a record has gone, not when its owner is silent.
	death bool
}

var allRules = rules{drain: true, grantRevision: true, precondition: true, selfFence: true, serverFence: true, death: true}

// violation is what a state must not be.
type violation struct {
	invariant invariant
	text      string
}

func (v *violation) Error() string { return v.text }

type invariant byte

const (
	// oneWorker: no key has two workers. A worker is a process with an open gate that
	// is confident, or with work under way, or a request of one that can still take effect.
	oneWorker invariant = 1 << iota
	// ownerWorks: a process works only on what the registry says is its own.
	ownerWorks
	// cachesTell: it works only with caches that hold what others have done there before.
	cachesTell
	// rest: once faults stop, every key is worked on and no handover stays open.
	rest

	allInvariants = oneWorker | ownerWorks | cachesTell | rest
)

// cellSet is a set of keys. The line of hash keys is cut into eight cells, each of
// which stands for one key.
type cellSet uint8

const (
	cells    = 8
	allCells = cellSet(1<<cells - 1)
	cellBits = 60
)

// cellKey is the last key of a cell, at which boundaries lie.
func cellKey(cell int) int64 { return int64(uint64(cell+1)<<cellBits - 1) }

var rangesOfCells = func() (out [1 << cells]hashkey.Ranges) {
	for set := range out {
		var parts []hashkey.Range
		for cell := range cells {
			if set&(1<<cell) != 0 {
				parts = append(parts, hashkey.Range{Start: uint64(cell) << cellBits, End: uint64(cell+1) << cellBits})
			}
		}
		out[set] = hashkey.NewRanges(parts...)
	}
	return out
}()

func (c cellSet) ranges() hashkey.Ranges { return rangesOfCells[c] }

func (c cellSet) covers(other cellSet) bool { return other&^c == 0 }

// String lists the cells, such as 0-3,7.
func (c cellSet) String() string {
	if c == 0 {
		return "nothing"
	}
	var parts []string
	for from := 0; from < cells; from++ {
		to := from
		for to < cells && c&(1<<to) != 0 {
			to++
		}
		switch {
		case to == from+1:
			parts = append(parts, fmt.Sprint(from))
		case to > from:
			parts = append(parts, fmt.Sprintf("%d-%d", from, to-1))
		}
		from = max(from, to-1)
	}
	return strings.Join(parts, ",")
}

const aligned = uint64(1)<<cellBits - 1

func cellsOf(rs hashkey.Ranges) cellSet {
	var set cellSet
	for _, r := range rs {
		if (r.Start|r.End)&aligned != 0 {
			panic(fmt.Sprintf("%v cuts a cell", rs))
		}
		set |= cellSet(1<<(r.End>>cellBits)-1) &^ cellSet(1<<(r.Start>>cellBits)-1)
	}
	return set
}

// cellOfKey is the cell that ends at the key, -1 for no key.
func cellOfKey(key *int64) int {
	if key == nil {
		return -1
	}
	return int(uint64(*key) >> cellBits)
}

const (
	// maxAlive processes run at a time. One more has a place, so that one can start
	// before the record of another that has crashed is gone.
	maxAlive = 3
	places   = maxAlive + 1
	step     = time.Second
)

type state struct {
	rules *rules
	// invariants are those that are checked.
	invariants invariant
	// trace takes what happens, for people; usually nil.
	trace *[]string

	// head is the registry. log holds the events that some process has not read.
	head *View
	log  []*logEntry
	// proc are the processes; a copy is made of one that changes. A place may be free.
	proc [places]*process
	// fresh holds, for each process, the keys of which its caches hold all that
	// others have done.
	fresh [places]cellSet
	// started counts the processes ever started, and so names the next.
	started byte
	budget
}

// budget is how often things may happen on the way from here that would otherwise
// happen without end.
type budget struct {
	starts, moves, leaves, faults byte
}

type logEntry struct {
	record  Record
	deleted bool
}

// process is an instance: a machine and what a driver and a controller add to it.
// One that is not up has ended and has left something behind.
type process struct {
	name    string
	up      bool
	machine Machine
	read    int64
	now     time.Duration
	leaving bool
	// lapsed says that no renewal got through in time: the gate's deadline has passed.
	lapsed bool
	// undecided says that something has happened since the last decision.
	undecided bool
	wakes     bool

	// serving is what the gate is open for, busy what is still in work behind a shut
	// gate, and stray what a request is on its way for of which the process knows
	// nothing any more.
	serving, busy, stray cellSet
	// follow, held and heldAt are the caches.
	follow, held cellSet
	heldAt       int64

	phase shardingv1alpha1.InstancePhase
	owned cellSet

	// flying is a write whose answer is waited for, late one whose answer is not.
	// settled is the log's revision that the next write waits for.
	flying, late Write
	settled      int64
}

func (w *Write) sent() bool { return w.Reason != "" }

func (s *state) note(format string, args ...any) {
	if s.trace != nil {
		*s.trace = append(*s.trace, "    "+fmt.Sprintf(format, args...))
	}
}

func (s *state) base() int64 { return s.head.Revision - int64(len(s.log)) }

// add appends to the log. The log is shared with other states, so it is copied.
func (s *state) add(e *logEntry) {
	log := make([]*logEntry, len(s.log)+1)
	copy(log, s.log)
	log[len(s.log)] = e
	s.log = log
}

func (s *state) put(r Record) {
	r.Revision = s.head.Revision + 1
	next := s.head.With(r)
	next.Revision = r.Revision
	s.head = next
	s.add(&logEntry{record: r})
}

func (s *state) remove(name string) {
	r, _ := s.head.Get(name)
	next := *s.head.Without(name)
	next.Revision++
	r.Revision = next.Revision
	s.head = &next
	s.add(&logEntry{record: r, deleted: true})
}

func (s *state) registered(p *process) bool {
	_, ok := s.head.Get(p.name)
	return ok
}

func (s *state) alive() int {
	n := 0
	for _, p := range s.proc {
		if p != nil && p.up {
			n++
		}
	}
	return n
}

// change returns a process that may be changed.
func (s *state) change(i int) *process {
	p := *s.proc[i]
	s.proc[i] = &p
	return &p
}

// clean forgets what can have no effect any more, so that states that differ in
// nothing else are one.
func (s *state) clean() {
	oldest := s.head.Revision
	for i, p := range s.proc {
		if p == nil {
			continue
		}
		if p.late.sent() && !s.applies(&p.late) {
			p = s.change(i)
			p.late = Write{}
		}
		registered := s.registered(p)
		if p.stray != 0 && s.rules.serverFence && !registered {
			p = s.change(i)
			p.stray = 0
		}
		if p.up {
			oldest = min(oldest, p.read)
		} else if !registered && !p.late.sent() && p.stray == 0 {
			s.proc[i] = nil
		}
	}
	s.log = s.log[oldest-s.base():]
}

// applies says whether the registry would take that write now.
func (s *state) applies(w *Write) bool {
	r, ok := s.head.Get(w.Name)
	return ok && r.UID == w.UID && (w.Delete || r.Revision == w.Revision || !s.rules.precondition)
}

func (s *state) land(w *Write) {
	if w.Delete {
		s.remove(w.Name)
	} else {
		r, _ := s.head.Get(w.Name)
		r.Key, r.Next, r.Donor = w.Key, w.Next, w.Donor
		s.put(r)
	}
	s.note("%s; the ring is now %s", describeWrite(w), describeRing(s.head))
}

// start registers a new process.
func (s *state) start() {
	for i := range s.proc {
		if s.proc[i] != nil {
			continue
		}
		name := string('a' + s.started)
		s.started++
		s.put(Record{Name: name, UID: types.UID(name), Phase: shardingv1alpha1.InstanceInit})
		s.proc[i] = &process{
			name: name, up: true, read: s.head.Revision, phase: shardingv1alpha1.InstanceInit,
			machine: *NewMachine(name, s.head, Limits{Step: step, Leave: step}),
		}
		s.fresh[i] = 0
		s.note("%s registers", name)
		s.decide(i)
		return
	}
	panic("no place for another process")
}

// decide runs the machine of a process that may be changed, and carries out what
// it says as term.decide does.
func (s *state) decide(i int) {
	p := s.proc[i]
	p.undecided = false
	for {
		d := p.machine.Decide(Input{
			Now:     p.now,
			Leaving: p.leaving,
			Serving: p.serving.ranges(),
			Idle: func(r hashkey.Ranges) bool {
				return !s.rules.drain || (p.serving|p.busy)&cellsOf(r) == 0
			},
			Keys: func(r hashkey.Ranges) []int64 {
				var keys []int64
				for cell := range cells {
					if r.Contains(cellKey(cell)) {
						keys = append(keys, cellKey(cell))
					}
				}
				return keys
			},
		})
		if d.Gone {
			s.note("%s finds its record gone", p.name)
			s.end(p)
			return
		}
		open := cellsOf(d.Open)
		if shut := p.serving &^ open; shut != 0 {
			p.serving &= open
			p.busy |= shut
			s.note("%s shuts its gate for %v", p.name, shut)
		}
		p.follow = cellsOf(d.Follow)
		p.held &= p.follow
		s.fresh[i] &= p.held
		opened := false
		if gain := open &^ p.serving; gain != 0 && p.held.covers(gain) && (p.heldAt >= d.Since || !s.rules.grantRevision) {
			p.serving |= gain
			p.busy &^= gain
			opened = true
			s.note("%s opens its gate for %v", p.name, gain)
		}
		p.phase, p.owned, p.wakes = d.Phase, cellsOf(d.Owned), d.Wake != 0
		if w := d.Write; w != nil && !p.flying.sent() && p.machine.View().Revision >= p.settled && (w.Next == nil || uint64(*w.Next)&aligned == aligned) {
			p.flying = *w
			s.note("%s sends: %s", p.name, describeWrite(w))
		}
		if !opened {
			return
		}
	}
}

// end is the end of a process; what it has sent lives on.
func (s *state) end(p *process) {
	p.stray |= p.serving | p.busy
	if p.flying.sent() {
		p.late = p.flying
	}
	*p = process{name: p.name, stray: p.stray, late: p.late}
}

// confident says whether the process's requests leave it.
func (s *state) confident(p *process) bool {
	return p.up && (!p.lapsed || !s.rules.selfFence)
}

// working returns the keys that the process works on now, and those for which a
// stray request of it can still take effect.
func (s *state) working(p *process) (now, stray cellSet) {
	if s.confident(p) {
		now = p.serving | p.busy
	}
	stray = p.stray
	if stray != 0 && s.rules.serverFence {
		stray &= cellsOf(s.head.Owned(p.name))
	}
	return now, stray
}

// check returns what is wrong with the state, after it has updated what it needs
// to know for that.
func (s *state) check() *violation {
	var now, stray [places]cellSet
	for i, p := range s.proc {
		if p != nil {
			now[i], stray[i] = s.working(p)
		}
	}
	for i, p := range s.proc {
		if p == nil {
			continue
		}
		for j, q := range s.proc {
			if q == nil || i == j {
				continue
			}
			s.fresh[i] &^= now[j] | stray[j]
			if both := now[i] & now[j]; both != 0 && i < j && s.invariants&oneWorker != 0 {
				return s.violates(oneWorker, "%s and %s both work on %v", p.name, q.name, both)
			}
			if both := now[i] & stray[j]; both != 0 && s.invariants&oneWorker != 0 {
				return s.violates(oneWorker, "%s works on %v, and a request of %s takes effect there", p.name, both, q.name)
			}
		}
		if now[i] == 0 {
			continue
		}
		if foreign := now[i] &^ cellsOf(s.head.Owned(p.name)); foreign != 0 && s.invariants&ownerWorks != 0 {
			return s.violates(ownerWorks, "%s works on %v, which it does not own", p.name, foreign)
		}
		if unseen := now[i] & p.serving &^ s.fresh[i]; unseen != 0 && s.invariants&cachesTell != 0 {
			return s.violates(cachesTell, "%s works on %v, and its caches lack what others have done there", p.name, unseen)
		}
	}
	return nil
}

func (s *state) violates(i invariant, format string, args ...any) *violation {
	return &violation{i, fmt.Sprintf(format, args...)}
}

// action is something that can happen.
type action struct {
	kind actionKind
	proc byte
	arg  byte
}

type actionKind byte

const (
	deliver    actionKind = iota // arg events of the log are read, then a decision is made
	decide                       // a decision is made
	report                       // a heartbeat says something new
	fill                         // the caches hold all that is followed, as of now
	finish                       // work behind the shut gate ends
	land                         // a write arrives, and so does its answer
	landLate                     // a write arrives whose answer nobody waits for
	renew                        // a renewal gets through after the gate's deadline
	expire                       // the lease ends
	start                        // a process starts
	leave                        // the process is asked to terminate
	move                         // an administrator writes nextHashKey: the end of cell arg; cells: takes it back
	crash                        // fault: the process dies
	lapse                        // fault: no renewal gets through until the gate's deadline
	loseAnswer                   // fault: a write arrives, its answer does not
	loseWrite                    // fault: no answer, and the write may arrive later
	loseWork                     // fault: work ends in an error, and its request may arrive later
	stall                        // fault: a step's time limit passes
	gap                          // fault: the watch ends, the registry is listed
	suspect                      // a process takes process arg for dead because it is silent
)

// actions appends all that can happen now.
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
		add(p.late.sent(), landLate, 0)
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
		add(registered && s.stale(p, r), report, 0)
		add(p.held != p.follow || p.heldAt < p.machine.gainedAt, fill, 0)
		add(p.busy != 0, finish, 0)
		add(p.flying.sent(), land, 0)
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
		add(p.flying.sent() && s.applies(&p.flying), loseAnswer, 0)
		add(p.flying.sent() && s.applies(&p.flying) && !p.late.sent(), loseWrite, 0)
		add(p.busy != 0, loseWork, 0)
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

// stale says whether the record lacks what its process would report.
func (s *state) stale(p *process, r Record) bool {
	return r.Phase != p.phase || cellsOf(r.Cached) != p.held || r.Workloads != int64(bits.OnesCount8(uint8(p.owned)))
}

// do lets an action happen.
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
				p.machine.Remove(e.record.Name, p.read)
			} else {
				p.machine.Apply(e.record)
			}
		}
		s.decide(i)
	case decide:
		s.decide(i)
	case report:
		r, _ := s.head.Get(p.name)
		r.Phase, r.Cached, r.Workloads = p.phase, p.held.ranges(), int64(bits.OnesCount8(uint8(p.owned)))
		s.put(r)
	case fill:
		p.held, p.heldAt, s.fresh[i] = p.follow, s.head.Revision, p.follow
		s.decide(i)
	case finish:
		p.busy = 0
		s.decide(i)
	case land:
		w := p.flying
		p.flying, p.undecided = Write{}, true
		if !s.applies(&w) {
			s.note("refused: the record has changed")
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
	case stall:
		p.now += step
		s.decide(i)
	case gap:
		p.machine.Replace(s.head)
		p.read = s.head.Revision
		s.decide(i)
	case suspect:
		p.machine.Remove(s.proc[a.arg].name, p.machine.View().Revision)
		s.decide(i)
	}
	s.clean()
}

// encode writes the state so that two states have one encoding if and only if
// they can go on in the same ways.
func (s *state) encode(b []byte) []byte {
	b = append(b, s.started, s.starts, s.moves, s.leaves, s.faults)
	// The registry as the slowest reader knows it, and what has happened since:
	// whatever any process knows is on that way.
	base := s.head
	for _, p := range s.proc {
		if p != nil && p.up && p.read == s.base() {
			base = p.machine.View()
			break
		}
	}
	b = append(b, byte(len(base.records)), byte(len(s.log)))
	for i := range base.records {
		b = encodeRecord(b, &base.records[i])
	}
	for _, e := range s.log {
		b = append(b, flag(e.deleted))
		b = encodeRecord(b, &e.record)
	}
	for i, p := range s.proc {
		if p == nil {
			b = append(b, 0)
			continue
		}
		b = append(b, p.name[0], flag(p.up), byte(p.stray))
		b = s.encodeWrite(b, &p.late)
		if !p.up {
			continue
		}
		b = s.encodeWrite(b, &p.flying)
		b = append(b, flag(p.leaving)|flag(p.lapsed)<<1|flag(p.undecided)<<2|flag(p.wakes)<<3|flag(p.heldAt >= p.machine.gainedAt)<<4,
			byte(p.read-s.base()), byte(max(0, p.settled-p.read)), byte(max(0, p.heldAt-p.read)),
			byte(p.serving), byte(p.busy), byte(p.follow), byte(p.held), byte(s.fresh[i]), byte(p.owned), phaseByte(p.phase))
		m := &p.machine
		b = append(b, byte(len(m.older)))
		for _, o := range m.older {
			b = append(b, o.Name[0])
		}
		if m.give == (give{}) {
			b = append(b, 0)
		} else {
			b = append(b, m.give.record.Name[0], byte(cellOfKey(&m.give.key)), p.since(m.give.since), flag(m.give.draining))
			if m.give.draining {
				b = append(b, p.since(m.give.drainingSince))
			}
		}
		if m.wait == (waiting{}) {
			b = append(b, 0)
		} else {
			b = append(b, 1, nameByte(m.wait.peer), flag(m.wait.named), byte(cellOfKey(&m.wait.key)), p.since(m.wait.since))
		}
		if m.leave.begun {
			b = append(b, 1, p.since(m.leave.since), flag(m.leave.shut))
		} else {
			b = append(b, 0)
		}
	}
	return b
}

// since is how many time limits have passed; the longest that counts is of three.
func (p *process) since(t time.Duration) byte { return byte(min(int((p.now-t)/step), 3)) }

func phaseByte(phase shardingv1alpha1.InstancePhase) byte {
	if phase == "" {
		return 0
	}
	return phase[0]
}

func nameByte(name string) byte {
	if name == "" {
		return 0
	}
	return name[0]
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func encodeRecord(b []byte, r *Record) []byte {
	return append(b, r.Name[0], byte(cellOfKey(r.Key)), byte(cellOfKey(r.Next)), nameByte(r.Donor), phaseByte(r.Phase), byte(cellsOf(r.Cached)), byte(r.Workloads))
}

// encodeWrite leaves out what a write says that can only be refused.
func (s *state) encodeWrite(b []byte, w *Write) []byte {
	switch {
	case !w.sent():
		return append(b, 0)
	case !s.applies(w):
		return append(b, 1)
	}
	return append(b, 2+flag(w.Delete), w.Name[0], byte(cellOfKey(w.Key)), byte(cellOfKey(w.Next)), nameByte(w.Donor))
}

// hash is of 128 bits: two states that differ share one with a probability below
// 1e-24 for a hundred million states.
func hash(b []byte) [2]uint64 {
	for len(b)%8 != 0 {
		b = append(b, 0xff)
	}
	h, g := uint64(0x9e3779b97f4a7c15), uint64(0xc2b2ae3d27d4eb4f)
	for ; len(b) > 0; b = b[8:] {
		word := binary.LittleEndian.Uint64(b)
		hi, lo := bits.Mul64(h^word, 0xa0761d6478bd642f)
		h = hi ^ lo ^ g
		hi, lo = bits.Mul64(g^bits.RotateLeft64(word, 29), 0xe7037ed1a0b428db)
		g = hi ^ lo ^ h
	}
	return [2]uint64{h, g}
}

// settle lets everything but faults go on until nothing happens any more, and
// returns what is wrong then. It calls visit, if any, after each action, and stops
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
				s.note("%s has waited for as long as a step may take", p.name)
				s.decide(i)
				s.clean()
			}
		}
		if !happened {
			break
		}
	}
	var served cellSet
	alive := 0
	for _, p := range s.proc {
		if p == nil || !p.up {
			continue
		}
		alive++
		served |= p.serving
		r, ok := s.head.Get(p.name)
		if !ok || r.Next != nil || r.Phase != shardingv1alpha1.InstanceActive || p.serving != p.owned || p.busy != 0 {
			return s.violates(rest, "at rest %s is %s, its gate open for %v, its next key the end of %d", p.name, r.Phase, p.serving, cellOfKey(r.Next))
		}
	}
	if alive > 0 && served != allCells {
		return s.violates(rest, "at rest nobody works on %v", allCells&^served)
	}
	return nil
}

// next says whether an action of that kind can happen now; it reads all of the log
// at once.
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
		return p.up && registered && s.stale(p, r)
	case fill:
		return p.up && (p.held != p.follow || p.heldAt < p.machine.gainedAt)
	case finish:
		return p.busy != 0
	case land:
		return p.flying.sent()
	case landLate:
		return p.late.sent()
	case renew:
		return p.up && p.lapsed && registered
	case expire:
		return registered && !p.up
	}
	return false
}

// The rest is for people.

func (s *state) describe(a action) string {
	if a.kind == start {
		return "a process starts"
	}
	name := s.proc[a.proc].name
	switch a.kind {
	case deliver:
		return fmt.Sprintf("%s reads %d of %d new events of the log", name, a.arg, s.head.Revision-s.proc[a.proc].read)
	case move:
		if a.arg == cells {
			return "an administrator takes back nextHashKey of " + name
		}
		return fmt.Sprintf("an administrator writes nextHashKey of %s: the end of %d", name, a.arg)
	case suspect:
		return fmt.Sprintf("%s takes %s for dead", name, s.proc[a.arg].name)
	}
	return name + ": " + [...]string{
		decide:     "decides again",
		report:     "a heartbeat reports its phase and caches",
		fill:       "its caches hold all they follow, as of now",
		finish:     "its work behind the shut gate ends",
		land:       "its write arrives",
		landLate:   "its late write arrives",
		renew:      "a renewal gets through again",
		expire:     "its lease ends, its record is gone",
		leave:      "is asked to terminate",
		crash:      "crashes",
		lapse:      "no renewal gets through, the gate's deadline passes; requests may be on their way",
		loseAnswer: "its write arrives, the answer is lost",
		loseWrite:  "no answer to its write, which may still arrive",
		loseWork:   "its work behind the shut gate ends in errors; requests may still be on their way",
		stall:      "waits in vain for as long as a step may take",
		gap:        "its watch ends, it lists the registry",
	}[a.kind]
}

func describeWrite(w *Write) string {
	if w.Delete {
		return fmt.Sprintf("%s, delete %s", w.Reason, w.Name)
	}
	show := func(key *int64) string {
		if key == nil {
			return "none"
		}
		return fmt.Sprintf("end of %d", cellOfKey(key))
	}
	return fmt.Sprintf("%s, %s: key %s, next key %s, donor %q", w.Reason, w.Name, show(w.Key), show(w.Next), w.Donor)
}

func describeRing(v *View) string {
	if len(v.Ring()) == 0 {
		return "empty"
	}
	var parts []string
	for _, r := range v.Ring() {
		parts = append(parts, fmt.Sprintf("%s %v", r.Name, cellsOf(v.Owned(r.Name))))
	}
	return strings.Join(parts, ", ")
}
