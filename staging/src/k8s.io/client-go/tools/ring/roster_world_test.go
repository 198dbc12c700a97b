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
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// This is the world in which the exploration drives the Roster: the Lease of the leader, the
// records of up to two live instances, and what they have sent. Instances come and go, and
// so do leaders, ours and stock ones. A state is a value. A copy is a world of its own, and
// shares with the original only what neither changes.
//
// What an instance has seen of the ring and of the leader is not modelled: it believes
// anything at any time, since safety must not rest on it. A candidate believes anything as
// well, so it stands with what the ring could ever leave to it. In a fair run all see what is so.
//
// An instance that is up has a record. Once that has expired or was deleted the fence refuses
// all that the instance sends, so the model has it end then.
//
// Two guarantees of upstream's are assumed: a leader has stopped its controllers before
// another gets the Lease, and nothing of it is stored later.

// rosterPlaces is one more than instances run at a time, so that one can start while the
// record of another that crashed is still there.
const rosterPlaces = 3

// rosterWorld is one state of the world.
type rosterWorld struct {
	rules *rosterRules
	// trace, if not nil, takes what happens, for people.
	trace *[]string
	// all are the controllers of the scene, enabled those that a candidate of ours runs
	// unless the ring does.
	all, enabled controllerSet

	lease leaseHolder
	// before is who held the Lease before its last change, and early says that a candidate
	// has read the records. Both stay zero while no rule that they break is switched off.
	before  leaseHolder
	early   bool
	leader  leadership
	places  [rosterPlaces]*rosterInstance
	started byte
	rosterBudget
}

// rosterBudget says how often things may still happen that could otherwise happen without
// end. What is unlimited costs nothing.
type rosterBudget struct {
	// takes are those of the Lease by candidates of ours, stock those by stock ones.
	takes, stock, starts, leaves, faults byte
}

const unlimited = 255

func spend(b *byte) {
	if *b != unlimited {
		*b--
	}
}

// controllerSet is a set of the controllers x and y.
type controllerSet byte

var rosterControllers = []string{"x", "y"}

// rosterRing is the ring of the instances.
const rosterRing = "workloads"

func (c controllerSet) names() []string {
	var names []string
	for i, name := range rosterControllers {
		if c&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

func (c controllerSet) String() string { return cmp.Or(strings.Join(c.names(), " and "), "nothing") }

func controllersOf(names []string) (c controllerSet) {
	for _, name := range names {
		c |= 1 << slices.Index(rosterControllers, name)
	}
	return c
}

// leaseHolder is who holds the Lease.
type leaseHolder struct {
	kind holderKind
	// set is what a leader of ours runs itself.
	set controllerSet
}

type holderKind byte

const (
	nobody holderKind = iota
	ours
	stock
)

// leader returns the identity that stands in the Lease.
func (h leaseHolder) leader() Leader {
	switch h.kind {
	case nobody:
		return Leader{}
	case stock:
		return Leader{"host_stock"}
	}
	return signedLeaders[h.set]
}

// signedLists has what a leader signs that runs a set, signedLeaders its identity.
var signedLists, signedLeaders = func() (lists [4][]string, leaders [4]Leader) {
	for set := range lists {
		lists[set] = []string{"*"}
		for _, c := range (3 &^ controllerSet(set)).names() {
			lists[set] = append(lists[set], "-"+c)
		}
		leaders[set] = Leader{SignLeader("host_ours", lists[set])}
	}
	return lists, leaders
}()

// runs returns the controllers that the leader may run.
func (h leaseHolder) runs() (runs controllerSet) {
	for i, c := range rosterControllers {
		if h.leader().Runs(c) {
			runs |= 1 << i
		}
	}
	return runs
}

func (h leaseHolder) String() string {
	switch h.kind {
	case nobody:
		return "nobody leads"
	case stock:
		return "a stock manager leads"
	}
	return fmt.Sprintf("a leader that runs %v itself", h.set)
}

// leadership is what the holder of the Lease does.
type leadership struct {
	// up says that it lives.
	up bool
	// clear says that it has read the records, and none said that an instance works on a
	// controller of its set.
	clear bool
	// works are the controllers that it works on, stale those where its caches lack what an
	// instance has stored.
	works, stale controllerSet
}

// rosterInstance is a Roster, with what its driver and its controllers add. One that is not
// up has ended, but its record is still there.
type rosterInstance struct {
	name  string
	lists controllerSet

	registered bool
	// record is the status that the registry holds.
	record rosterStatus
	// late is a write of it that may still arrive though the instance has given up on it.
	late rosterWrite
	// stray is, for each controller, the highest epoch of a request that may still be stored
	// though the instance has given up on it; 0: there is none.
	stray [2]int64

	up     bool
	roster *Roster
	// view and leader are what the instance believes. All that follows from them is which
	// controllers it may work on.
	view   *View
	leader *Leader
	may    controllerSet
	epoch  int64
	// says is the set that the record is to say, known what the record is known to say.
	says   controllerSet
	known  rosterStatus
	flying rosterWrite
	// reading is how far the reading of the Lease is, and answer what it has found.
	reading readStage
	answer  leaseHolder
	// before is who led before the record was created.
	before leaseHolder
	// open is what the roster wants worked on, filled where the caches are full as of a
	// moment after that decision, serving where the gate is open, and busy where work is
	// under way behind the shut gate.
	open, filled, serving, busy controllerSet
	// stale is where the caches lack what a leader has stored.
	stale controllerSet
}

type readStage byte

const (
	notReading readStage = iota
	askedToRead
	hasRead
)

// rosterStatus is the part of a status that the leader and the fence read.
type rosterStatus struct {
	working controllerSet
	epoch   int64
	// version is that of the record.
	version int64
}

// rosterWrite is a write of a status. Its version is that of the record that it changes.
type rosterWrite struct {
	sent bool
	rosterStatus
}

// stores says whether the registry would store the write.
func (w *rosterWorld) stores(p *rosterInstance, write *rosterWrite) bool {
	return write.sent && p.registered && (write.version == p.record.version || !w.rules.precondition)
}

func (w *rosterWorld) store(p *rosterInstance, write *rosterWrite) {
	p.record = rosterStatus{write.working, write.epoch, p.record.version + 1}
	w.note("the record of %s says that it works on %v, epoch %d", p.name, p.record.working, p.record.epoch)
}

// working returns the controllers that the instance works on.
func (p *rosterInstance) working() controllerSet {
	if !p.up {
		return 0
	}
	return p.serving | p.busy
}

// strays returns the controllers for which a request that the instance has given up on can
// still be stored: the transaction compares that the record is there, with no higher epoch.
func (p *rosterInstance) strays() (c controllerSet) {
	for i, epoch := range p.stray {
		if p.registered && epoch > 0 && p.record.epoch <= epoch {
			c |= 1 << i
		}
	}
	return c
}

// lose has the instance give up on its requests for these controllers.
func (p *rosterInstance) lose(c controllerSet) {
	for i := range p.stray {
		if c&(1<<i) != 0 {
			p.stray[i] = p.epoch
		}
	}
}

// records returns the records as a view.
func (w *rosterWorld) records() *View {
	var records []Record
	for _, p := range w.places {
		if p != nil && p.registered {
			records = append(records, Record{Name: p.name, Controllers: p.lists.names(), Working: p.record.working.names()})
		}
	}
	return NewView(0, records...)
}

// registry returns the records, on a ring of kube-controller-manager's.
func (w *rosterWorld) registry() Views {
	var records []Record
	for _, r := range w.records().Records() {
		r := *r
		r.Ring = rosterRing
		records = append(records, r)
	}
	return NewViews(0, records...)
}

// stand returns who leads if a candidate is elected that sees this registry, and waits for no
// record of its own.
func (w *rosterWorld) stand(registry Views) leaseHolder {
	signs, _ := w.candidate().Prepare(&registry, nil, LateLimit)
	return leaseHolder{ours, controllerSet(slices.Index(signedLeaders[:], Leader{SignLeader("host_ours", signs)}))}
}

// unfit says whether the leader's term ends if all stays as it is.
func (w *rosterWorld) unfit() bool {
	term, in := w.candidate().Term(signedLists[w.lease.set]), TermInput{Registry: w.registry(), Leads: true}
	if term.Decide(in) == (TermDecision{}) {
		return false
	}
	in.Now = ShareLimit
	return term.Decide(in).Read && term.Answer(in, true).Unfit
}

// mayBegin says whether the leader may begin all that it runs, or would begin what it must not.
func (w *rosterWorld) mayBegin() bool {
	registry := w.registry()
	now, later := w.candidate().Begin(w.lease.leader(), rosterControllers, &registry)
	return len(later) == 0 || !w.idle(controllersOf(now))
}

func (w *rosterWorld) candidate() *Candidate {
	return &Candidate{Holder: "host_ours", Listed: []string{"*"}, Enabled: w.enabled.names(), Rings: []RingControllers{{rosterRing, rosterControllers}}}
}

func (w *rosterWorld) anyRecord() bool {
	return slices.ContainsFunc(w.places[:], func(p *rosterInstance) bool { return p != nil && p.registered })
}

func (w *rosterWorld) alive() (n int) {
	for _, p := range w.places {
		if p != nil && p.up {
			n++
		}
	}
	return n
}

// elect gives the Lease to another holder. Whoever held it has stopped.
func (w *rosterWorld) elect(h leaseHolder, up bool) {
	if !w.rules.recordFirst && h != w.lease {
		w.before = w.lease
	}
	w.lease = h
	w.leader = leadership{up: up, clear: up && w.early && h.kind == ours}
	w.early = false
}

// start registers an instance that lists these controllers, in a free place.
func (w *rosterWorld) start(lists controllerSet) {
	i := slices.Index(w.places[:], nil)
	name := string('a' + rune(w.started))
	w.started++
	w.places[i] = &rosterInstance{
		name: name, lists: lists, registered: true, up: true, epoch: 1, before: w.before,
		roster: NewRoster(lists.names()), view: sharedView,
		record: rosterStatus{epoch: 1}, known: rosterStatus{epoch: 1},
	}
}

// sharedView is that of a ring whose instances list all.
var sharedView = NewView(0, Record{Name: "all", Controllers: rosterControllers})

// decide asks the roster and carries out what it says, as the driver in package member does.
func (w *rosterWorld) decide(p *rosterInstance) {
	in := RosterInput{View: p.view, Leader: p.leader}
	switch {
	case !w.rules.tellFirst:
		in.Reported = p.lists.names()
	case p.known.epoch == p.epoch || !w.rules.presentEpoch:
		in.Reported = p.known.working.names()
	}
	if w.rules.idle {
		in.Busy = (p.serving | p.busy).names()
	}
	d := p.roster.Decide(in)
	open := controllersOf(d.Open)
	if shut := p.serving &^ open; shut != 0 {
		p.serving &= open
		p.busy |= shut
		w.note("%s shuts its gate for %v", p.name, shut)
	}
	if open&^p.open != 0 {
		w.note("%s wants to work on %v", p.name, open&^p.open)
	}
	p.open = open
	p.filled &= open
	if d.Raise && w.rules.raise {
		p.epoch++
		w.note("%s raises its epoch to %d", p.name, p.epoch)
	}
	p.says = 0
	for _, s := range d.States {
		if s.Working {
			p.says |= controllersOf([]string{s.Name})
		}
	}
	if d.Read {
		p.reading = askedToRead
		w.note("%s asks who leads", p.name)
	}
}

// end ends an instance. What it has sent lives on.
func (p *rosterInstance) end() {
	p.lose(p.serving | p.busy)
	if p.flying.sent {
		p.late = p.flying
	}
	*p = rosterInstance{name: p.name, lists: p.lists, registered: p.registered, record: p.record, late: p.late, stray: p.stray}
}

// change returns an instance that may be changed.
func (w *rosterWorld) change(i int) *rosterInstance {
	p := *w.places[i]
	if p.up {
		roster := &Roster{controllers: p.roster.controllers, duties: make(map[string]*duty, len(p.roster.duties)), reading: p.roster.reading}
		for c, d := range p.roster.duties {
			copied := *d
			roster.duties[c] = &copied
		}
		p.roster = roster
	}
	w.places[i] = &p
	return &p
}

// clean drops what can have no effect any more, so that states that differ in nothing else
// become one.
func (w *rosterWorld) clean() {
	for i, p := range w.places {
		if p == nil {
			continue
		}
		strays := p.strays()
		late := w.stores(p, &p.late)
		if !p.up && !p.registered {
			w.places[i] = nil
			continue
		}
		if p.late.sent && !late || p.stray[0] > 0 && strays&1 == 0 || p.stray[1] > 0 && strays&2 == 0 {
			changed := *p
			for c := range changed.stray {
				if strays&(1<<c) == 0 {
					changed.stray[c] = 0
				}
			}
			if !late {
				changed.late = rosterWrite{}
			}
			w.places[i] = &changed
		}
	}
}

// observe notes whose caches have become stale, and returns what is wrong with the state; nil:
// nothing. It is called after every action.
func (w *rosterWorld) observe() *violation {
	for i, p := range w.places {
		if p == nil {
			continue
		}
		working, strays := p.working(), p.strays()
		if w.leader.up && (w.leader.clear || w.lease.kind == stock || !w.rules.leaderCaches) {
			w.leader.stale |= working | strays
		}
		if both := working & w.leader.works; both != 0 {
			return &violation{oneWorker, fmt.Sprintf("%s and the leader both work on %v", p.name, both)}
		}
		if both := strays & w.leader.works; both != 0 {
			return &violation{oneWorker, fmt.Sprintf("the leader works on %v, where a request of %s can still be stored", both, p.name)}
		}
		if missed := w.leader.works & p.lists; p.up && missed&^p.stale != 0 {
			changed := *p
			changed.stale |= missed
			w.places[i], p = &changed, &changed
		}
		if p.serving&p.stale != 0 {
			return &violation{cachesCurrent, fmt.Sprintf("%s works on %v, but its caches lack what a leader did there", p.name, p.serving&p.stale)}
		}
	}
	if unseen := w.leader.works & w.leader.stale; unseen != 0 {
		return &violation{cachesCurrent, fmt.Sprintf("the leader works on %v, but its caches lack what an instance did there", unseen)}
	}
	return nil
}

// checkRest returns what is wrong with a state in which nothing happens any more.
func (w *rosterWorld) checkRest() *violation {
	for i, c := range rosterControllers {
		bit := controllerSet(1 << i)
		if w.all&bit == 0 {
			continue
		}
		records, serving := 0, 0
		for _, p := range w.places {
			if p != nil && p.registered {
				records++
				if p.serving&bit != 0 {
					serving++
				}
			}
		}
		leads := w.leader.works&bit != 0
		onRing := w.lease.kind != stock && w.records().Shares(c)
		switch {
		case onRing && (leads || serving < records):
			return &violation{rest, fmt.Sprintf("%d of %d instances work on %s, which all list, and %v", serving, records, c, w.lease)}
		case !onRing && serving > 0:
			return &violation{rest, fmt.Sprintf("%d of %d instances work on %s, which not all may, and %v", serving, records, c, w.lease)}
		case !onRing && leads != (w.lease.kind == stock || w.enabled&bit != 0):
			return &violation{rest, fmt.Sprintf("the leader's working on %s is %v, and %v", c, leads, w.lease)}
		}
	}
	return nil
}

// encode appends the state's encoding. Two states have the same encoding if and only if the
// same can happen from both.
func (w *rosterWorld) encode(b []byte) []byte {
	b = append(b, byte(w.lease.kind), byte(w.lease.set), byte(w.before.runs()), flag(w.early)|flag(w.leader.up)<<1|flag(w.leader.clear)<<2,
		byte(w.leader.works), byte(w.leader.stale), w.takes, w.stock, w.starts, w.leaves, w.faults)
	for _, p := range w.places {
		if p == nil {
			b = append(b, 0)
			continue
		}
		// How high an epoch is makes no difference, only which is higher.
		epochs := []int64{0, p.epoch, p.record.epoch, p.known.epoch, p.flying.epoch, p.late.epoch, p.stray[0], p.stray[1]}
		slices.Sort(epochs)
		epochs = slices.Compact(epochs)
		rank := func(epoch int64) byte { return byte(slices.Index(epochs, epoch)) }
		status := func(s rosterStatus) { b = append(b, byte(s.working), rank(s.epoch)) }
		write := func(write *rosterWrite) {
			b = append(b, flag(write.sent)|flag(w.stores(p, write))<<1)
			if w.stores(p, write) {
				status(write.rosterStatus)
			}
		}
		b = append(b, 1, byte(p.lists), flag(p.registered)|flag(p.up)<<1, rank(p.stray[0]), rank(p.stray[1]))
		status(p.record)
		write(&p.late)
		if !p.up {
			continue
		}
		status(p.known)
		write(&p.flying)
		b = append(b, flag(p.known.version == p.record.version), rank(p.epoch), byte(p.may), byte(p.says),
			byte(p.reading), byte(p.answer.runs()), byte(p.before.runs()),
			byte(p.open), byte(p.filled), byte(p.serving), byte(p.busy), byte(p.stale), flag(p.roster.reading))
		for _, c := range p.roster.controllers {
			d := p.roster.duties[c]
			b = append(b, byte(d.stage)<<1|flag(d.read))
		}
	}
	return b
}

// note adds to the trace what follows from the action before it.
func (w *rosterWorld) note(format string, args ...any) {
	if w.trace != nil {
		*w.trace = append(*w.trace, "    "+fmt.Sprintf(format, args...))
	}
}
