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
	"testing"
	"testing/synctest"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/client-go/tools/ring"
)

func TestWorkIsThePartOfTheirTimeThatTheBusiestWorkersSpend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		r := newRegistry(t)
		i := newInstance(t, r, func(c *Config) {
			c.LeaseDuration = time.Hour
			c.Workers = func(string) int { return 2 }
		})
		term := i.owner(ctx)
		i.ownLog(term)
		d := ring.Decision{Phase: shardingv1alpha1.InstanceActive, Owned: hashkey.All(), Follow: hashkey.All()}
		report := func(d time.Duration, dec ring.Decision) int32 {
			time.Sleep(d)
			term.reported(ctx, dec)
			return term.news.status.Work
		}
		report(0, d)
		if got := report(time.Hour/2, d); got != 0 {
			t.Errorf("without work it is %d", got)
		}
		i.gate.set(hashkey.All())
		i.door().set(true)
		leave := i.work(7)
		if got := report(100*time.Minute/20, d); got < 490 || got > 500 {
			t.Errorf("one of two workers makes it %d thousandths", got)
		}
		if keys := term.news.work.keys; len(keys) != 1 || keys[0] != 7 {
			t.Errorf("the keys in work are %v", keys)
		}
		leave()
		// What lies a minute back counts a third.
		if got := report(time.Minute, d); got < 180 || got > 190 {
			t.Errorf("a minute later it is %d thousandths", got)
		}
	})
}

func TestANewRecordSaysThatTheLoadIsNotToBeEvenedOutAsOthersDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		first := newInstance(t, r)
		first.registered(testContext(t))
		if record := first.record(); record.Spec.Balance != "" {
			t.Errorf("the first record says %q", record.Spec.Balance)
		}
		record := first.record()
		record.Spec.Balance = shardingv1alpha1.BalanceDisabled
		r.edit(record)
		second := newInstance(t, r)
		second.start()
		eventually(t, "the second record says so", func() bool {
			return second.record().Spec.Balance == shardingv1alpha1.BalanceDisabled
		})
	})
}

func TestADrainedInstanceStaysDrainedWhenItRegistersAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		i := newInstance(t, r)
		ctx := testContext(t)
		term := i.registered(ctx)
		record := i.record()
		record.Spec.Drained = true
		r.edit(record)
		record = i.record()
		own, err := ring.NewRecord(&record)
		if err != nil {
			t.Fatal(err)
		}
		term.machine.Apply(own)
		term.decide(ctx, false)
		if again := i.registered(ctx); !i.record().Spec.Drained {
			t.Errorf("the record of %s says %+v", again.self.Name, i.record().Spec)
		}
	})
}

func TestADryRunOnlySaysWhatItWouldMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := testContext(t)
		r := newRegistry(t)
		i := newInstance(t, r)
		term := i.registered(ctx)
		i.told.take()
		p := &ring.Shift{Boundary: term.self.Name, Donor: term.self.Name, Receiver: "b"}
		for range 3 {
			term.propose(ctx, time.Now(), ring.Decision{Proposal: p})
		}
		if got := i.told.take(); len(got) != 2 {
			t.Errorf("three decisions have told %v, want a metric and an event", got)
		}
		term.propose(ctx, time.Now().Add(dryRunInterval), ring.Decision{Proposal: p})
		if got := i.told.take(); len(got) != 2 {
			t.Errorf("a minute later it has told %v, want a metric and an event", got)
		}
		term.propose(ctx, time.Now(), ring.Decision{Proposal: p, Write: &ring.Write{}})
		if got := i.told.take(); len(got) != 0 {
			t.Errorf("a move that is made has told %v", got)
		}
	})
}
