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

package controllerring

import (
	"math"
	"strconv"
	"testing"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/ring/fence"
	testclock "k8s.io/utils/clock/testing"
)

const lease = 6 * time.Second

func instance(name string, uid types.UID, revision int, key int64) *shardingv1alpha1.ControllerInstance {
	return &shardingv1alpha1.ControllerInstance{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid, ResourceVersion: strconv.Itoa(revision)},
		Spec: shardingv1alpha1.ControllerInstanceSpec{
			ControllerName:       "replicaset-controller",
			LeaseDurationSeconds: int32(lease / time.Second),
			HashKey:              &key,
		},
	}
}

// story tells a registry what happens, second by second.
type story struct {
	*testing.T
	*registry
	clock *testclock.FakePassiveClock
	begin time.Time
}

func newStory(t *testing.T) *story {
	begin := time.Now()
	clock := testclock.NewFakePassiveClock(begin)
	return &story{t, newRegistry(clock), clock, begin}
}

func (s *story) at(seconds float64) time.Time {
	now := s.begin.Add(time.Duration(seconds * float64(time.Second)))
	s.clock.SetTime(now)
	return now
}

func (s *story) reads(seconds float64, revision int64) {
	s.dated(reading{at: s.at(seconds), revision: revision})
}

func (s *story) hears(seconds float64, instance *shardingv1alpha1.ControllerInstance) {
	s.Helper()
	s.at(seconds)
	if err := s.put(instance); err != nil {
		s.Fatal(err)
	}
}

func (s *story) wantTrusted(seconds float64, want bool) {
	s.Helper()
	s.at(seconds)
	view, got := s.trusted(fence.Identity{Name: "a", UID: "1"})
	if got != want {
		s.Errorf("at %vs: trusted %v, want %v", seconds, got, want)
	}
	if got && view == nil {
		s.Errorf("at %vs: trusted without its ring", seconds)
	}
}

// A record says nothing of when it was written: one that is listed, or heard of
// late, may be as good as gone.
func TestTrustIsCountedFromBeforeTheWrite(t *testing.T) {
	s := newStory(t)
	s.hears(0, instance("a", "1", 10, 100))
	s.wantTrusted(0, false)
	s.reads(1, 10)
	s.hears(1, instance("a", "1", 10, 100))
	s.wantTrusted(1, false)

	// Written some time after 1 s, heard of at 3 s.
	s.hears(3, instance("a", "1", 11, 100))
	s.wantTrusted(3, true)
	s.wantTrusted(5.9, true)
	s.wantTrusted(6, false)

	// The same write again, as after a list, makes nobody younger.
	s.reads(7, 11)
	s.hears(7, instance("a", "1", 11, 100))
	s.wantTrusted(7, false)
	// A write that only a later reading is known to precede.
	s.hears(8, instance("a", "1", 12, 100))
	s.wantTrusted(11.9, true)
	s.wantTrusted(12, false)
}

func TestTrustTakesTheLastReadingBelow(t *testing.T) {
	s := newStory(t)
	for i := range 10 {
		s.reads(float64(i), int64(10*i))
	}
	// Heard of 4 s late: written between the readings at 5 s and 6 s.
	s.hears(9, instance("a", "1", 55, 100))
	s.wantTrusted(9.9, true)
	s.wantTrusted(10, false)
	// A reading that was begun earlier than the last but answered later tells nothing
	// new; one with the same revision does.
	s.reads(9.5, 90)
	s.dated(reading{at: s.begin, revision: 95})
	s.hears(10, instance("a", "1", 96, 100))
	s.wantTrusted(14.4, true)
	s.wantTrusted(14.5, false)
}

func TestReadingsAreBounded(t *testing.T) {
	s := newStory(t)
	for i := range 10 * keptReadings {
		s.reads(float64(i), int64(i))
	}
	if n := len(s.readings); n != keptReadings {
		t.Errorf("%d readings are kept, want %d", n, keptReadings)
	}
	s.hears(200, instance("a", "1", 5, 100))
	s.wantTrusted(200, false)
}

func TestTrustEndsWithTheRecord(t *testing.T) {
	s := newStory(t)
	s.reads(0, 10)
	s.hears(0, instance("a", "1", 11, 100))
	s.hears(0, instance("b", "2", 12, math.MaxInt64))
	s.wantTrusted(0, true)
	s.remove("a")
	s.wantTrusted(0, false)
	if got := s.rings["replicaset-controller"].Owned("b").Width(); got != 1<<63 {
		t.Errorf("b owns %d keys after a is gone, want all", got)
	}
	s.remove("nobody")

	// Another of that name has to be known by itself, or a refusal would follow from
	// what was known of its predecessor.
	s.hears(0, instance("a", "1", 13, 100))
	s.hears(1, instance("a", "3", 9, 100))
	s.wantTrusted(1, false)
}
