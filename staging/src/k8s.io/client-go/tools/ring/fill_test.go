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
	"testing"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
)

// eighth is the upper end of the line, so many eighths of it.
func eighths(n uint64) hashkey.Ranges {
	if n == 8 {
		return hashkey.All()
	}
	return keys(hashkey.Max-int64(n<<60), hashkey.Max)
}

// alone returns the machine of an instance that has just taken all keys, as it held those.
func alone(held hashkey.Ranges) *Machine {
	self := Record{Name: "a", UID: "a", Held: held, Revision: 1}
	m := NewMachine("a", NewView(1, self), limits)
	key := m.Decide(Input{Now: 1}).Write.Key
	self.Key, self.Revision = key, 2
	m.Apply(self)
	return m
}

func TestARangeThatNobodyWorkedOnIsFilledInPieces(t *testing.T) {
	m := alone(nil)
	in := Input{Now: 2}
	for _, n := range []uint64{1, 2, 4, 8} {
		for range 2 {
			if d := m.Decide(in); !d.Follow.Equal(eighths(n)) || !d.Open.Equal(eighths(n)) || !d.Owned.Equal(hashkey.All()) {
				t.Fatalf("follows %v and may open %v, want the upper %d eighths", d.Follow, d.Open, n)
			}
		}
		in.Serving = eighths(n)
	}
}

func TestAnInstanceThatTakesAllKeysBeginsWithWhatItHolds(t *testing.T) {
	held := keys(99, 199)
	m := alone(held)
	d := m.Decide(Input{Now: 2})
	if self, _ := m.view.Get("a"); *self.Key != 199 {
		t.Errorf("took key %d, want the end of what it holds", *self.Key)
	}
	if !d.Open.Equal(held) || !d.Follow.Equal(held) {
		t.Errorf("follows %v and may open %v, want %v", d.Follow, d.Open, held)
	}
	// Others have lost their records, too, and come back for what they hold.
	for _, now := range []time.Duration{3, limits.Leave / 2} {
		if d := m.Decide(Input{Now: now, Serving: held}); !d.Follow.Equal(held) {
			t.Errorf("at %v it follows %v, want %v", now, d.Follow, held)
		}
	}
	in := Input{Now: 1 + limits.Leave/2, Serving: held, Keys: noKeys}
	back := joining("b", "a", nil)
	back.Held, back.Revision, back.Deleting = keys(199, 299), 3, true
	for _, deleting := range []bool{false, true} {
		// One that has come is waited for until it has that.
		back.Deleting, back.Revision = deleting, back.Revision+1
		m.Apply(back)
		if d := m.Decide(in); d.Follow.Equal(held) == deleting {
			t.Errorf("it follows %v though one that comes back is deleted: %v", d.Follow, deleting)
		}
	}
}

func TestWhoComesBackAsksWhoeverOwnsWhatItHolds(t *testing.T) {
	self := joining("n", "d", nil)
	self.Held = keys(199, 299)
	owner := member("o", at(399))
	for phase, want := range map[shardingv1alpha1.InstancePhase]bool{
		shardingv1alpha1.InstanceActive: true, shardingv1alpha1.InstanceLocked: true, shardingv1alpha1.InstanceLeaving: false,
	} {
		owner.Phase = phase
		m := NewMachine("n", NewView(1, member("d", at(100)), owner, self), limits)
		if w := m.Decide(Input{Now: 1}).Write; (w != nil && w.Donor == "o") != want {
			t.Errorf("with its owner %s it wrote %+v", phase, w)
		}
	}
}

func TestADonorWaitsForOneThatHasYetToAskWhoOwnsWhatItHolds(t *testing.T) {
	asks := joining("n", "d", nil)
	asks.Held, asks.Revision = keys(199, 299), 5
	owner := member("o", at(399))
	m := NewMachine("d", NewView(1, member("d", at(100)), owner, asks), limits)
	in := Input{Now: 1, Serving: keys(399, 100), Keys: noKeys}
	if d := m.Decide(in); d.Write != nil || d.Wake == 0 {
		t.Errorf("wrote %+v, and decides again at %v", d.Write, d.Wake)
	}
	in.Now += limits.Step
	if w := m.Decide(in).Write; w == nil {
		t.Error("it names no key though the other has not been asked for a step")
	}
}

func TestWhoComesBackIsWaitedForWhileKeysChangeHands(t *testing.T) {
	held := keys(99, 199)
	m := alone(held)
	in := Input{Now: 1 + limits.Step, Serving: held, Keys: noKeys}
	back := joining("b", "c", nil)
	back.Held, back.Revision = keys(49, 98), 3
	m.Apply(back)
	other := member("c", at(399))
	other.Revision = 4
	m.Apply(other)
	for _, now := range []time.Duration{in.Now, in.Now + limits.Step - 1} {
		in.Now = now
		if d := m.Decide(in); !d.Follow.Equal(held) {
			t.Errorf("at %v it follows %v, want %v", now, d.Follow, held)
		}
	}
	in.Now++
	if d := m.Decide(in); d.Follow.Equal(held) {
		t.Error("it fills nothing though no key has changed hands for a step")
	}
}

func TestTheHeaviestKeyNeedsRoomWholly(t *testing.T) {
	owner := member("o", at(hashkey.Max))
	owner.Weight, owner.Heaviest = 100, 60
	m := NewMachine("a", NewView(1, owner, joining("a", "o", nil)), limits)
	half := keys(hashkey.Max, 1<<62-1)
	for room, want := range map[int64]bool{79: false, 80: true} {
		if got := m.hasRoomFor(half, &room); got != want {
			t.Errorf("with room for %d: %v, want %v", room, got, want)
		}
	}
}

// Both have held that, as when one was about to give it to the other.
func TestADonorKeepsWhatItHeldWhileItsGateIsShut(t *testing.T) {
	m := alone(keys(99, 199))
	back := joining("b", "a", nil)
	for held, want := range map[hashkey.Range]bool{span(50, 99): true, span(150, 175): false, span(200, 300): true} {
		back.Held, back.Revision = hashkey.NewRanges(held), back.Revision+3
		m.Apply(back)
		w := m.Decide(Input{Now: 2, Keys: noKeys}).Write
		if w == nil || (*w.Next == int64(held.End)-1) != want {
			t.Errorf("to one that has held %v it gives up to %+v", held, w)
		}
	}
}

func TestAReceiverFillsNothingElseThatItHasNoRoomFor(t *testing.T) {
	held := keys(99, 199)
	m := alone(held)
	other := warm(member("c", at(399)), keys(199, 399))
	other.Revision = 3
	m.Apply(other)
	self, _ := m.view.Get("a")
	self.Next, self.Revision = at(250), 4
	m.Apply(self)
	room := int64(1000)
	if d := m.Decide(Input{Now: 2, Serving: held, Room: &room}); !d.Follow.Equal(keys(99, 250)) {
		t.Errorf("follows %v, want %v", d.Follow, keys(99, 250))
	}
}

func TestWhoComesBackIsGivenWhatItHoldsBesideWhatIsWorkedOn(t *testing.T) {
	mine, theirs := keys(99, 199), keys(199, 299)
	m := alone(mine)
	m.Decide(Input{Now: 2})
	back := joining("b", "a", nil)
	back.Held, back.Revision = theirs, 3
	m.Apply(back)
	d := m.Decide(Input{Now: 3, Serving: mine, Keys: noKeys})
	if w := d.Write; w == nil || w.Reason != ReasonSplit || *w.Next != 299 {
		t.Fatalf("wrote %+v, want the end of what it holds named", w)
	}
	back.Next, back.Revision, back.Phase = at(299), 4, shardingv1alpha1.InstanceLocked
	m.Apply(back)
	// Nothing is worked on there, so nothing has to be warm.
	in := Input{Now: 4, Serving: mine, Keys: noKeys}
	m.Decide(in)
	if d := stored(m, in); d.Write == nil || d.Write.Reason != ReasonGrant {
		t.Errorf("wrote %+v, want the grant", d.Write)
	}
}

func TestHalfOfWhatIsNotBegunToBeFilledIsGivenToWhoeverAsks(t *testing.T) {
	m := alone(nil)
	m.Decide(Input{Now: 2})
	asks := joining("b", "a", nil)
	asks.Revision = 3
	m.Apply(asks)
	d := m.Decide(Input{Now: 3, Keys: noKeys})
	want := int64(7<<60/2) - 1
	if w := d.Write; d.Phase != shardingv1alpha1.InstanceLocked || w == nil || w.Reason != ReasonSplit || *w.Next != want {
		t.Errorf("in phase %s it wrote %+v, want key %d named: half of seven eighths", d.Phase, w, want)
	}
}

func TestTheReceiverOfWhatNobodyWorksOnFillsAPieceAndOwnsTheRest(t *testing.T) {
	donor := member("d", at(hashkey.Max))
	donor.Phase = shardingv1alpha1.InstanceLocked
	self := joining("a", "d", at(1<<62-1))
	m := NewMachine("a", NewView(1, donor, self), limits)
	piece := keys(1<<62-1-1<<59, 1<<62-1)
	for now := range time.Duration(3) {
		if d := m.Decide(Input{Now: 1 + now}); !d.Follow.Equal(piece) {
			t.Fatalf("follows %v, want %v", d.Follow, piece)
		}
	}
	self.Key, self.Next, self.Revision = self.Next, nil, 2
	m.Apply(self)
	if d := m.Decide(Input{Now: 5}); !d.Open.Equal(piece) || !d.Follow.Equal(piece) {
		t.Errorf("may open %v, want %v", d.Open, piece)
	}
}

func TestWhatCannotBeFilledInTimeIsHalved(t *testing.T) {
	m := alone(nil)
	m.Decide(Input{Now: 2})
	if d := m.Decide(Input{Now: 2 + limits.Fill - 1}); !d.Follow.Equal(eighths(1)) {
		t.Errorf("follows %v before the limit", d.Follow)
	}
	m.Decide(Input{Now: 2 + limits.Fill})
	if d := m.Decide(Input{Now: 3 + limits.Fill}); d.Follow.Width() != 1<<59 {
		t.Errorf("follows %v, want half of an eighth", d.Follow)
	}
}

// The receiver's caches are no larger the next time.
func TestAShareThatWasNotFilledIsHalvedTheNextTime(t *testing.T) {
	m := NewMachine("d", NewView(1, member("d", at(hashkey.Max)), joining("n", "d", nil)), limits)
	in := Input{Now: 1, Serving: hashkey.All(), Keys: noKeys}
	next := int64(hashkey.Max)
	for n := range 4 {
		d := m.Decide(in)
		if d.Write == nil || d.Write.Reason != ReasonSplit {
			t.Fatalf("attempt %d: wrote %+v", n, d.Write)
		}
		if want := next / 2; *d.Write.Next != want {
			t.Errorf("attempt %d: the key is %d, want %d", n, *d.Write.Next, want)
		}
		next = *d.Write.Next
		m.Apply(Record{Name: "n", UID: "n", Donor: "d", Next: d.Write.Next, Phase: shardingv1alpha1.InstanceLocked, Revision: int64(2 + 2*n)})
		m.Decide(in)
		in.Now += limits.Fill
		if d := m.Decide(in); d.Write == nil || d.Write.Reason != ReasonCallOff {
			t.Fatalf("attempt %d: wrote %+v, want the handover called off", n, d.Write)
		}
		m.Apply(Record{Name: "n", UID: "n", Donor: "d", Phase: shardingv1alpha1.InstanceInit, Revision: int64(3 + 2*n)})
		in.Now += 4 * limits.Step
	}
}

func TestNoMoreIsFilledThanThereIsRoomFor(t *testing.T) {
	m := alone(nil)
	m.Decide(Input{Now: 2})
	self, _ := m.view.Get("a")
	self.Weight, self.Revision = 1000, 3
	m.Apply(self)
	room := int64(500)
	d := m.Decide(Input{Now: 3, Serving: eighths(1), Room: &room})
	if got, want := d.Follow.Width(), uint64(1<<60+1<<59); got != want {
		t.Errorf("follows %d keys, want %d: there is room for half as much again", got, want)
	}
	room = 0
	follow := d.Follow
	if d := m.Decide(Input{Now: 4, Serving: follow, Room: &room}); !d.Follow.Equal(follow) {
		t.Errorf("follows %v though there is no room", d.Follow)
	}
}

func TestARangeIsCutBesideAKeyWhoseWorkMayNeverEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		stuck []int64
		want  *int64
	}{
		"nothing is stuck":          {nil, at(1<<62 - 1)},
		"a key in the donor's half": {[]int64{1 << 62}, at(1<<62 - 1)},
		"a key in the other half":   {[]int64{1 << 61}, at(1<<61 - 1)},
		"two":                       {[]int64{1 << 61, 1 << 60}, at(1<<60 - 1)},
		"the first key":             {[]int64{0}, nil},
	} {
		m := NewMachine("d", NewView(1, member("d", at(hashkey.Max)), joining("n", "d", nil)), limits)
		w := m.Decide(Input{Now: 1, Serving: hashkey.All(), Keys: noKeys, Stuck: tc.stuck}).Write
		if (w == nil) != (tc.want == nil) || w != nil && *w.Next != *tc.want {
			t.Errorf("%s: wrote %+v, want %s", name, w, hashkey.FormatOptional(tc.want))
		}
	}
}

// It had filled its caches for those that have left.
func TestAnHeirGoesOnWithTheCachesThatItHasFilled(t *testing.T) {
	leaves := member("z", at(hashkey.Max))
	leaves.Phase = shardingv1alpha1.InstanceLeaving
	self := joining("a", "", nil)
	self.Revision = 1
	m := NewMachine("a", NewView(1, leaves, self), limits)
	if d := m.Decide(Input{Now: 1}); !d.Follow.Equal(hashkey.All()) {
		t.Fatalf("follows %v, want everything", d.Follow)
	}
	m.Remove("z", 2)
	d := m.Decide(Input{Now: 2})
	if d.Write == nil || d.Write.Reason != ReasonFirst || !d.Follow.Equal(hashkey.All()) {
		t.Fatalf("wrote %+v and follows %v", d.Write, d.Follow)
	}
	self.Key, self.Revision = d.Write.Key, 3
	m.Apply(self)
	if d := m.Decide(Input{Now: 3}); !d.Open.Equal(hashkey.All()) {
		t.Errorf("may open %v, want everything", d.Open)
	}
}

// Otherwise it would be named, drained for and called off again and again.
func TestWhatComesBackIsNotGivenWithAKeyWhoseWorkMayNeverEnd(t *testing.T) {
	back := joining("n", "d", nil)
	back.Held = keys(hashkey.Max, 1<<61)
	for _, stuck := range [][]int64{nil, {1 << 60}} {
		m := NewMachine("d", NewView(1, member("d", at(hashkey.Max)), back), limits)
		w := m.Decide(Input{Now: 1, Serving: hashkey.All(), Keys: noKeys, Stuck: stuck}).Write
		want := int64(1 << 61)
		if stuck != nil {
			want = 1<<60 - 1
		}
		if w == nil || *w.Next != want {
			t.Errorf("with %v stuck it wrote %+v, want key %d", stuck, w, want)
		}
	}
}

func TestSlowWorkKeepsADonorFromDrainingForAStepAtMost(t *testing.T) {
	m := NewMachine("d", NewView(1, member("d", at(hashkey.Max)), warm(joining("n", "d", at(1<<62)), keys(hashkey.Max, 1<<62))), limits)
	in := Input{Now: 1, Serving: hashkey.All(), Keys: noKeys, Draining: hashkey.All()}
	for now := time.Second; now < limits.Step; now += time.Second {
		// Each time it is another key.
		in.Now, in.Slow = now, []int64{int64(now)}
		if d := m.Decide(in); !d.Open.Equal(hashkey.All()) {
			t.Fatalf("at %v open %v, want everything", now, d.Open)
		}
	}
	in.Now = time.Second + limits.Step
	if d := m.Decide(in); d.Open.Contains(1) {
		t.Errorf("open %v, want the share shut", d.Open)
	}
}

func TestNobodyFollowsMoreOfAPredecessorThatLeavesThanThereIsRoomFor(t *testing.T) {
	leaves := member("a", at(1<<62))
	leaves.Phase, leaves.Weight = shardingv1alpha1.InstanceLeaving, 1000
	mine := keys(1<<62, hashkey.Max)
	for room, want := range map[int64]hashkey.Ranges{999: mine, 1000: hashkey.All()} {
		m := NewMachine("b", NewView(1, leaves, member("b", at(hashkey.Max))), limits)
		// What it has begun to follow takes that room.
		for _, left := range []int64{room, room - 1000} {
			if d := m.Decide(Input{Now: 1, Serving: mine, Room: &left}); !d.Follow.Equal(want) {
				t.Errorf("with room for %d of %d it follows %v, want %v", left, room, d.Follow, want)
			}
		}
	}
}

func TestWhoComesBackIsNotGivenWhatAnotherWorksOn(t *testing.T) {
	back := joining("n", "d", nil)
	back.Held = keys(50, 100)
	m := NewMachine("d", NewView(1, member("d", at(hashkey.Max)), back), limits)
	if w := m.Decide(Input{Now: 1, Serving: hashkey.All(), Keys: noKeys}).Write; w == nil || *w.Next != 1<<62-1 {
		t.Errorf("wrote %+v, want the middle: it holds nothing of what comes before", w)
	}
}

// Its donor serves nobody else meanwhile.
func TestWhoHasNoRoomForWhatItIsNamedGivesThatUpSoon(t *testing.T) {
	donor := member("d", at(hashkey.Max))
	donor.Weight = 100
	for room, limit := range map[int64]time.Duration{49: limits.Step, 50: limits.Fill + 3*limits.Step} {
		m := NewMachine("n", NewView(1, donor, joining("n", "d", at(1<<62-1))), limits)
		m.Decide(Input{Now: 1, Room: &room})
		for now, want := range map[time.Duration]bool{limit: false, 1 + limit: true} {
			if w := m.Decide(Input{Now: now, Room: &room}).Write; (w != nil) != want {
				t.Errorf("with room for %d it wrote %+v at %v", room, w, now)
			}
		}
	}
}

func TestWhoHasGivenUpAShareIsNamedHalfOfThat(t *testing.T) {
	for after, want := range map[time.Duration]int64{limits.Step - 1: 1<<62 - 1, limits.Step: 1<<61 - 1} {
		m := NewMachine("d", NewView(1, member("d", at(hashkey.Max)), joining("n", "d", at(1<<62-1))), limits)
		in := Input{Now: 1, Serving: hashkey.All(), Keys: noKeys}
		m.Decide(in)
		again := joining("n", "d", nil)
		again.Revision = 2
		m.Apply(again)
		in.Now += after
		if w := m.Decide(in).Write; w == nil || *w.Next != want {
			t.Errorf("given up after %v, wrote %+v, want key %d named", after, w, want)
		}
	}
}

// What is warm has to be drained, and has a worker already.
func TestWhoJoinsAsksFirstForWhatNobodyWorksOn(t *testing.T) {
	heavy := warm(member("h", at(1<<62)), hashkey.All())
	heavy.Weight = 1000
	fills := warm(member("f", at(hashkey.Max)), keys(1<<62+1<<61, hashkey.Max))
	fills.Phase = shardingv1alpha1.InstanceLocked
	// Where all begin with nothing they share by weight.
	for donor, held := range map[string]hashkey.Ranges{"h": nil, "f": fills.Cached} {
		fills.Held = held
		m := NewMachine("n", NewView(1, heavy, fills, joining("n", "", nil)), limits)
		if w := m.Decide(Input{Now: 1}).Write; w == nil || w.Donor != donor {
			t.Errorf("where it had held %v before, wrote %+v, want %s asked", held, w, donor)
		}
	}
}
