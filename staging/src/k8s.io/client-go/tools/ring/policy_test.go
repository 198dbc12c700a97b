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
	"reflect"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/hashkey"
)

// byWidth is a policy that remembers nothing and counts nothing: it gives a neighbour half of the
// keys that it has more, if that is a 64th of an even share or more.
type byWidth string

func (byWidth) Observe(*View) {}

func (name byWidth) Shifts(view *View, _ time.Duration, turn *Turn) Advice {
	if turn == nil {
		return Advice{}
	}
	var advice Advice
	self, _ := view.Get(string(name))
	predecessor, successor, _ := view.Neighbours(self.Name)
	mine := view.Owned(self.Name).Width()
	along := NewArc(*self.Key, view.Owned(self.Name))
	give := func(boundary, to Record, key func(keys uint64) int64) {
		if his := view.Owned(to.Name).Width(); mine > his && (mine-his)/2 >= hashkey.Limit/uint64(len(view.ring))/64 {
			advice.Shifts = append(advice.Shifts, Shift{Boundary: boundary.Name, Donor: self.Name, Receiver: to.Name, Key: key((mine - his) / 2)})
		}
	}
	give(self, successor, func(keys uint64) int64 { return along.Key(mine - keys - 1) })
	give(predecessor, predecessor, func(keys uint64) int64 { return along.Key(keys - 1) })
	return advice
}

// Any policy drives a ring: by this one its ranges are soon equally wide.
func TestASimulatedDayBeginsByAnotherPolicy(t *testing.T) {
	s := size{instances: 40, keys: 20_000}
	for name, policy := range map[string]func(string) Policy{
		"by width": func(instance string) Policy { return byWidth(instance) },
		"none":     nil,
	} {
		d := newDay(1, s, policy)
		if err := d.run(dayScenes(s)[:2]); err != nil {
			t.Error(err)
		}
		widest := uint64(0)
		for _, r := range d.registry.ring {
			widest = max(widest, d.registry.owned(*r).Width())
		}
		if times := float64(widest) / float64(hashkey.Limit) * float64(s.instances); (times < 1.15) != (policy != nil) {
			t.Errorf("%s: the widest range is %.2f times an even share", name, times)
		}
	}
}

// ring of three: b owns (100, 200].
func ofThree(name string) *Machine {
	m := NewMachine(name, NewView(1, member("a", at(100)), member("b", at(200)), member("c", at(300))), limits)
	return m
}

func TestTheFirstShiftIsMadeThatCanBe(t *testing.T) {
	down, up := Shift{Boundary: "b", Donor: "b", Receiver: "c", Key: 150}, Shift{Boundary: "a", Donor: "b", Receiver: "a", Key: 120}
	to := func(s Shift, key int64) Shift {
		s.Key = key
		return s
	}
	for name, tc := range map[string]struct {
		shifts []Shift
		stuck  []int64
		want   *Shift
	}{
		"none":                              {nil, nil, nil},
		"down":                              {[]Shift{down, up}, nil, &down},
		"up":                                {[]Shift{up, down}, nil, &up},
		"one beyond a neighbour":            {[]Shift{to(down, 50), up}, nil, &up},
		"one to where it is":                {[]Shift{to(down, 200), up}, nil, &up},
		"one of a boundary that is none":    {[]Shift{{Boundary: "x", Key: 150}, up}, nil, &up},
		"one that gives another's keys":     {[]Shift{to(down, 250), up}, nil, &up},
		"one that takes stuck work along":   {[]Shift{down, up}, []int64{160}, &up},
		"stuck work beside it":              {[]Shift{down, up}, []int64{150}, &down},
		"stuck work in all that could move": {[]Shift{down, up}, []int64{101, 151}, nil},
	} {
		m := ofThree("b")
		in := Input{Now: 1, Serving: keys(100, 200), Shifts: tc.shifts, Stuck: tc.stuck}
		d := m.Decide(in)
		if !reflect.DeepEqual(d.Proposal, tc.want) || (d.Write == nil) != (tc.want == nil) {
			t.Errorf("%s: proposes %v, writes %+v; want %v", name, d.Proposal, d.Write, tc.want)
			continue
		}
		if tc.want == nil {
			continue
		}
		r, _ := m.View().Get(tc.want.Boundary)
		if w := d.Write; w.Reason != ReasonBalance || w.Name != r.Name || w.UID != r.UID || *w.Key != *r.Key || *w.Next != tc.want.Key || w.Detail != tc.want.String() {
			t.Errorf("%s: writes %+v", name, w)
		}
		in.DryRun = true
		if d := m.Decide(in); !reflect.DeepEqual(d.Proposal, tc.want) || d.Write != nil {
			t.Errorf("%s, a dry run: proposes %v, writes %+v", name, d.Proposal, d.Write)
		}
	}
}

func TestABoundaryMovesOnlyWhereNothingElseIsToBeDone(t *testing.T) {
	change := func(name string, f func(*Record)) func(*Machine) {
		return func(m *Machine) {
			r, _ := m.View().Get(name)
			r.Name = name
			f(&r)
			m.Apply(r)
		}
	}
	serving := keys(100, 200)
	for name, tc := range map[string]struct {
		change func(*Machine)
		in     Input
		turn   bool
	}{
		"nothing":                 {func(*Machine) {}, Input{Serving: serving}, true},
		"it works on nothing":     {func(*Machine) {}, Input{}, false},
		"it leaves":               {func(*Machine) {}, Input{Serving: serving, Leaving: true}, false},
		"one joins":               {change("n", func(r *Record) { *r = joining("n", "b", nil) }), Input{Serving: serving, Keys: noKeys}, false},
		"one joins, without keys": {change("n", func(r *Record) { *r = joining("n", "b", nil) }), Input{Serving: serving}, false},
		"one joins at another":    {change("n", func(r *Record) { *r = joining("n", "a", nil) }), Input{Serving: serving}, true},
		"it gives something":      {change("b", func(r *Record) { r.Next = at(150) }), Input{Serving: serving}, false},
		"balance is off":          {change("c", func(r *Record) { r.BalanceOff = true }), Input{Serving: serving}, false},
		"it owns nothing":         {change("b", func(r *Record) { r.Key = nil }), Input{}, false},
		"it has no neighbour":     {func(m *Machine) { m.Remove("a", 2); m.Remove("c", 3) }, Input{Serving: hashkey.All()}, false},
	} {
		m := ofThree("b")
		tc.change(m)
		tc.in.Now, tc.in.Shifts = 1, []Shift{{Boundary: "b", Key: 160}}
		if d := m.Decide(tc.in); (d.Turn != nil) != tc.turn || (d.Write != nil && d.Write.Reason == ReasonBalance) != tc.turn {
			t.Errorf("%s: its turn is %+v, and it writes %+v; want it to move a boundary: %t", name, d.Turn, d.Write, tc.turn)
		}
	}
}

func TestAMoveEndsWhereBalanceIsTurnedOff(t *testing.T) {
	for name, tc := range map[string]struct {
		pinned *int64
		off    bool
		ends   bool
	}{
		"on":                 {nil, false, false},
		"off":                {nil, true, true},
		"off, and by a hand": {at(150), true, false},
	} {
		self := member("b", at(200))
		self.Next, self.PinnedKey, self.BalanceOff = at(150), tc.pinned, tc.off
		m := NewMachine("b", NewView(1, member("a", at(100)), self, member("c", at(300))), limits)
		d := m.Decide(Input{Now: 1, Serving: keys(100, 200)})
		if w := d.Write; (w != nil) != tc.ends || w != nil && w.Reason != ReasonCallOff || d.Waits == tc.ends {
			t.Errorf("%s: writes %+v, waits: %t", name, w, d.Waits)
		}
	}
	// A join goes on.
	receiver := joining("n", "b", at(150))
	receiver.BalanceOff = true
	m := NewMachine("b", NewView(1, member("a", at(100)), member("b", at(200)), receiver), limits)
	if d := m.Decide(Input{Now: 1, Serving: keys(100, 200)}); d.Write != nil || !d.Waits {
		t.Errorf("one joins: writes %+v", d.Write)
	}
}

// witness is a policy that notes what it is told, and says what it is to say.
type witness struct {
	seen   []int64
	turns  []*Turn
	advice []Advice
}

func (w *witness) Observe(view *View) { w.seen = append(w.seen, view.Revision) }

func (w *witness) Shifts(_ *View, _ time.Duration, turn *Turn) Advice {
	w.turns = append(w.turns, turn)
	if len(w.advice) == 0 {
		return Advice{}
	}
	advice := w.advice[0]
	w.advice = w.advice[1:]
	return advice
}

func TestAPolicySeesEachViewOfTheLog(t *testing.T) {
	w := &witness{}
	b := Decider{Machine: ofThree("b"), Policy: w}
	r := member("c", at(310))
	r.Revision = 2
	b.Apply(r)
	b.Remove("c", 3)
	b.Replace(NewView(7, member("b", at(200))))
	if want := []int64{2, 3, 7}; !slices.Equal(w.seen, want) {
		t.Errorf("it has seen revisions %v, want %v", w.seen, want)
	}
	Decider{Machine: ofThree("b")}.Apply(r)
}

func TestAPolicyIsAskedWithEachDecision(t *testing.T) {
	work, objects := []int64{7}, []int64{110, 150, 190}
	shift := Shift{Boundary: "b", Donor: "b", Receiver: "c", Key: 160}
	looks := 0
	consult := func(w *witness, in Input) Decision {
		in.Now = max(in.Now, 1)
		return Decider{Machine: ofThree("b"), Policy: w}.Consult(in, work, func(r hashkey.Ranges) []int64 {
			if looks++; !r.Equal(keys(100, 200)) {
				t.Errorf("looks for keys in %v", r)
			}
			return objects
		})
	}
	in := Input{Serving: keys(100, 200)}

	w := &witness{advice: []Advice{{Shifts: []Shift{shift}, Wake: 9}}}
	if d := consult(w, Input{}); d.Write != nil || len(w.turns) != 1 || w.turns[0] != nil || d.Wake != 9 {
		t.Errorf("it may move nothing: asked %v, writes %+v, wakes at %v", w.turns, d.Write, d.Wake)
	}
	w = &witness{advice: []Advice{{Shifts: []Shift{shift}}}}
	if d := consult(w, in); d.Write == nil || *d.Write.Next != 160 || looks != 0 || !reflect.DeepEqual(w.turns, []*Turn{{Work: work}}) {
		t.Errorf("asked %+v, writes %+v, looked for keys %d times", w.turns, d.Write, looks)
	}
	w = &witness{advice: []Advice{{NeedsKeys: true}, {Shifts: []Shift{shift}, Wake: 9}}}
	if d := consult(w, in); d.Write == nil || looks != 1 || !reflect.DeepEqual(w.turns, []*Turn{{Work: work}, {Keys: objects, Work: work}}) || d.Wake != 9 {
		t.Errorf("it needs keys: asked %+v, writes %+v, looked for keys %d times, wakes at %v", w.turns, d.Write, looks, d.Wake)
	}
	// A record that is gone is nobody's business.
	w = &witness{}
	gone := Decider{Machine: NewMachine("x", NewView(1), limits), Policy: w}
	if d := gone.Consult(Input{Now: 1}, nil, nil); !d.Gone || len(w.turns) != 0 {
		t.Errorf("gone: %+v, asked %v", d, w.turns)
	}
}

func TestAPolicyIsToldWhoRests(t *testing.T) {
	m := ofThree("b")
	c, _ := m.View().Get("c")
	m.rest(c.registration(), 5)
	if d := m.Decide(Input{Now: 7, Serving: keys(100, 200)}); d.Turn == nil || d.Turn.Rests != 0 || !slices.Equal(d.Turn.Resting, []string{"c"}) {
		t.Errorf("c rests: its turn is %+v", d.Turn)
	}
	m.rest(registration{}, 6)
	if d := m.Decide(Input{Now: 7, Serving: keys(100, 200)}); d.Turn == nil || d.Turn.Rests != 6+4*limits.Step {
		t.Errorf("all rest: its turn is %+v", d.Turn)
	}
	if d := m.Decide(Input{Now: 6 + 4*limits.Step, Serving: keys(100, 200)}); d.Turn == nil || len(d.Turn.Resting) > 0 {
		t.Errorf("none rests any more: its turn is %+v", d.Turn)
	}
	// One that died young is most likely one of a crash loop.
	m = ofThree("b")
	young := member("c", at(300))
	young.Holder = "host_1"
	m.Apply(young)
	m.Decide(Input{Now: 1, Serving: keys(100, 200)})
	m.Remove("c", 3)
	m.Decide(Input{Now: 2, Serving: keys(100, 200)})
	young.UID, young.Holder = "again", "host_2"
	m.Apply(young)
	if d := m.Decide(Input{Now: 3, Serving: keys(100, 200)}); d.Turn == nil || !slices.Equal(d.Turn.Resting, []string{"c"}) {
		t.Errorf("c belongs to a crash loop: its turn is %+v", d.Turn)
	}
}
