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
	"strings"
	"testing"
	"testing/synctest"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
)

// The successor would meet the same object.
func TestAnInstanceWhoseWorkOnOneObjectNeverEndsKeepsItsRecordAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		a, b := two(t, r)
		name := a.record().Name
		leave := a.work(hashkey.Max)
		defer leave()
		time.Sleep(10 * time.Minute)
		if got := a.record().Name; got != name {
			t.Errorf("the record is %s, was %s", got, name)
		}
		a.serves(upper)
		b.serves(lower)
		state := a.record().Status.Controllers[0]
		if !state.Working || !strings.Contains(state.Reason, hashkey.Format(hashkey.Max)) || !strings.Contains(state.Reason, "none of its 1 workers is free") {
			t.Errorf("the record says %+v, want the hash key and that no worker is free", state)
		}
		if !a.told.has("event StuckWork") || !a.told.has("1 stuck") || a.told.has("renewal withheld") {
			t.Error("the wrong things were told of it")
		}
		leave()
		leave = func() {}
		eventually(t, "the reason is gone", func() bool { return a.record().Status.Controllers[0].Reason == "" })
	})
}

// It stays with whoever works on it.
func TestARangeIsSharedBesideAKeyWhoseWorkNeverEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		a := newInstance(t, r)
		a.start()
		a.serves(hashkey.All())
		leave := a.work(1000)
		time.Sleep(time.Minute)
		b := newInstance(t, r)
		b.start()
		beside := hashkey.Between(hashkey.Max, 999)
		b.serves(beside)
		a.serves(hashkey.All().Minus(beside))
		leave()
		// A boundary can move over the key then.
		record := b.record()
		record.Spec.NextHashKey = (*shardingv1alpha1.HashKey)(key(2000))
		r.edit(record)
		b.serves(hashkey.Between(hashkey.Max, 2000))
	})
}

func TestAHandoverThatWorkHoldsUpIsCalledOffAndMadeBesideIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		a, b := newInstance(t, r), newInstance(t, r)
		a.start()
		a.serves(hashkey.All())
		// The work begins as the handover does, which cannot know that it never ends.
		leave := a.work(1000)
		defer leave()
		began := time.Now()
		b.start()
		b.serves(hashkey.Between(hashkey.Max, 999))
		if took := time.Since(began); took > DefaultStepLimit+5*time.Second {
			t.Errorf("it took %v, want little more than a step", took)
		}
	})
}

func TestADrainWaitsForWorkThatNeverEndsWithAnOpenGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		a, b := two(t, r)
		leave := a.work(hashkey.Max)
		record := a.record()
		record.Spec.Drained = true
		r.edit(record)
		shut := time.Duration(0)
		for range 1000 {
			time.Sleep(time.Second)
			if a.gate.serving().Empty() {
				shut += time.Second
			}
		}
		if shut > DefaultStepLimit+time.Second {
			t.Errorf("the gate was shut for %v", shut)
		}
		leave()
		b.serves(hashkey.All())
		if got := a.record(); !got.Spec.Drained {
			t.Error("it registered anew without being drained")
		}
	})
}

func TestAProcessWhoseWorkOutlivesItsRecordIsAskedToExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		exits := make(chan string, 10)
		a := newInstance(t, r, func(c *Config) { c.Exit = func(reason string) { exits <- reason } })
		a.start()
		a.serves(hashkey.All())
		leave := a.work(7)
		r.remove(a.record().Name)
		began := time.Now()
		reason := <-exits
		if took := time.Since(began); took < lease || took > lease+5*time.Second {
			t.Errorf("it was asked after %v, want a lease", took)
		}
		if !strings.Contains(reason, controllerName) || !strings.Contains(reason, hashkey.Format(7)) {
			t.Errorf("the reason is %q", reason)
		}
		leave()
		a.serves(hashkey.All())
	})
}
