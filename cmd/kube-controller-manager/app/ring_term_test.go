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
			e.candidate.Holder = identity
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
				ctx, cancel := context.WithTimeout(ctx, ring.UndoneLimit+10*ring.UnfitLimit+time.Second)
				defer cancel()
				var leads atomic.Bool
				leads.Store(true)
				if e.untilUnfit(ctx, []string{"*", "-" + testRS, "-" + testRC}, &leads) {
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
