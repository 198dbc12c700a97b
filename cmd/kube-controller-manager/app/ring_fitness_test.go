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

package app

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/watch"
	core "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/ring"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// stay is when an instance with other controllers has a record, from the beginning of a test.
type stay struct{ from, to time.Duration }

// loop returns the stays of a replica that crashes again and again, from the second minute on:
// it is registered for so long, and comes again after each of these pauses, the last of which
// repeats.
func loop(lasting, until time.Duration, pauses ...time.Duration) (stays []stay) {
	for at := time.Minute; at < until; {
		stays = append(stays, stay{at, at + lasting})
		at += lasting + pauses[0]
		if len(pauses) > 1 {
			pauses = pauses[1:]
		}
	}
	return stays
}

const (
	// handoverTime is how long a term takes to end until the next one begins, restartTime how
	// long the process that led takes to stand again.
	handoverTime = 5 * time.Second
	restartTime  = 10 * time.Second
)

// termsEnded runs a leader and a candidate beside an instance of another replica, which does
// not list one of their controllers, and returns how many terms that ends.
func termsEnded(t *testing.T, until time.Duration, stays []stay) int {
	var ended atomic.Int32
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		ctx, cancel := context.WithTimeout(ctx, until)
		defer cancel()
		replicas := []shardingv1alpha1.ControllerInstance{testInstance("me", both), testInstance("you", both)}
		other := testInstance("other", []string{testRC})
		var wg sync.WaitGroup
		var processes [2]*electionTest
		var leads [2]atomic.Bool
		for i, identity := range []string{"me", "you"} {
			e := newElectionTest(t)
			e.host.identity = identity
			e.set(replicas...)
			events := watch.NewRaceFreeFake()
			e.client.PrependWatchReactor("controllerinstances", core.DefaultWatchReactor(events, nil))
			defer e.ringElection.follow(ctx)()
			processes[i] = e
			for _, s := range stays {
				time.AfterFunc(s.from, func() { e.set(append(slices.Clone(replicas), other)...); events.Add(other.DeepCopy()) })
				time.AfterFunc(s.to, func() { e.set(replicas...); events.Delete(other.DeepCopy()) })
			}
		}
		leads[0].Store(true)
		for i, e := range processes {
			wg.Go(func() {
				for ctx.Err() == nil {
					if !e.untilUnfit(ctx, e.prepare(ctx), &leads[i]) || !leads[i].Load() {
						continue
					}
					ended.Add(1)
					time.Sleep(handoverTime)
					leads[i].Store(false)
					leads[1-i].Store(true)
					time.Sleep(restartTime)
				}
			})
		}
		wg.Wait()
	})
	return int(ended.Load())
}

func TestACrashLoopDoesNotEndLeaderAfterLeader(t *testing.T) {
	const lease = 15 * time.Second
	for name, tc := range map[string]struct {
		until time.Duration
		stays []stay
		most  int
	}{
		"it deletes its record as it ends": {10 * time.Minute, loop(3*time.Second, 10*time.Minute, 7*time.Second), 0},
		"it lives for most of the time":    {10 * time.Minute, loop(9*time.Second, 10*time.Minute, time.Second), 1},
		"it lives for a minute each time":  {10 * time.Minute, loop(time.Minute, 10*time.Minute, 10*time.Second), 1},
		"its record expires after it, and kubelet waits longer and longer": {time.Hour,
			loop(3*time.Second+lease, time.Hour, 2*time.Second, 2*time.Second, 22*time.Second, 62*time.Second, 142*time.Second, 285*time.Second), 1},
		"it lives for a minute, and kubelet waits longer and longer": {time.Hour,
			loop(time.Minute, time.Hour, 10*time.Second, 20*time.Second, 40*time.Second, 80*time.Second, 160*time.Second, 300*time.Second), 1},
		"it comes once and crashes": {time.Hour, loop(3*time.Second+lease, time.Hour, time.Hour), 0},
	} {
		t.Run(name, func(t *testing.T) {
			if ended := termsEnded(t, tc.until, tc.stays); ended > tc.most {
				t.Errorf("it has ended %d terms, want at most %d", ended, tc.most)
			}
		})
	}
}

// Each controller comes to have a worker, on the ring where that can.
func TestAChangeThatLastsEndsOneTerm(t *testing.T) {
	for name, tc := range map[string]struct {
		stays []stay
		want  int
	}{
		"it comes and stays":             {[]stay{{time.Minute, 2 * time.Hour}}, 1},
		"it stays for long, and goes":    {[]stay{{time.Minute, 30 * time.Minute}}, 2},
		"it never comes":                 {nil, 0},
		"it crashes again soon each day": {loop(59*time.Minute, time.Hour, time.Minute), 1},
	} {
		t.Run(name, func(t *testing.T) {
			if ended := termsEnded(t, time.Hour, tc.stays); ended != tc.want {
				t.Errorf("%d terms have ended, want %d", ended, tc.want)
			}
		})
	}
}

// sharing returns what the process signs where the rings share these controllers.
func (e *electionTest) sharing(controllers ...string) []string {
	return e.unshared(func(name string) bool { return slices.Contains(controllers, name) })
}

// A start anew would not help a process to register, nor one that is registered late to share.
func TestALeaderWhoseInstanceIsRegisteredLateGoesOn(t *testing.T) {
	for name, tc := range map[string]struct {
		// shared are the controllers that are not in the set.
		shared    []string
		instances []shardingv1alpha1.ControllerInstance
		want      fit
	}{
		"registered in time":                         {both, []shardingv1alpha1.ControllerInstance{testInstance("me", both)}, fit{}},
		"not registered on a ring of nobody":         {both, nil, fit{lacks: true, late: true}},
		"not registered beside another":              {both, []shardingv1alpha1.ControllerInstance{testInstance("other", both)}, fit{}},
		"not registered beside one that lists less":  {both, []shardingv1alpha1.ControllerInstance{testInstance("other", []string{testRC})}, fit{lacks: true}},
		"runs all, and is registered":                {nil, []shardingv1alpha1.ControllerInstance{testInstance("me", both)}, fit{spares: true}},
		"runs all, another is registered, it is not": {nil, []shardingv1alpha1.ControllerInstance{testInstance("other", both)}, fit{spares: true}},
		"runs all, nobody is registered":             {nil, nil, fit{}},
		"runs the one, and could share it instead of the other": {[]string{testRS},
			[]shardingv1alpha1.ControllerInstance{testInstance("me", both), testInstance("other", []string{testRC})}, fit{lacks: true, spares: true}},
	} {
		e := newElectionTest(t)
		list := &shardingv1alpha1.ControllerInstanceList{Items: tc.instances}
		list.ResourceVersion = "1"
		views, err := ring.ReadList(list)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.fit(e.sharing(tc.shared...), views); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

func TestASetGoesOnForAsLongAsItsLimit(t *testing.T) {
	lacks, late, spares, neither := fit{lacks: true}, fit{lacks: true, late: true}, fit{spares: true}, fit{lacks: true, spares: true}
	// since is from when on something was so.
	type since struct {
		after time.Duration
		fit
	}
	for name, tc := range map[string]struct {
		candidate bool
		was       []since
		// end is when the set no longer fits; 0: never.
		end time.Duration
	}{
		"it fits":                            {was: []since{{0, fit{}}}},
		"a controller is undone":             {was: []since{{5 * time.Second, lacks}}, end: 5*time.Second + undoneLimit},
		"a candidate":                        {candidate: true, was: []since{{5 * time.Second, lacks}}, end: 5*time.Second + unfitLimit},
		"for half of the time":               {was: []since{{0, lacks}, {19 * time.Second, fit{}}, {38 * time.Second, lacks}}, end: 38*time.Second + undoneLimit},
		"for a bit more":                     {was: []since{{0, lacks}, {19 * time.Second, fit{}}, {20 * time.Second, lacks}}, end: 22 * time.Second},
		"for a while, and the leader wins":   {was: []since{{0, lacks}, {19 * time.Second, fit{}}}},
		"the process is not registered":      {was: []since{{0, late}}, end: lateLimit},
		"it is not, and another lists less":  {was: []since{{0, late}, {30 * time.Second, lacks}}, end: 30 * time.Second},
		"another lists less, and it is late": {was: []since{{0, lacks}, {10 * time.Second, late}}, end: lateLimit},
		"the rings could share one":          {was: []since{{time.Second, spares}}, end: time.Second + shareLimit},
		"a candidate's rings could":          {candidate: true, was: []since{{0, spares}}, end: shareLimit - unfitLimit},
		"they could not for a moment":        {was: []since{{0, spares}, {time.Minute, fit{}}, {2 * time.Minute, spares}}, end: 2*time.Minute + shareLimit},
		"one is undone, one could be shared": {was: []since{{0, spares}, {time.Minute, neither}}, end: time.Minute + undoneLimit},
		"one could be shared, one is undone": {was: []since{{0, spares}, {shareLimit - time.Second, neither}}, end: shareLimit},
	} {
		t.Run(name, func(t *testing.T) {
			var f fitness
			start := time.Now()
			var end time.Duration
			for i, s := range tc.was {
				left, limited := f.observe(start.Add(s.after), s.fit, !tc.candidate)
				if end = 0; limited {
					end = s.after + max(0, left)
				}
				if i < len(tc.was)-1 && limited && end <= tc.was[i+1].after {
					t.Errorf("ends after %v already", end)
				}
			}
			if end != tc.end {
				t.Errorf("ends after %v, want %v", end, tc.end)
			}
		})
	}
}

// As after an hour in which the registry could not be read.
func TestWhatWasUndoneForLongIsForgottenInAMinute(t *testing.T) {
	var f fitness
	start := time.Now()
	f.observe(start, fit{lacks: true}, true)
	f.observe(start.Add(time.Hour), fit{}, true)
	if left, limited := f.observe(start.Add(time.Hour+lateLimit), fit{lacks: true}, true); !limited || left != undoneLimit {
		t.Errorf("ends after %v: %t, want after %v", left, limited, undoneLimit)
	}
}

// The informer may be behind, or the registry not be readable: neither ends a term, nor has the
// registry read all the time.
func TestATermEndsOnlyByWhatWasReadWithQuorum(t *testing.T) {
	for name, refusal := range map[string]error{"the informer is behind": nil, "the registry cannot be read": errors.New("down")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, ctx := ktesting.NewTestContext(t)
				e := newElectionTest(t)
				e.set(testInstance("me", both), testInstance("other", []string{testRC}))
				defer e.follow(ctx)()
				synctest.Wait()
				e.set(testInstance("me", both))
				e.lock.Lock()
				e.refusal = refusal
				e.lock.Unlock()
				e.client.ClearActions()
				ctx, cancel := context.WithTimeout(ctx, undoneLimit+10*unfitLimit+time.Second)
				defer cancel()
				var leads atomic.Bool
				leads.Store(true)
				if e.untilUnfit(ctx, e.sharing(both...), &leads) {
					t.Error("the term has ended")
				}
				reads := 0
				for _, a := range e.client.Actions() {
					if a.Matches("list", "controllerinstances") {
						reads++
					}
				}
				if reads < 2 || reads > 11 {
					t.Errorf("the registry was read %d times", reads)
				}
			})
		})
	}
}
