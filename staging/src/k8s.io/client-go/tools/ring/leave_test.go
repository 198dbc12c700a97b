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

// leaver returns the machine of a, which owns (300, Max] and [0, 100]. Its successor is
// b with (100, 200], and the next one c.
func leaver(b, c Record) *Machine {
	self := member("a", at(100))
	self.Revision = 3
	return NewMachine("a", NewView(3, self, b, c), limits)
}

// drainedLeaver returns that machine once a is drained.
func drainedLeaver(b, c Record) *Machine {
	m := leaver(b, c)
	self, _ := m.view.Get("a")
	self = drained(self)
	self.Revision = 4
	m.Apply(self)
	return m
}

func TestALeaverWaitsForItsSuccessorsCachesUpToTheLimit(t *testing.T) {
	// All but one of the keys that the successor will own.
	cold := warm(member("b", at(200)), keys(301, 200))
	m := leaver(cold, member("c", at(300)))
	in := Input{Now: 7 * time.Second, Leaving: true, Serving: keys(300, 100)}
	d := atLimit(t, m, in, limits.Leave, keys(300, 100))
	if !d.Open.Empty() || d.Phase != shardingv1alpha1.InstanceLeaving || d.Write != nil {
		t.Errorf("at the limit: %s, open %v, wrote %+v; want all shut", d.Phase, d.Open, d.Write)
	}
}

func TestALeaverShutsItsGateWhenItsSuccessorsCachesAreWarm(t *testing.T) {
	leaves := member("b", at(200))
	leaves.Phase = shardingv1alpha1.InstanceLeaving
	for name, m := range map[string]*Machine{
		"the successor is warm":                      leaver(warm(member("b", at(200)), keys(300, 200)), member("c", at(300))),
		"the successor leaves, the next is warm":     leaver(leaves, warm(member("c", at(300)), hashkey.All())),
		"nobody is left to take over":                NewMachine("a", NewView(3, member("a", at(100))), limits),
		"it owns nothing":                            NewMachine("n", NewView(3, member("a", at(100)), joining("n", "a", nil)), limits),
		"the successor is warm for what it owns yet": leaver(warm(member("b", at(200)), hashkey.All()), member("c", at(300))),
	} {
		if d := m.Decide(Input{Now: 1, Leaving: true, Serving: keys(300, 100)}); !d.Open.Empty() || d.Wake != 1 || d.Write != nil {
			t.Errorf("%s: open %v, wakes at %v, wrote %+v; want all shut, and the next decision at once", name, d.Open, d.Wake, d.Write)
		}
	}
}

// Where no owner stays, the oldest that joins takes everything.
func TestALeaverWaitsForTheCachesOfOneThatJoins(t *testing.T) {
	cold := joining("n", "a", nil)
	m := NewMachine("a", NewView(3, member("a", at(100)), cold), limits)
	in := Input{Now: 1, Leaving: true, Serving: hashkey.All()}
	if d := m.Decide(in); !d.Open.Equal(hashkey.All()) || d.Write != nil {
		t.Errorf("open %v, wrote %+v, want to wait", d.Open, d.Write)
	}
	full := warm(cold, hashkey.All())
	full.Revision = 4
	m.Apply(full)
	if d := m.Decide(in); !d.Open.Empty() {
		t.Errorf("open %v though everything is cached, want all shut", d.Open)
	}
}

func TestALeaverGoesOnlyWhenItsWorkHasEnded(t *testing.T) {
	m := leaver(warm(member("b", at(200)), hashkey.All()), member("c", at(300)))
	m.Decide(Input{Now: 1, Leaving: true, Serving: keys(300, 100)})
	for _, draining := range []hashkey.Ranges{keys(300, 100), keys(199, 200)} {
		if d := m.Decide(Input{Now: time.Hour, Leaving: true, Draining: draining}); d.Write != nil || !d.Open.Empty() {
			t.Errorf("at work on %v: wrote %+v, open %v; want to wait however long it takes", draining, d.Write, d.Open)
		}
	}
	d := m.Decide(Input{Now: time.Hour, Leaving: true})
	if w := d.Write; w == nil || w.Reason != ReasonLeave || !w.Delete || w.Name != "a" || w.UID != "a" {
		t.Errorf("idle: wrote %+v, want its record deleted", w)
	}
}

func TestALeaverThatHasShutItsGateDoesNotReopenIt(t *testing.T) {
	b := member("b", at(200))
	m := leaver(warm(b, hashkey.All()), member("c", at(300)))
	m.Decide(Input{Now: 1, Leaving: true, Serving: keys(300, 100)})
	m.Apply(b)
	if d := m.Decide(Input{Now: 2, Leaving: true, Draining: hashkey.All()}); !d.Open.Empty() {
		t.Errorf("open %v though the gate had shut, want nothing", d.Open)
	}
}

// A donor that is asked to leave may have sent its grant. What it gives away stays shut
// while it waits for its successor.
func TestALeaverKeepsShutWhatItGivesAway(t *testing.T) {
	m := leaver(member("b", at(200)), member("c", at(300)))
	m.Apply(joining("n", "a", at(50)))
	m.Decide(Input{Now: 1, Serving: keys(50, 100)})
	if d := m.Decide(Input{Now: 2, Leaving: true, Serving: keys(50, 100), Draining: hashkey.All()}); !d.Open.Equal(keys(50, 100)) {
		t.Errorf("open %v, want %v", d.Open, keys(50, 100))
	}
}

// Nobody can be granted it any more.
func TestALeaverReopensWhatNobodyIsGivenAnyMore(t *testing.T) {
	m := leaver(member("b", at(200)), member("c", at(300)))
	join := joining("n", "a", at(50))
	m.Apply(join)
	m.Decide(Input{Now: 1, Serving: keys(50, 100)})
	m.Decide(Input{Now: 2, Leaving: true, Serving: keys(50, 100), Draining: hashkey.All()})
	join.Next, join.Revision = nil, 5
	m.Apply(join)
	d := m.Decide(Input{Now: 3, Leaving: true, Serving: keys(50, 100), Draining: hashkey.All()})
	if !d.Open.Equal(keys(50, 100)) || d.Report.Epoch != 1 {
		t.Errorf("open %v with epoch %d, want what it serves until epoch 1 is stored", d.Open, d.Report.Epoch)
	}
	self, _ := m.view.Get("a")
	self.Report, self.Revision = d.Report, 6
	m.Apply(self)
	if d := m.Decide(Input{Now: 4, Leaving: true, Serving: keys(50, 100), Draining: hashkey.All()}); !d.Open.Equal(keys(300, 100)) {
		t.Errorf("open %v, want all of %v", d.Open, keys(300, 100))
	}
}

// A drained instance can come to own a range again, when the oldest takes everything.
func TestADrainedOwnerOpensWhatItHasGainedBeforeItLeaves(t *testing.T) {
	m := drainedLeaver(member("b", at(200)), member("c", at(300)))
	in := Input{Now: 1, Serving: nil}
	if d := m.Decide(in); !d.Open.Equal(keys(300, 100)) || d.Write != nil {
		t.Errorf("open %v, wrote %+v, want what its caches hold", d.Open, d.Write)
	}
}

// Several leave at once: one goes because this one's caches are warm, before it has seen that
// this one leaves as well.
func TestALeaverKeepsTheCachesOfAPredecessorThatLeaves(t *testing.T) {
	low, self := member("low", at(100)), warm(member("self", at(200)), keys(hashkey.Max, 200))
	low.Phase = shardingv1alpha1.InstanceLeaving
	m := NewMachine("self", NewView(1, low, self, member("high", at(hashkey.Max))), limits)
	if d := m.Decide(Input{Now: 1, Leaving: true, Serving: keys(100, 200)}); !d.Follow.Equal(keys(hashkey.Max, 200)) {
		t.Errorf("follows %v, want %v, which it has", d.Follow, keys(hashkey.Max, 200))
	}
	// It fills none for others any more.
	cold := member("self", at(200))
	m.Apply(cold)
	if d := m.Decide(Input{Now: 2, Leaving: true, Serving: keys(100, 200)}); !d.Follow.Equal(keys(100, 200)) {
		t.Errorf("follows %v, want %v", d.Follow, keys(100, 200))
	}
	// The predecessor may have seen what the log does not show here yet.
	if d := m.Decide(Input{Now: 3, Leaving: true, Serving: keys(100, 200), Announced: keys(hashkey.Max, 200)}); !d.Follow.Equal(keys(hashkey.Max, 200)) {
		t.Errorf("follows %v, want %v, which it has told", d.Follow, keys(hashkey.Max, 200))
	}
}

func drained(r Record) Record {
	r.Drained = true
	return r
}

// Nothing hurries it.
func TestADrainedOwnerWaitsForWarmCachesWithoutALimit(t *testing.T) {
	m := drainedLeaver(member("b", at(200)), member("c", at(300)))
	in := Input{Now: 1, Serving: keys(300, 100)}
	for _, now := range []time.Duration{1, limits.Leave, limits.Fill, time.Hour} {
		in.Now = now
		if d := m.Decide(in); d.Phase != shardingv1alpha1.InstanceLeaving || !d.Open.Equal(in.Serving) || d.Write != nil {
			t.Errorf("at %v: %s, open %v, wrote %+v", now, d.Phase, d.Open, d.Write)
		}
	}
	b := warm(member("b", at(200)), keys(300, 200))
	b.Revision = 5
	m.Apply(b)
	if d := m.Decide(in); !d.Open.Empty() {
		t.Errorf("open %v though the successor is warm", d.Open)
	}
}

func TestADrainThatIsTakenBackLeavesTheRangeWhereItIs(t *testing.T) {
	for name, serving := range map[string]hashkey.Ranges{"the gate is open": keys(300, 100), "the gate is shut": nil} {
		b := member("b", at(200))
		if serving == nil {
			b = warm(b, keys(300, 200))
		}
		m := leaver(b, member("c", at(300)))
		self, _ := m.view.Get("a")
		self.Drained, self.Revision = true, 4
		m.Apply(self)
		m.Decide(Input{Now: 1, Serving: keys(300, 100), Draining: hashkey.All()})
		m.Decide(Input{Now: 2, Serving: serving, Draining: hashkey.All()})
		self.Drained, self.Revision = false, 5
		m.Apply(self)
		in := Input{Now: 3, Serving: serving, Draining: hashkey.All()}
		d := stored(m, in)
		self.Report, self.Revision = d.Report, 6
		m.Apply(self)
		if d = m.Decide(in); d.Phase == shardingv1alpha1.InstanceLeaving || !d.Open.Equal(keys(300, 100)) || d.Write != nil {
			t.Errorf("%s: %s, open %v, wrote %+v", name, d.Phase, d.Open, d.Write)
		}
		if d.Since < 5 && serving == nil {
			t.Errorf("%s: the caches may be as of %d, before the gate was shut", name, d.Since)
		}
	}
}

func TestADrainedOwnerGivesNothingToACrashLoop(t *testing.T) {
	self := drained(member("a", at(hashkey.Max)))
	self.Revision = 1
	m := NewMachine("a", NewView(1, self), limits)
	crash := func(now time.Duration, revision int64, name string) {
		r := member(name, at(1))
		r.Holder, r.Revision = "host_"+name, revision
		m.Apply(r)
		m.Decide(Input{Now: now, Serving: hashkey.All(), Keys: noKeys})
		m.Remove(name, revision+1)
		m.Decide(Input{Now: now + time.Second, Serving: hashkey.All(), Keys: noKeys})
	}
	self.Drained, self.Revision = false, 2
	m.Apply(self)
	crash(1, 3, "x")
	self.Drained, self.Revision = true, 5
	m.Apply(self)
	next := joining("y", "", nil)
	next.Holder, next.Revision = "host_y", 6
	m.Apply(next)
	for now, leaves := range map[time.Duration]bool{time.Minute: false, youngAge: false, youngAge + firstRest + 2*time.Second: true} {
		m := *m
		d := m.Decide(Input{Now: now, Serving: hashkey.All(), Keys: noKeys})
		if got := d.Phase == shardingv1alpha1.InstanceLeaving; got != leaves {
			t.Errorf("%v after the crash it leaves: %t, want %t", now, got, leaves)
		}
	}
}

func TestADrainedInstanceLeavesWhileAnotherCanOwnItsRange(t *testing.T) {
	m := NewMachine("a", NewView(1, drained(member("a", at(hashkey.Max)))), limits)
	decide := func() Decision { return m.Decide(Input{Now: 1, Serving: hashkey.All(), Keys: noKeys}) }
	if d := decide(); d.Phase != shardingv1alpha1.InstanceActive {
		t.Errorf("alone it is %s", d.Phase)
	}
	for _, other := range []Record{{Name: "b", Phase: shardingv1alpha1.InstanceLeaving}, {Name: "b", Deleting: true}, {Name: "b", Drained: true}} {
		other.Revision = m.View().Revision + 1
		m.Apply(other)
		if d := decide(); d.Phase != shardingv1alpha1.InstanceActive {
			t.Errorf("with %+v it is %s", other, d.Phase)
		}
	}
	m.Apply(Record{Name: "b", Revision: m.View().Revision + 1, Phase: shardingv1alpha1.InstanceInit})
	if d := decide(); d.Phase != shardingv1alpha1.InstanceLeaving {
		t.Errorf("with another it is %s", d.Phase)
	}
}
