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
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/balance"
	"k8s.io/client-go/tools/ring/fence"
)

const (
	// maxDecided is how many of the last decisions are kept.
	maxDecided = 32
	// maxPieces is how many pieces of work are shown, the oldest ones.
	maxPieces = 100
)

// Process is what a process shows of its parts in rings.
type Process struct {
	Started   time.Time  `json:"started"`
	Instances []Snapshot `json:"instances"`
}

// Snapshot is a member at one moment, by what it knows itself. Ranges are written as (after, upTo],
// keys as 16 hexadecimal digits. It is for people who look for a fault: fields come and go.
type Snapshot struct {
	Ring   string `json:"ring"`
	Holder string `json:"holder"`
	// Name and UID are those of its record; "" while it is not registered. All that follows from
	// the log is absent then.
	Name string    `json:"name,omitempty"`
	UID  types.UID `json:"uid,omitempty"`
	// RoundAgeSeconds is for how long it has not decided anything. If that is more than a few
	// seconds, it hangs, and what follows from the log is as old.
	RoundAgeSeconds float64 `json:"roundAgeSeconds"`
	// Revision is how far it has read the log, and Records are what it has read.
	Revision int64                          `json:"revision"`
	Records  []RecordState                  `json:"records"`
	Phase    shardingv1alpha1.InstancePhase `json:"phase,omitempty"`
	// Owned is what it owns by the log, Follow what its sources are to hold, and Draining what its
	// gate was shut for while work there goes on.
	Owned    string `json:"owned"`
	Follow   string `json:"follow"`
	Draining string `json:"draining"`
	Epoch    int64  `json:"epoch"`
	// Gives says what it gives away now.
	Gives string `json:"gives,omitempty"`
	// Balance says how it evens out the load, by its process's settings.
	Balance BalanceState `json:"balance"`
	// Write is the write that it has decided on, sent or not, and Proposal the move that would even
	// out the load best.
	Write    string `json:"write,omitempty"`
	Proposal string `json:"proposal,omitempty"`

	// Open is what its gate is open for.
	Open string `json:"open"`
	// BelievesForSeconds is how long work may begin, and requests be sent, if no renewal is
	// answered; 0: they may not.
	BelievesForSeconds float64 `json:"believesForSeconds"`
	// Presence is the instance's; nil: it is to have none.
	Presence *PresenceState `json:"presence,omitempty"`
	// Barred says why no controller may send a request.
	Barred  string        `json:"barred,omitempty"`
	Doors   []DoorState   `json:"doors"`
	Sources []SourceState `json:"sources"`
	// Busy counts the pieces of work that are under way, and Oldest are the oldest of them.
	Busy   int          `json:"busy"`
	Oldest []PieceState `json:"oldest"`
	// Decided are its last decisions, the oldest one first. Those of its earlier registrations are
	// among them.
	Decided []Decided `json:"decided"`
	// Recording is what it was given in this registration, and what it decided, as far back as it is
	// kept: enough to see it decide the same again. It is large, and shown only where it is asked for.
	Recording *ring.History `json:"recording,omitempty"`
}

// How an instance evens out the load of its ring.
const (
	BalanceEnabled  = "Enabled"
	BalanceDryRun   = "DryRun" // it only says what it would move
	BalanceDisabled = "Disabled"
)

// BalanceState says how an instance evens out the load of its ring.
type BalanceState struct {
	// Mode is one of the Balance constants. The ring's records may say beside that that balance is
	// off.
	Mode string `json:"mode"`
	// TolerancePercent is how much more load than it should have an instance may have, in percent of
	// what one has on average, and KeysPercentPerMinute how many of all keys are moved in a minute at
	// most.
	TolerancePercent     float64 `json:"tolerancePercent,omitempty"`
	KeysPercentPerMinute float64 `json:"keysPercentPerMinute,omitempty"`
}

// newBalanceState returns the state for b; nil: no load is evened out.
func newBalanceState(b *balance.Config) BalanceState {
	if b == nil {
		return BalanceState{Mode: BalanceDisabled}
	}
	s := BalanceState{Mode: BalanceEnabled, TolerancePercent: percent(b.Tolerance), KeysPercentPerMinute: percent(b.Rate)}
	if b.DryRun {
		s.Mode = BalanceDryRun
	}
	return s
}

// percent returns a part in percent, without what floating point adds to it.
func percent(part float64) float64 { return math.Round(1e6*part) / 1e4 }

// String returns the state for people.
func (s BalanceState) String() string {
	if s.TolerancePercent == 0 {
		return s.Mode
	}
	return fmt.Sprintf("%s, tolerance %v%%, %v%% of all keys a minute", s.Mode, s.TolerancePercent, s.KeysPercentPerMinute)
}

// PresenceState says whether an instance has a presence.
type PresenceState struct {
	// Since is when the present one was opened; nil: it has none, and Lacks says why.
	Since *time.Time `json:"since,omitempty"`
	Lacks string     `json:"lacks,omitempty"`
}

// RecordState is a record as an instance knows it. Keys are "" where there is none.
type RecordState struct {
	Name        string                         `json:"name"`
	UID         types.UID                      `json:"uid"`
	HashKey     string                         `json:"hashKey,omitempty"`
	NextHashKey string                         `json:"nextHashKey,omitempty"`
	Phase       shardingv1alpha1.InstancePhase `json:"phase,omitempty"`
	Generation  int64                          `json:"generation"`
	Revision    int64                          `json:"revision"`
}

// DoorState is the gate as a controller meets it.
type DoorState struct {
	Controller string `json:"controller"`
	// Open is what it is open for.
	Open string `json:"open"`
	// Working says that the instance may be working on it, and Reason why it does not.
	Working bool   `json:"working"`
	Reason  string `json:"reason,omitempty"`
}

// SourceState is what a source holds.
type SourceState struct {
	Name string `json:"name"`
	// Held is what it holds, and Lacks what it is to hold beside that.
	Held  string `json:"held"`
	Lacks string `json:"lacks"`
	// Waits says what it has waited for, for more than ten seconds.
	Waits string `json:"waits,omitempty"`
}

// PieceState is a piece of work that is under way.
type PieceState struct {
	Controller string    `json:"controller"`
	HashKey    string    `json:"hashKey"`
	Began      time.Time `json:"began"`
	AgeSeconds float64   `json:"ageSeconds"`
}

// Decided is something that an instance has decided.
type Decided struct {
	// Time is when it was carried out last, and Times how often that was, without anything between.
	Time  time.Time `json:"time"`
	Times int       `json:"times"`
	// Revision is how far the log had been read.
	Revision int64 `json:"revision"`
	// What is one of the Decided constants, Text says the rest for people.
	What string `json:"what"`
	Text string `json:"text,omitempty"`
}

// What an instance decides.
const (
	DecidedRegistered = "registered"
	DecidedPhase      = "phase"
	DecidedShut       = "shut"        // the gate, for ranges
	DecidedOpened     = "opened"      // the gate, for ranges
	DecidedDoorShut   = "door shut"   // of controllers
	DecidedDoorOpened = "door opened" // of controllers
	DecidedWrote      = "wrote"
	DecidedNotWritten = "not written"
	DecidedProposed   = "proposed" // a move that would even out the load
	DecidedEnded      = "ended"    // the registration
)

// RecordStates returns these records as an instance shows them.
func RecordStates(records []*ring.Record) []RecordState {
	states := []RecordState{}
	for _, r := range records {
		states = append(states, RecordState{
			Name: r.Name, UID: r.UID, HashKey: optional(r.Key), NextHashKey: optional(r.Next),
			Phase: r.Phase, Generation: r.Generation, Revision: r.Revision,
		})
	}
	return states
}

func optional(key *int64) string {
	if key == nil {
		return ""
	}
	return hashkey.Format(*key)
}

// shown is what a member shows of itself. The deciding goroutine leaves it here, so that it can be
// read though that goroutine hangs.
type shown struct {
	lock sync.Mutex
	// state is that of the last round; nil: the member is not registered.
	state *state
	// decided are the last decisions, the oldest one first.
	decided []Decided
	// presence is the present one; nil: there is to be none.
	presence *PresenceState
}

// state is a term after a round. What it refers to never changes.
type state struct {
	self     fence.Identity
	round    time.Time
	view     *ring.View
	phase    shardingv1alpha1.InstancePhase
	owned    hashkey.Ranges
	follow   hashkey.Ranges
	draining hashkey.Ranges
	report   ring.Report
	duties   []ring.ControllerState
	write    *ring.Write
	proposal *ring.Shift
	// open is what the gate was open for, and doors the controllers whose doors were.
	open      hashkey.Ranges
	doors     []string
	recording ring.Recording
}

// noteLocked adds what was decided.
func (s *shown) noteLocked(now time.Time, revision int64, what, text string) {
	if n := len(s.decided); n > 0 && s.decided[n-1].What == what && s.decided[n-1].Text == text {
		last := &s.decided[n-1]
		last.Time, last.Revision, last.Times = now, revision, last.Times+1
		return
	}
	if len(s.decided) == maxDecided {
		s.decided = slices.Delete(s.decided, 0, 1)
	}
	s.decided = append(s.decided, Decided{Time: now, Times: 1, Revision: revision, What: what, Text: text})
}

// show shows what was decided in this round.
func (t *term) show(now time.Time, d *ring.Decision) {
	next := &state{
		self: t.self, round: now, view: t.machine.View(), phase: d.Phase, owned: d.Owned, follow: t.follow, draining: t.releasing.Union(t.voiding),
		report: d.Report, duties: t.duties.states, write: d.Write, proposal: d.Proposal, recording: *t.machine.Recording,
	}
	next.open, next.doors = t.cfg.Gate.doors(t.controllers)
	s := &t.shown
	s.lock.Lock()
	defer s.lock.Unlock()
	note := func(what, text string) { s.noteLocked(now, next.view.Revision, what, text) }
	last := s.state
	if last == nil {
		last = &state{}
		note(DecidedRegistered, t.self.Name)
	}
	s.state = next
	if next.phase != last.phase {
		note(DecidedPhase, fmt.Sprintf("%s, owns %v", next.phase, next.owned))
	}
	if shut := last.open.Minus(next.open); !shut.Empty() {
		note(DecidedShut, shut.String())
	}
	if opened := next.open.Minus(last.open); !opened.Empty() {
		note(DecidedOpened, opened.String())
	}
	if shut := without(last.doors, next.doors); len(shut) > 0 {
		note(DecidedDoorShut, strings.Join(shut, ", "))
	}
	if opened := without(next.doors, last.doors); len(opened) > 0 {
		note(DecidedDoorOpened, strings.Join(opened, ", "))
	}
	// Its numbers change all the time.
	if p, was := next.proposal, last.proposal; p != nil && (was == nil || p.Boundary != was.Boundary || p.Receiver != was.Receiver) {
		note(DecidedProposed, p.String())
	}
}

// without returns the names that are not among others.
func without(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(others, name) })
}

// showWrite shows what has come of a write.
func (t *term) showWrite(w *ring.Write, err error) {
	what, text := DecidedWrote, describe(w)
	if err != nil {
		what, text = DecidedNotWritten, fmt.Sprintf("%s: %.256v", text, err)
	}
	t.shown.lock.Lock()
	defer t.shown.lock.Unlock()
	t.shown.noteLocked(t.cfg.Clock.Now(), t.machine.View().Revision, what, text)
}

// showPresence shows whether there is a presence.
func (t *term) showPresence(p *PresenceState) {
	t.cfg.Metrics.Present(p != nil && p.Since != nil)
	t.shown.lock.Lock()
	defer t.shown.lock.Unlock()
	t.shown.presence = p
}

// showEnd shows that the registration has ended.
func (t *term) showEnd() {
	t.shown.lock.Lock()
	defer t.shown.lock.Unlock()
	t.shown.state = nil
	t.shown.noteLocked(t.cfg.Clock.Now(), t.machine.View().Revision, DecidedEnded, t.self.Name)
}

func describe(w *ring.Write) string {
	text := fmt.Sprintf("%s: deletes %s", w.Reason, w.Name)
	if !w.Delete {
		text = fmt.Sprintf("%s: %s gets key %s, next key %s", w.Reason, w.Name, hashkey.FormatOptional(w.Key), hashkey.FormatOptional(w.Next))
		if w.Donor != "" {
			text += ", donor " + w.Donor
		}
	}
	if w.Detail != "" {
		text += " (" + w.Detail + ")"
	}
	return text
}

// Snapshot returns the member as it is now. It waits for nothing.
func (m *Member) Snapshot() Snapshot {
	now := m.cfg.Clock.Now()
	m.shown.lock.Lock()
	last, decided, presence := m.shown.state, append([]Decided{}, m.shown.decided...), m.shown.presence
	m.shown.lock.Unlock()

	s := Snapshot{Ring: m.cfg.Ring, Holder: m.cfg.HolderIdentity, Balance: newBalanceState(m.cfg.Balance()), Sources: []SourceState{}, Decided: decided, Presence: presence}
	if last == nil {
		last = &state{view: ring.NewView(0), round: now}
	}
	s.Name, s.UID = last.self.Name, last.self.UID
	s.RoundAgeSeconds = now.Sub(last.round).Seconds()
	s.Revision, s.Records = last.view.Revision, RecordStates(last.view.Records())
	s.Phase, s.Owned, s.Follow, s.Draining = last.phase, last.owned.String(), last.follow.String(), last.draining.String()
	s.Epoch = last.report.Epoch
	if gift := last.report.Gives; gift != nil {
		s.Gives = fmt.Sprintf("%s gets key %s", gift.To, hashkey.Format(gift.Key))
	}
	if last.write != nil {
		s.Write = describe(last.write)
	}
	if last.proposal != nil {
		s.Proposal = last.proposal.String()
	}
	if s.Name != "" {
		s.Recording = last.recording.History()
	}
	open, doors := m.cfg.Gate.doors(m.controllers)
	s.Open = open.String()
	s.BelievesForSeconds = max(0, m.cfg.Gate.Deadline().Sub(now).Seconds())
	s.Barred = m.cfg.Gate.whyBarred()
	for _, c := range m.controllers {
		door := DoorState{Controller: c, Open: hashkey.Ranges{}.String()}
		if slices.Contains(doors, c) {
			door.Open = s.Open
		}
		for _, duty := range last.duties {
			if duty.Name == c {
				door.Working, door.Reason = duty.Working, duty.Reason
			}
		}
		s.Doors = append(s.Doors, door)
	}
	for i, source := range m.cfg.Sources {
		held := source.Held()
		s.Sources = append(s.Sources, SourceState{Name: nameOf(source, i), Held: held.String(), Lacks: last.follow.Minus(held).String(), Waits: source.Waits()})
	}
	slices.SortFunc(s.Sources, func(a, b SourceState) int { return cmp.Compare(a.Name, b.Name) })
	s.Oldest = m.cfg.Gate.pieces(now)
	s.Busy = len(s.Oldest)
	s.Oldest = s.Oldest[:min(s.Busy, maxPieces)]
	return s
}

// doors returns what the gate is open for, and which of the controllers it is open for.
func (g *Gate) doors(controllers []string) (open hashkey.Ranges, doors []string) {
	g.lock.Lock()
	defer g.lock.Unlock()
	for _, c := range controllers {
		if g.working[c] {
			doors = append(doors, c)
		}
	}
	return g.open, doors
}

// pieces returns the work that is under way, the oldest piece first.
func (g *Gate) pieces(now time.Time) []PieceState {
	g.lock.Lock()
	pieces := []PieceState{}
	for work, began := range g.busy {
		for _, at := range began {
			pieces = append(pieces, PieceState{Controller: work.controller, HashKey: hashkey.Format(work.key), Began: at, AgeSeconds: now.Sub(at).Seconds()})
		}
	}
	g.lock.Unlock()
	slices.SortFunc(pieces, func(a, b PieceState) int {
		return cmp.Or(a.Began.Compare(b.Began), cmp.Compare(a.Controller, b.Controller), cmp.Compare(a.HashKey, b.HashKey))
	})
	return pieces
}
