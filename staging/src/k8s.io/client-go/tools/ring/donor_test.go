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
	"strings"
	"testing"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
)

// In a move up the successor is the donor. What it keeps, and what the receiver has
// already, stay open from beginning to end.
func TestAMoveUpShutsOnlyWhatChangesHands(t *testing.T) {
	low, high := member("low", at(100)), member("high", at(300))
	low.Next, low.Revision, low.Generation = at(200), 2, 2
	view := NewView(2, low, high)
	of := func(name string) hashkey.Ranges { return view.Owned(name) }
	receiver, donor := NewMachine("low", view, limits), NewMachine("high", view, limits)

	d := receiver.Decide(Input{Now: 1, Serving: of("low")})
	if want := of("low").Union(keys(100, 200)); !d.Follow.Equal(want) || !d.Open.Equal(of("low")) || d.Write != nil {
		t.Errorf("receiver: follows %v, open %v, writes %+v; want to follow %v and no more", d.Follow, d.Open, d.Write, want)
	}
	if d := donor.Decide(Input{Now: 1, Serving: of("high")}); !d.Open.Equal(of("high")) || d.Write != nil || d.Wake == 0 {
		t.Errorf("donor, the receiver's caches cold: open %v, writes %+v, wakes at %v; want to wait", d.Open, d.Write, d.Wake)
	}
	low.Cached, low.Revision = d.Follow, 3
	donor.Apply(low)
	keep := keys(200, 300)
	if d := donor.Decide(Input{Now: 2, Serving: of("high")}); !d.Open.Equal(keep) || d.Phase != shardingv1alpha1.InstanceWait || d.Write != nil {
		t.Errorf("donor, the receiver's caches warm: %s, open %v, writes %+v; want to drain", d.Phase, d.Open, d.Write)
	}
	d = donor.Decide(Input{Now: 3, Serving: keep})
	if want := (Report{1, &Gift{"low", 200}}); d.Write != nil || !d.Report.Equal(want) {
		t.Fatalf("donor, drained: writes %+v, reports %+v; want %+v reported before the move", d.Write, d.Report, want)
	}
	d = donor.Decide(Input{Now: 3, Serving: keep, Reported: d.Report})
	if d.Write == nil || d.Write.Reason != ReasonMove || d.Write.Name != "low" || *d.Write.Key != 200 || d.Write.Next != nil || d.Write.Generation != 2 {
		t.Fatalf("donor, drained: writes %+v, want the move", d.Write)
	}
	low.Key, low.Next, low.Revision = d.Write.Key, nil, 4
	receiver.Apply(low)
	donor.Apply(low)
	if d := receiver.Decide(Input{Now: 4, Serving: of("low")}); !d.Open.Equal(receiver.View().Owned("low")) || d.Since != 4 {
		t.Errorf("receiver, the boundary moved: open %v since %d, want %v since 4", d.Open, d.Since, receiver.View().Owned("low"))
	}
	if d := donor.Decide(Input{Now: 4, Serving: keep}); !d.Open.Equal(keep) || d.Phase != shardingv1alpha1.InstanceActive {
		t.Errorf("donor, the boundary moved: %s, open %v; want Active and %v", d.Phase, d.Open, keep)
	}
}

// The share is looked at anew in each decision, so it takes in the dead predecessor's
// range.
func TestAPredecessorsDeathDoesNotReopenWhatADonorDrains(t *testing.T) {
	receiver := joining("n", "d", at(150))
	m := NewMachine("d", NewView(3, member("a", at(100)), member("d", at(200)), member("z", at(hashkey.Max)), receiver), limits)
	all := hashkey.All()
	m.Decide(Input{Now: 1, Serving: all, Draining: hashkey.All()})
	receiver.Cached, receiver.Revision = keys(100, 150), 4
	m.Apply(receiver)
	keep := keys(150, 200)
	if d := m.Decide(Input{Now: 2, Serving: all, Draining: hashkey.All()}); !d.Open.Equal(keep) || d.Phase != shardingv1alpha1.InstanceWait {
		t.Fatalf("draining: %s, open %v, want Wait with %v", d.Phase, d.Open, keep)
	}
	m.Remove("a", 5)
	d := m.Decide(Input{Now: 3, Serving: keep, Draining: hashkey.All()})
	if !d.Open.Equal(keep) {
		t.Errorf("after the predecessor's death: open %v, want %v", d.Open, keep)
	}
	if !d.Owned.Equal(keys(hashkey.Max, 200)) {
		t.Errorf("after the predecessor's death: owned %v, want %v", d.Owned, keys(hashkey.Max, 200))
	}
	d = stored(m, Input{Now: 4, Serving: keep})
	if d.Write == nil || d.Write.Reason != ReasonGrant || *d.Write.Key != 150 {
		t.Errorf("drained: wrote %+v, want the grant", d.Write)
	}
}

func TestADonorThatWorksDoesNotDrainForAReceiverWithColdCaches(t *testing.T) {
	cold, other := joining("n", "d", at(100)), joining("o", "d", nil)
	m := NewMachine("d", NewView(1, member("d", at(hashkey.Max)), cold, other), limits)
	in := Input{Now: 7 * time.Second, Serving: hashkey.All(), Keys: noKeys}
	d := atLimit(t, m, in, limits.Fill, hashkey.All())
	if !d.Open.Equal(hashkey.All()) || d.Phase != shardingv1alpha1.InstanceActive || d.Write == nil || d.Write.Reason != ReasonCallOff || d.Write.Name != "n" {
		t.Fatalf("at the limit: %s, open %v, wrote %+v; want the handover called off while it works on", d.Phase, d.Open, d.Write)
	}

	// Another that joins does not wait for that one.
	cold.Next, cold.Revision, cold.Generation = nil, 2, 2
	m.Apply(cold)
	in.Now += limits.Fill + time.Second
	if d := m.Decide(in); d.Write == nil || d.Write.Reason != ReasonSplit || d.Write.Name != "o" {
		t.Errorf("wrote %+v, want a key named for the other", d.Write)
	}
	m.Remove("o", 3)
	d = m.Decide(in)
	if rest := 7*time.Second + limits.Fill + 4*limits.Step; d.Write != nil || d.Wake != rest {
		t.Errorf("wrote %+v, wakes at %v; want to rest until %v", d.Write, d.Wake, rest)
	}
	in.Now = d.Wake
	if d := m.Decide(in); d.Write == nil || d.Write.Reason != ReasonSplit || d.Write.Name != "n" {
		t.Errorf("wrote %+v after the rest, want a key named again", d.Write)
	}
}

func TestADonorDrainsAtOnceWhatItDoesNotServe(t *testing.T) {
	m := NewMachine("d", NewView(1, member("d", at(hashkey.Max)), joining("n", "d", at(100))), limits)
	if d := m.Decide(Input{Now: 1, Serving: keys(100, hashkey.Max)}); d.Phase != shardingv1alpha1.InstanceWait {
		t.Errorf("%s, wakes at %v; want to drain", d.Phase, d.Wake)
	}
}

// The controller forgets what it expected of its work on drained keys, so caches from
// before the handover ended may lack that work.
func TestADonorThatKeepsItsRangeWaitsForCachesAsOfTheHandoversEnd(t *testing.T) {
	for name, end := range map[string]func(*Machine, Record){
		"called off": func(m *Machine, receiver Record) {
			receiver.Next, receiver.Revision, receiver.Generation = nil, 7, 2
			m.Apply(receiver)
		},
		"the receiver has gone": func(m *Machine, receiver Record) { m.Remove(receiver.Name, 7) },
		"seen after a gap":      func(m *Machine, _ Record) { m.Replace(NewView(7, member("d", at(hashkey.Max)))) },
	} {
		receiver := warm(joining("n", "d", at(100)), keys(hashkey.Max, 100))
		m := NewMachine("d", NewView(2, member("d", at(hashkey.Max)), receiver), limits)
		m.Decide(Input{Now: 1, Serving: hashkey.All()})
		keep := keys(100, hashkey.Max)
		if d := m.Decide(Input{Now: 2, Serving: keep, Draining: hashkey.All()}); d.Since != 2 || !d.Open.Equal(keep) {
			t.Fatalf("%s: draining: open %v as of %d, want %v as of 2", name, d.Open, d.Since, keep)
		}
		end(m, receiver)
		// What was in work carries the old epoch.
		d := m.Decide(Input{Now: 3, Serving: keep, Keys: noKeys})
		if want := (Report{Epoch: 1}); !d.Report.Equal(want) || !d.Open.Equal(keep) {
			t.Errorf("%s: reports %+v, open %v; want %+v and %v", name, d.Report, d.Open, want, keep)
		}
		self := member("d", at(hashkey.Max))
		self.Report, self.Revision = d.Report, 8
		m.Apply(self)
		if d := m.Decide(Input{Now: 4, Serving: keep, Keys: noKeys}); d.Since != 8 || !d.Open.Equal(hashkey.All()) {
			t.Errorf("%s: open %v as of %d, want all keys as of 8", name, d.Open, d.Since)
		}
	}
}

func TestADonorThatDidNotDrainYetKeepsItsCaches(t *testing.T) {
	receiver := joining("n", "d", at(100))
	m := NewMachine("d", NewView(2, member("d", at(hashkey.Max)), receiver), limits)
	m.Decide(Input{Now: 1, Serving: hashkey.All()})
	m.Remove("n", 7)
	if d := m.Decide(Input{Now: 2, Serving: hashkey.All()}); d.Since != 2 {
		t.Errorf("the caches must be as of %d, want 2", d.Since)
	}
}

func TestADrainThatDoesNotEndIsCalledOffAfterAStep(t *testing.T) {
	for _, kind := range []Kind{KindJoin, KindMove} {
		keep := keys(100, 300)
		receiver := warm(joining("n", "d", at(100)), keys(hashkey.Max, 100))
		view := NewView(1, member("d", at(300)), member("z", at(hashkey.Max)), receiver)
		if kind == KindMove {
			keep, receiver = keys(hashkey.Max, 100), warm(member("z", at(hashkey.Max)), keys(100, hashkey.Max))
			moved := member("d", at(300))
			moved.Next = at(100)
			view = NewView(1, moved, receiver)
		}
		m := NewMachine("d", view, limits)
		// The limit counts from the decision that shuts the gate.
		begin := 7 * time.Second
		m.Decide(Input{Now: begin, Serving: view.Owned("d")})
		in := Input{Now: begin, Serving: keep, Draining: hashkey.All()}
		d := atLimit(t, m, in, limits.Step, keep)
		if d.Write == nil || d.Write.Reason != ReasonCallOff || d.Write.Next != nil || !strings.Contains(d.Write.Detail, "has not ended in time") {
			t.Fatalf("%s: wrote %+v at the limit, want the handover called off", kind, d.Write)
		}
		if key := view.Handovers()[0].Record.Key; (d.Write.Key == nil) != (key == nil) || key != nil && *d.Write.Key != *key {
			t.Errorf("%s: the record's key becomes %s, want %s", kind, hashkey.FormatOptional(d.Write.Key), hashkey.FormatOptional(key))
		}
		if !d.Open.Equal(keep) {
			t.Errorf("%s: open %v while the write is in flight, want %v", kind, d.Open, keep)
		}
	}
}

func TestADonorRestsAfterADrainThatDidNotEnd(t *testing.T) {
	receiver := warm(joining("n", "d", at(100)), keys(hashkey.Max, 100))
	m := NewMachine("d", NewView(1, member("d", at(hashkey.Max)), receiver), limits)
	m.Decide(Input{Now: 1, Serving: hashkey.All()})
	end := 1 + limits.Step
	keep := keys(100, hashkey.Max)
	if d := m.Decide(Input{Now: end, Serving: keep, Draining: hashkey.All()}); d.Write == nil || d.Write.Reason != ReasonCallOff {
		t.Fatalf("wrote %+v, want the handover called off", d.Write)
	}
	receiver.Next, receiver.Revision, receiver.Generation = nil, 2, 2
	m.Apply(receiver)
	in := Input{Now: end + time.Second, Serving: hashkey.All(), Keys: noKeys}
	self := member("d", at(hashkey.Max))
	self.Report, self.Revision = m.Decide(in).Report, 3
	m.Apply(self)
	if d := m.Decide(in); d.Write != nil || d.Wake != end+4*limits.Step {
		t.Errorf("wrote %+v, wakes at %v; want to rest for 4 steps", d.Write, d.Wake)
	}
	in.Now = end + 4*limits.Step
	if d := m.Decide(in); d.Write == nil || d.Write.Reason != ReasonSplit {
		t.Errorf("wrote %+v after its rest, want a key named", d.Write)
	}
}

func TestADonorsRestsAreItsOwn(t *testing.T) {
	m := NewMachine("d", NewView(1, member("d", at(hashkey.Max)), joining("n", "d", nil), joining("o", "d", nil)), limits)
	n, o := registration{Name: "n"}, registration{Name: "o"}
	m.rest(n, time.Minute)
	m.rest(o, 2*time.Minute)
	for of, want := range map[registration]time.Duration{n: time.Minute + 4*limits.Step, o: 2*time.Minute + 4*limits.Step} {
		if until := m.restsUntil(Record{Name: of.Name}, nil); until != want {
			t.Errorf("rests for %s until %v, want %v", of.Name, until, want)
		}
	}
	m.rest(o, time.Hour)
	if len(m.rests) != 1 {
		t.Errorf("%d rests are remembered, want that which has not ended", len(m.rests))
	}
}

func TestADrainThatEndsInTimeIsGrantedAtTheLimit(t *testing.T) {
	m := NewMachine("d", NewView(1, member("d", at(hashkey.Max)), joining("n", "d", at(100))), limits)
	keep := keys(100, hashkey.Max)
	m.Decide(Input{Now: 1, Serving: keep})
	if d := stored(m, Input{Now: 1 + limits.Step, Serving: keep}); d.Write == nil || d.Write.Reason != ReasonGrant {
		t.Errorf("wrote %+v, want the grant", d.Write)
	}
}

// The first decision shuts the gate. Only a later one may ask whether it is idle, since
// work could still begin before the gate has been told.
func TestADonorAsksWhatIsInWorkOnlyAfterItsGateHasShut(t *testing.T) {
	m := NewMachine("d", NewView(1, member("d", at(hashkey.Max)), warm(joining("n", "d", at(100)), keys(hashkey.Max, 100))), limits)
	if d := m.Decide(Input{Now: 7, Serving: hashkey.All()}); d.Write != nil || d.Wake != 7 {
		t.Errorf("wrote %+v, wakes at %v; want nothing written and the next decision at once", d.Write, d.Wake)
	}
	if d := stored(m, Input{Now: 7, Serving: keys(100, hashkey.Max)}); d.Write == nil || d.Write.Reason != ReasonGrant {
		t.Errorf("wrote %+v, want the grant", d.Write)
	}
}

// A donor that has begun to drain may have granted already.
func TestADonorThatDrainsDoesNotReopenWhenTheReceiversCachesGetCold(t *testing.T) {
	receiver := joining("n", "d", at(100))
	m := NewMachine("d", NewView(1, member("d", at(hashkey.Max)), warm(receiver, keys(hashkey.Max, 100))), limits)
	m.Decide(Input{Now: 1, Serving: hashkey.All()})
	m.Apply(receiver)
	if d := m.Decide(Input{Now: 2, Serving: hashkey.All(), Draining: hashkey.All()}); !d.Open.Equal(keys(100, hashkey.Max)) {
		t.Errorf("open %v, want %v", d.Open, keys(100, hashkey.Max))
	}
}

func TestADonorFinishesOneHandoverBeforeTheNext(t *testing.T) {
	m := NewMachine("d", NewView(1, member("low", at(100)), member("d", at(300)), warm(joining("n", "d", at(200)), keys(100, 200))), limits)
	m.Decide(Input{Now: 1, Serving: keys(100, 300)})
	low := warm(member("low", at(100)), keys(hashkey.Max, 300))
	low.Next = at(150)
	m.Apply(low)
	keep := keys(200, 300)
	if d := m.Decide(Input{Now: 2, Serving: keep, Draining: hashkey.All()}); d.Write != nil {
		t.Errorf("a move up that is opened later: wrote %+v, want to go on with the drain", d.Write)
	}
	if d := stored(m, Input{Now: 3, Serving: keep}); d.Write == nil || d.Write.Reason != ReasonGrant || d.Write.Name != "n" {
		t.Errorf("drained: wrote %+v, want the join granted first", d.Write)
	}
}

func TestADonorServesMovesUpThenJoinsThenItsOwnMoveDown(t *testing.T) {
	low, n, d := member("low", at(100)), joining("n", "d", at(200)), member("d", at(300))
	low.Next, d.Next = at(150), at(250)
	high := member("high", at(hashkey.Max))
	for want, view := range map[string]*View{
		"low": NewView(1, low, n, d, high),
		"n":   NewView(1, member("low", at(100)), n, d, high),
		"d":   NewView(1, member("low", at(100)), d, high),
	} {
		m := NewMachine("d", view, limits)
		// The gate is shut, so nobody's caches are waited for.
		m.Decide(Input{Now: 1})
		if d := stored(m, Input{Now: 2}); d.Write == nil || d.Write.Name != want {
			t.Errorf("wrote %+v, want the record of %s", d.Write, want)
		}
	}
}

func TestAHandoverThatIsOpenedAgainBeginsAnew(t *testing.T) {
	receiver := joining("n", "d", at(100))
	m := NewMachine("d", NewView(1, member("d", at(hashkey.Max)), warm(receiver, keys(hashkey.Max, 100))), limits)
	m.Decide(Input{Now: 1, Serving: hashkey.All()})
	calledOff := joining("n", "d", nil)
	calledOff.Donor = ""
	m.Apply(calledOff)
	raised := member("d", at(hashkey.Max))
	raised.Report = m.Decide(Input{Now: 2, Serving: keys(100, hashkey.Max)}).Report
	m.Apply(raised)
	if d := m.Decide(Input{Now: 2, Serving: keys(100, hashkey.Max)}); !d.Open.Equal(hashkey.All()) || d.Phase != shardingv1alpha1.InstanceActive {
		t.Errorf("called off: %s, open %v; want all open again", d.Phase, d.Open)
	}
	m.Apply(receiver)
	atLimit(t, m, Input{Now: 7 * time.Second, Serving: hashkey.All()}, limits.Fill, hashkey.All())
}

func TestADonorThatTurnsToTheNextHandoverWaitsForItsReceiver(t *testing.T) {
	for name, next := range map[string]Record{
		"the same receiver with another key": joining("n", "d", at(200)),
		"another receiver with the same key": joining("o", "d", at(100)),
		"the receiver registered anew":       {Name: "n", UID: "anew", Donor: "d", Next: at(100)},
	} {
		m := NewMachine("d", NewView(1, member("d", at(hashkey.Max)), warm(joining("n", "d", at(100)), keys(hashkey.Max, 100))), limits)
		m.Decide(Input{Now: 1, Serving: hashkey.All()})
		m.Remove("n", 2)
		m.Apply(next)
		if d := m.Decide(Input{Now: 2, Serving: hashkey.All()}); !d.Open.Equal(hashkey.All()) || d.Write != nil {
			t.Errorf("%s: open %v, wrote %+v; want to wait for its caches", name, d.Open, d.Write)
		}
	}
}

func TestADonorThatWaitsForAGrantItselfWakesForWhatComesFirst(t *testing.T) {
	self := member("d", at(200))
	self.Next = at(250)
	m := NewMachine("d", NewView(1, member("low", at(100)), self, member("high", at(300)), joining("n", "d", at(150))), limits)
	in := Input{Now: 7 * time.Second, Serving: keys(100, 200)}
	if d := m.Decide(in); d.Wake != in.Now+limits.Fill {
		t.Errorf("wakes at %v, want %v, when it gives up waiting for cold caches", d.Wake, in.Now+limits.Fill)
	}
}

// What it sent before, and the grant itself, may still be on their way. Both are refused
// only when its record shows its epoch and gives nothing.
func TestADonorReopensOnlyWhenItsRecordGivesNothing(t *testing.T) {
	receiver := warm(joining("n", "d", at(100)), keys(hashkey.Max, 100))
	self := member("d", at(hashkey.Max))
	m := NewMachine("d", NewView(2, self, receiver), limits)
	m.Decide(Input{Now: 1, Serving: hashkey.All()})
	keep := keys(100, hashkey.Max)
	given := m.Decide(Input{Now: 2, Serving: keep}).Report
	if want := (Report{1, &Gift{"n", 100}}); !given.Equal(want) {
		t.Fatalf("reports %+v, want %+v", given, want)
	}
	self.Report, self.Revision = given, 3
	m.Apply(self)
	receiver.Next, receiver.Revision, receiver.Generation = nil, 4, 2
	m.Apply(receiver)
	in := Input{Now: 3, Serving: keep, Keys: noKeys, Reported: given}
	d := m.Decide(in)
	if want := (Report{Epoch: 1}); !d.Report.Equal(want) || !d.Open.Equal(keep) {
		t.Errorf("called off: reports %+v, open %v; want %+v and %v", d.Report, d.Open, want, keep)
	}
	// An answer is not enough: the caches have to be newer than the record's change.
	in.Reported = d.Report
	if d := m.Decide(in); !d.Open.Equal(keep) {
		t.Errorf("its report is stored: open %v, want %v until the log shows it", d.Open, keep)
	}
	self.Report, self.Revision = d.Report, 5
	m.Apply(self)
	if d := m.Decide(in); !d.Open.Equal(hashkey.All()) || d.Since != 5 {
		t.Errorf("the log shows it: open %v as of %d, want all keys as of 5", d.Open, d.Since)
	}
}

// Nobody works on the share while the registry does not store what the donor says or grants.
func TestAHandoverIsCalledOffAStepAfterItsDrainIfItIsNotStored(t *testing.T) {
	for what, isStored := range map[string]bool{"the report": false, "the grant": true} {
		receiver := warm(joining("n", "d", at(100)), keys(hashkey.Max, 100))
		m := NewMachine("d", NewView(1, member("d", at(hashkey.Max)), receiver), limits)
		keep := keys(100, hashkey.Max)
		m.Decide(Input{Now: 1, Serving: hashkey.All()})
		begin := 7 * time.Second
		in := Input{Now: begin, Serving: keep, Keys: noKeys}
		report := m.Decide(in).Report
		if isStored {
			in.Reported = report
		}
		for _, now := range []time.Duration{begin, begin + limits.Step - 1} {
			in.Now = now
			if d := m.Decide(in); isStored != (d.Write != nil && d.Write.Reason == ReasonGrant) || d.Wake != begin+limits.Step || !d.Waits {
				t.Errorf("%s, at %v: writes %+v, wakes at %v", what, now, d.Write, d.Wake)
			}
		}
		in.Now = begin + limits.Step
		d := m.Decide(in)
		if d.Write == nil || d.Write.Reason != ReasonCallOff || d.Write.Name != "n" || !d.Open.Equal(keep) {
			t.Fatalf("%s, at the limit: writes %+v, open %v; want the handover called off, and %v", what, d.Write, d.Open, keep)
		}
		// It is as over as any that was called off, and others ask another donor for a while.
		receiver.Next, receiver.Revision, receiver.Generation = nil, 2, 2
		m.Apply(receiver)
		if d := m.Decide(in); d.Write != nil || !d.Report.Equal(Report{Epoch: report.Epoch}) || d.Wake != in.Now+4*limits.Step {
			t.Errorf("%s, called off: writes %+v, reports %+v, wakes at %v", what, d.Write, d.Report, d.Wake)
		}
	}
}

func TestADonorRaisesItsEpochOnceForEachHandover(t *testing.T) {
	first := warm(joining("n", "d", at(100)), hashkey.All())
	m := NewMachine("d", NewView(2, member("d", at(hashkey.Max)), first), limits)
	for epoch, next := range []Record{first, warm(joining("n", "d", at(200)), hashkey.All())} {
		m.Apply(next)
		if d := m.Decide(Input{Now: 1}); d.Report.Epoch != int64(epoch) {
			t.Errorf("epoch %d before it has drained, want %d", d.Report.Epoch, epoch)
		}
		for range 3 {
			if d := m.Decide(Input{Now: 1, Draining: hashkey.All()}); d.Report.Epoch != int64(epoch) || d.Report.Gives != nil {
				t.Errorf("while it drains: reports %+v, want epoch %d and nothing given", d.Report, epoch)
			}
		}
		for range 3 {
			if d := m.Decide(Input{Now: 1}); d.Report.Epoch != int64(epoch)+1 || d.Report.Gives == nil || d.Write != nil {
				t.Errorf("drained: reports %+v, writes %+v; want epoch %d, and no grant before the report is stored", d.Report, d.Write, epoch+1)
			}
		}
	}
}
