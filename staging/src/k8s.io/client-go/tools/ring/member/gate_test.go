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
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/client-go/tools/ring/fence"
	testclock "k8s.io/utils/clock/testing"
)

func TestGateLetsInOnlyOpenKeysBeforeItsDeadline(t *testing.T) {
	now := time.Now()
	clock := testclock.NewFakeClock(now)
	g := NewGate(clock)
	g.For(controllerName).set(true)
	enters := func(key int64) bool {
		leave, ok := g.For(controllerName).Enter(key)
		if ok {
			leave()
		}
		return ok
	}
	if enters(5) {
		t.Error("a new gate let work in")
	}
	g.set(hashkey.NewRanges(hashkey.Range{Start: 0, End: 10}))
	if enters(5) {
		t.Error("work was let in without a deadline to believe in")
	}
	if !g.extend(fence.Identity{}, now.Add(5*time.Second)) {
		t.Error("extend did not tell of the work that was turned away")
	}
	if g.extend(fence.Identity{}, now.Add(5*time.Second)) {
		t.Error("extend told twice of the work that was turned away")
	}
	if !enters(0) || !enters(9) {
		t.Error("keys of the range were not let in")
	}
	if enters(10) {
		t.Error("the end of the range was let in, which is exclusive")
	}
	clock.SetTime(now.Add(5*time.Second - 1))
	if !enters(5) {
		t.Error("work was not let in before the deadline")
	}
	clock.SetTime(now.Add(5 * time.Second))
	if enters(5) {
		t.Error("work was let in at the deadline")
	}
	if g.extend(fence.Identity{}, now.Add(time.Second)); !g.Deadline().Equal(now.Add(5 * time.Second)) {
		t.Errorf("an earlier deadline replaced a later one: %v", g.Deadline())
	}
	clock.SetTime(now)
	g.expire()
	if enters(5) {
		t.Error("an expired gate let work in")
	}
}

// A renewal whose answer comes after the record is known to be gone says nothing of now.
func TestALateAnswerRevivesNoGateThatHasExpired(t *testing.T) {
	now := time.Now()
	g := NewGate(testclock.NewFakeClock(now))
	g.For(controllerName).set(true)
	first, second := fence.Identity{Name: "i", UID: "1"}, fence.Identity{Name: "i", UID: "2"}
	g.begin(first, now.Add(time.Second), 0)
	g.expire()
	if g.extend(first, now.Add(time.Minute)); !g.Deadline().IsZero() {
		t.Errorf("requests may be sent until %v after the gate has expired", g.Deadline())
	}
	g.begin(second, now.Add(time.Second), 0)
	if g.extend(first, now.Add(time.Minute)); !g.Deadline().Equal(now.Add(time.Second)) {
		t.Errorf("the last registration's answer moved the deadline to %v", g.Deadline())
	}
	if g.extend(second, now.Add(time.Minute)); !g.Deadline().Equal(now.Add(time.Minute)) {
		t.Errorf("the deadline is %v, want %v", g.Deadline(), now.Add(time.Minute))
	}
}

// What is new under another registration is told of when its ranges are opened.
func TestANewRegistrationForgetsTheWorkThatWasTurnedAwayUnderTheLast(t *testing.T) {
	now := time.Now()
	g := NewGate(testclock.NewFakeClock(now))
	g.For(controllerName).set(true)
	g.set(hashkey.All())
	if _, ok := g.For(controllerName).Enter(1); ok {
		t.Fatal("work was let in without a deadline to believe in")
	}
	g.expire()
	self := fence.Identity{Name: "i", UID: "2"}
	g.begin(self, now.Add(time.Second), 0)
	if g.extend(self, now.Add(2*time.Second)) {
		t.Error("extend told of work that was turned away under another registration")
	}
}

func TestWhatAGateServesDoesNotDependOnItsDeadline(t *testing.T) {
	g := NewGate(testclock.NewFakeClock(time.Now()))
	g.For(controllerName).set(true)
	g.set(low)
	if !g.For(controllerName).Serves(99) || g.For(controllerName).Serves(100) || g.For(controllerName).ServesAll() {
		t.Errorf("serves 99: %t, 100: %t, all: %t; want the first alone", g.For(controllerName).Serves(99), g.For(controllerName).Serves(100), g.For(controllerName).ServesAll())
	}
	if g.set(hashkey.All()); !g.For(controllerName).ServesAll() {
		t.Error("does not serve all keys")
	}
}

func TestGateCountsWorkUntilItsEnd(t *testing.T) {
	now := time.Now()
	g := NewGate(testclock.NewFakeClock(now))
	g.For(controllerName).set(true)
	g.set(hashkey.All())
	g.extend(fence.Identity{}, now.Add(time.Minute))
	ended := 0
	g.notify(func() { ended++ })
	first, _ := g.For(controllerName).Enter(7)
	second, _ := g.For(controllerName).Enter(7)
	other, _ := g.For(controllerName).Enter(70)
	low := hashkey.NewRanges(hashkey.Range{Start: 0, End: 10})
	g.set(hashkey.All().Minus(low))
	if n := g.Busy(low); n != 2 {
		t.Errorf("%d pieces of work in the shut range, want 2", n)
	}
	if _, ok := g.For(controllerName).Enter(7); ok {
		t.Error("work was let into the shut range")
	}
	first()
	if n := g.Busy(low); n != 1 {
		t.Errorf("%d pieces of work in the shut range, want 1", n)
	}
	second()
	if n := g.Busy(low); n != 0 {
		t.Errorf("%d pieces of work in the shut range, want none", n)
	}
	if n := g.Busy(hashkey.All()); n != 1 {
		t.Errorf("%d pieces of work in all, want 1", n)
	}
	another, _ := g.For("another").Enter(71)
	if another != nil {
		t.Error("work of a controller whose door is shut was let in")
	}
	if busy := g.busyIn(low); len(busy) != 0 {
		t.Errorf("%q work in the shut range, want nobody", busy)
	}
	if busy := g.busyIn(hashkey.All()); !slices.Equal(busy, []string{controllerName}) {
		t.Errorf("%q work, want %q", busy, controllerName)
	}
	other()
	if ended != 3 {
		t.Errorf("the end of work was told %d times, want 3", ended)
	}
}

func TestAGateTellsWhatHasBeenInWorkForLong(t *testing.T) {
	now := time.Now()
	clock := testclock.NewFakeClock(now)
	g := NewGate(clock)
	g.For(controllerName).set(true)
	g.set(hashkey.All())
	g.extend(fence.Identity{}, now.Add(time.Hour))
	expect := func(when string, want ...int64) {
		t.Helper()
		var got []int64
		for _, l := range g.lasts(clock.Now(), time.Minute) {
			got = append(got, l.key)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s the keys are %v, want %v", when, got, want)
		}
	}
	first, _ := g.For(controllerName).Enter(1)
	clock.Step(time.Minute - 1)
	expect("before the time is up")
	second, _ := g.For(controllerName).Enter(2)
	clock.Step(1)
	expect("when it is", 1)
	clock.Step(time.Minute)
	expect("later", 1, 2)
	first()
	expect("after the end of the first", 2)
	second()
	expect("after the end of all")
}

func TestAGateTellsHowLongWorkGoesOnBehindADoorThatWasShut(t *testing.T) {
	now := time.Now()
	clock := testclock.NewFakeClock(now)
	g := NewGate(clock)
	door := g.For(controllerName)
	door.set(true)
	g.set(hashkey.All())
	g.extend(fence.Identity{}, now.Add(time.Hour))
	leave, _ := door.Enter(1)
	clock.Step(time.Minute)
	if got := g.heldUp(clock.Now()); got != 0 {
		t.Errorf("behind an open door: %v", got)
	}
	door.set(false)
	clock.Step(time.Minute)
	if got := g.heldUp(clock.Now()); got != time.Minute {
		t.Errorf("a minute after the door was shut: %v", got)
	}
	leave()
	if got := g.heldUp(clock.Now()); got != 0 {
		t.Errorf("after the work has ended: %v", got)
	}
}

func TestAnEpochIsRaisedOnlyForItsRegistrationAndNeverFalls(t *testing.T) {
	g := NewGate(testclock.NewFakeClock(time.Now()))
	g.For(controllerName).set(true)
	self := fence.Identity{Ring: "r", Name: "i", UID: "1"}
	if _, ok := g.identity(); ok {
		t.Error("requests are sent in somebody's name before a registration")
	}
	g.begin(self, time.Now().Add(time.Minute), 0)
	g.raise(self, 2)
	g.raise(self, 1)
	g.raise(fence.Identity{Name: "i", UID: "2"}, 5)
	want := self
	want.Epoch = 2
	if got, ok := g.identity(); !ok || got != want {
		t.Errorf("requests are sent in the name of %v, want %v", got, want)
	}
	// A renewal that was sent before the epoch was raised is one of this registration.
	if g.extend(self, time.Now().Add(time.Hour)); time.Until(g.Deadline()) < 59*time.Minute {
		t.Errorf("the deadline is %v", g.Deadline())
	}
	g.expire()
	g.raise(self, 7)
	if got, ok := g.identity(); ok {
		t.Errorf("requests are sent in the name of %v after the record was lost", got)
	}
}
