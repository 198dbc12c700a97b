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
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/balance"
)

// String gives the source a name for people.
func (s *fakeSource) String() string { return s.name }

// decidedOf returns what was decided, without times.
func decidedOf(s Snapshot) []string {
	var lines []string
	for _, d := range s.Decided {
		lines = append(lines, fmt.Sprintf("%s: %s", d.What, d.Text))
	}
	return lines
}

func TestASnapshotShowsTheInstancesOwnView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		i := newInstance(t, r)
		if s := i.Snapshot(); s.Name != "" || len(s.Records) != 0 || s.Open != "nothing" || s.BelievesForSeconds != 0 {
			t.Errorf("before it runs it shows %+v", s)
		}
		stop, done := i.start()
		eventually(t, "the gate is open", func() bool { return i.door().serving().Covers(hashkey.All()) })
		time.Sleep(time.Second)
		first := i.work(7)
		time.Sleep(time.Second)
		second, third := i.work(9), i.work(9)
		synctest.Wait()
		record := i.record()
		s := i.Snapshot()
		all := hashkey.All().String()
		own := RecordState{Name: record.Name, UID: record.UID, HashKey: hashkey.Format(hashkey.Max), Phase: shardingv1alpha1.InstanceActive, Generation: record.Generation}
		if len(s.Records) == 1 {
			own.Revision = s.Records[0].Revision
		}
		if s.Name != record.Name || s.UID != record.UID || s.Ring != "workloads" || s.Holder != "host_1" || s.Phase != shardingv1alpha1.InstanceActive ||
			!slices.Equal(s.Records, []RecordState{own}) || s.Owned != all || s.Follow != all || s.Open != all || s.Revision < own.Revision {
			t.Errorf("it shows %+v", s)
		}
		if s.RoundAgeSeconds < 0 || s.RoundAgeSeconds > 1 || s.BelievesForSeconds < 3 || s.BelievesForSeconds > 5 {
			t.Errorf("its last round is %v s old, and it believes for %v s", s.RoundAgeSeconds, s.BelievesForSeconds)
		}
		if want := []DoorState{{Controller: controllerName, Open: all, Working: true}}; !slices.Equal(s.Doors, want) {
			t.Errorf("its doors are %+v, want %+v", s.Doors, want)
		}
		if want := []SourceState{{Name: "pods", Held: all, Lacks: "nothing"}, {Name: "sets", Held: all, Lacks: "nothing"}}; !slices.Equal(s.Sources, want) {
			t.Errorf("its sources are %+v, want %+v", s.Sources, want)
		}
		var ages []string
		for _, p := range s.Oldest {
			ages = append(ages, fmt.Sprintf("%s %s %v", p.Controller, p.HashKey, p.AgeSeconds))
		}
		if want := []string{controllerName + " 0000000000000007 1", controllerName + " 0000000000000009 0", controllerName + " 0000000000000009 0"}; s.Busy != 3 || !slices.Equal(ages, want) {
			t.Errorf("%d pieces are in work, and %v", s.Busy, ages)
		}
		lines := decidedOf(s)
		for _, want := range []string{
			"registered: " + record.Name,
			"wrote: first: " + record.Name + " gets key 7fffffffffffffff, next key none",
			"phase: Active, owns " + all,
			"opened: " + firstPiece.String(),
			"door opened: " + controllerName,
		} {
			if !slices.Contains(lines, want) {
				t.Errorf("no %q among %q", want, lines)
			}
		}
		if _, err := json.Marshal(s); err != nil {
			t.Error(err)
		}

		first()
		stop()
		time.Sleep(lease / 2)
		if s := i.Snapshot(); s.Phase != shardingv1alpha1.InstanceLeaving || s.Draining != all || s.Open != "nothing" || s.Busy != 2 {
			t.Errorf("while it leaves it shows %+v", s)
		}
		second()
		third()
		<-done
		s = i.Snapshot()
		if last := s.Decided[len(s.Decided)-1]; s.Name != "" || s.Phase != "" || last.What != DecidedEnded || last.Text != record.Name {
			t.Errorf("after it has left it shows %+v", s)
		}
	})
}

func TestASnapshotSaysHowTheLoadIsEvenedOut(t *testing.T) {
	settings := balance.Settings{Tolerance: 0.07, Rate: 1}
	for want, config := range map[string]*balance.Config{
		"Disabled": nil,
		"Enabled, tolerance 7%, 100% of all keys a minute": {Settings: settings},
		"DryRun, tolerance 7%, 100% of all keys a minute":  {Settings: settings, DryRun: true},
	} {
		i := newInstance(t, newRegistry(t), func(cfg *Config) { cfg.Balance = func() *balance.Config { return config } })
		if got := i.Snapshot().Balance.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// replay has the instance decide again what it shows of its decisions, as one does it who reads
// that.
func replay(s Snapshot) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	var read Snapshot
	if err := json.Unmarshal(data, &read); err != nil {
		return err
	}
	return read.Recording.Replay()
}

func TestASnapshotHasWhatItTakesToDecideTheSameAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newInstance(t, newRegistry(t))
		if s := i.Snapshot(); s.Recording != nil {
			t.Errorf("before it is registered there are %d steps", len(s.Recording.Steps))
		}
		i.start()
		time.Sleep(5 * time.Second)
		s := i.Snapshot()
		if err := replay(s); err != nil || len(s.Recording.Steps) < 5 {
			t.Errorf("of %d steps: %v", len(s.Recording.Steps), err)
		}
		s.Recording.Steps[len(s.Recording.Steps)-1].Decision.Since++
		if replay(s) == nil {
			t.Error("another decision is the same")
		}
	})
}

// Nothing of it waits for the deciding goroutine.
func TestASnapshotSaysForHowLongNothingWasDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newInstance(t, newRegistry(t))
		hang := make(chan struct{})
		i.controller.inPrepare = func() { <-hang }
		i.start()
		time.Sleep(5 * time.Second)
		s := i.Snapshot()
		if s.Name == "" || s.RoundAgeSeconds < 4 {
			t.Errorf("it shows %+v", s)
		}
		close(hang)
	})
}

func TestWorkOnOneKeyIsShownByTheAgeOfEachPiece(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newInstance(t, newRegistry(t))
		i.registered(testContext(t))
		i.gate.set(hashkey.All())
		ages := func() (ages []float64) {
			for _, p := range i.Snapshot().Oldest {
				ages = append(ages, p.AgeSeconds)
			}
			return ages
		}
		first := i.work(1)
		time.Sleep(time.Second)
		second := i.work(1)
		time.Sleep(time.Second)
		if got := ages(); !slices.Equal(got, []float64{2, 1}) {
			t.Errorf("got %v", got)
		}
		first()
		if got := ages(); !slices.Equal(got, []float64{1}) {
			t.Errorf("after the first has ended: %v", got)
		}
		second()
		for range maxPieces + 5 {
			defer i.work(1)()
		}
		if s := i.Snapshot(); s.Busy != maxPieces+5 || len(s.Oldest) != maxPieces {
			t.Errorf("of %d pieces %d are shown, %d counted", maxPieces+5, len(s.Oldest), s.Busy)
		}
	})
}

func TestTheLastDecisionsAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		r := newRegistry(t)
		i := newInstance(t, r)
		term := i.owner(ctx)
		refused := errors.New("no")
		r.intercept(func(context.Context, request) error { return refused })
		// Repeated attempts are one line.
		for range 3 {
			term.write(ctx, i.wish())
			term.settle()
		}
		d := ring.Decision{
			Phase: shardingv1alpha1.InstanceActive, Owned: low,
			Write:    &ring.Write{Reason: ring.ReasonLeave, Name: "a", Delete: true, Detail: "asked to"},
			Proposal: &ring.Shift{Boundary: "a", Donor: "a", Receiver: "b", Load: 7},
			Report:   ring.Report{Epoch: 3, Gives: &ring.Gift{To: "b", Key: 99}},
		}
		term.duties.states = []ring.ControllerState{{Name: controllerName, Reason: "the leader runs it"}}
		term.show(time.Now(), &d)
		more := *d.Proposal
		more.Load++
		d.Proposal = &more
		i.gate.set(low)
		i.door().set(false)
		term.show(time.Now(), &d)
		s := i.Snapshot()
		want := []string{
			"not written: wish: " + term.self.Name + " gets key none, next key none, donor b: no",
			"registered: " + term.self.Name,
			"phase: Active, owns " + low.String(),
			"door opened: " + controllerName,
			"proposed: a gives 7 to b: they have 0 and 0, and should have 0 and 0",
			"opened: " + low.String(),
			"door shut: " + controllerName,
		}
		if got := decidedOf(s); !slices.Equal(got, want) {
			t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
		}
		if s.Decided[0].Times != 3 {
			t.Errorf("three attempts are %d", s.Decided[0].Times)
		}
		if s.Write != "leave: deletes a (asked to)" || s.Proposal != more.String() || s.Gives != "b gets key 0000000000000063" || s.Epoch != 3 {
			t.Errorf("it shows %+v", s)
		}
		if want := []DoorState{{Controller: controllerName, Open: "nothing", Reason: "the leader runs it"}}; !slices.Equal(s.Doors, want) {
			t.Errorf("its doors are %+v, want %+v", s.Doors, want)
		}
		for n := range maxDecided {
			d.Owned = hashkey.Between(0, int64(n+1))
			d.Phase = []shardingv1alpha1.InstancePhase{shardingv1alpha1.InstanceWait, shardingv1alpha1.InstanceActive}[n%2]
			term.show(time.Now(), &d)
		}
		if s := i.Snapshot(); len(s.Decided) != maxDecided || s.Decided[0].What != DecidedPhase {
			t.Errorf("%d are shown, of which the first is %+v", len(s.Decided), s.Decided[0])
		}
	})
}
