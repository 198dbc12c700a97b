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

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
)

func TestAnInstanceWithoutARecordIsGone(t *testing.T) {
	m := NewMachine("a", NewView(1, member("a", at(5)), member("b", at(9))), limits)
	m.Remove("a", 2)
	if d := m.Decide(Input{Now: 1, Serving: hashkey.All()}); !d.Gone || !d.Open.Empty() || d.Write != nil {
		t.Errorf("decides %+v, want nothing but Gone", d)
	}
}

func TestOnlyGainedKeysAskForNewerCaches(t *testing.T) {
	m := NewMachine("b", NewView(1, member("a", at(5)), member("b", at(9)), member("c", at(20))), limits)
	since := func() int64 { return m.Decide(Input{Now: 1, Serving: m.View().Owned("b")}).Since }
	if got := since(); got != 1 {
		t.Errorf("at first: asks for caches as of %d, want 1", got)
	}
	loaded := member("c", at(20))
	loaded.Weight, loaded.Revision = 7, 2
	m.Apply(loaded)
	if got := since(); got != 1 {
		t.Errorf("after a report of another: asks for caches as of %d, want 1", got)
	}
	m.Apply(Record{Name: "b", UID: "b", Key: at(8), Revision: 3})
	if got := since(); got != 1 {
		t.Errorf("after a loss: asks for caches as of %d, want 1", got)
	}
	m.Remove("a", 4)
	if got := since(); got != 4 {
		t.Errorf("after a gain: asks for caches as of %d, want 4", got)
	}
}

// The instance's keys may have been another's in the gap, so caches from before it are
// not good enough.
func TestAGapInTheLogAsksForNewerCaches(t *testing.T) {
	m := NewMachine("a", NewView(1, member("a", at(5))), limits)
	m.Replace(NewView(9, member("a", at(5))))
	if d := m.Decide(Input{Now: 1}); d.Since != 9 {
		t.Errorf("asks for caches as of %d, want 9", d.Since)
	}
}

// A dead donor's grant is refused, since no record gives it. So its successor works on
// everything at once, and calls the handover off meanwhile.
func TestADeadDonorsHandoverHoldsNothingUp(t *testing.T) {
	receiver := joining("n", "d", at(100))
	receiver.Revision, receiver.Generation = 3, 3
	m := NewMachine("s", NewView(3, member("d", at(200)), member("s", at(hashkey.Max)), receiver), limits)
	m.Remove("d", 4)
	d := m.Decide(Input{Now: 1, Serving: keys(200, hashkey.Max)})
	if !d.Open.Equal(hashkey.All()) || d.Since != 4 {
		t.Errorf("after the donor's death: open %v since %d, want everything since 4", d.Open, d.Since)
	}
	if d.Write == nil || d.Write.Reason != ReasonCallOff || d.Write.Name != "n" || d.Write.Next != nil || d.Write.Generation != 3 {
		t.Errorf("after the donor's death: wrote %+v, want the handover called off", d.Write)
	}
}

func TestADeleteOfTheRecordAsksTheInstanceToLeave(t *testing.T) {
	self := member("a", at(100))
	self.Deleting = true
	m := NewMachine("a", NewView(1, self, member("b", at(hashkey.Max))), limits)
	if d := m.Decide(Input{Now: 1, Serving: keys(hashkey.Max, 100)}); d.Phase != shardingv1alpha1.InstanceLeaving {
		t.Errorf("%s, want Leaving", d.Phase)
	}
}

// Somebody else may have written it. Requests of less are refused, so nothing would be stored
// for this instance any more.
func TestAnEpochThatOthersRaisedIsTaken(t *testing.T) {
	self := member("a", at(hashkey.Max))
	self.Report = Report{Epoch: 7, Gives: &Gift{"b", 3}}
	m := NewMachine("a", NewView(1, self), limits)
	if d, want := m.Decide(Input{Now: 1, Keys: noKeys}), (Report{Epoch: 7}); !d.Report.Equal(want) {
		t.Errorf("reports %+v, want %+v", d.Report, want)
	}
}
