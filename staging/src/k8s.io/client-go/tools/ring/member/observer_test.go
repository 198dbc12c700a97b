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
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/ring"
)

// told writes down what an observer tells.
type told struct {
	noMetrics
	lines []string
}

func (t *told) note(format string, args ...any) {
	t.lines = append(t.lines, fmt.Sprintf(format, args...))
}
func (t *told) HandedOver(kind ring.Kind, result string)    { t.note("%s %s", kind, result) }
func (t *told) Step(step string, took time.Duration)        { t.note("%s took %v", step, took) }
func (t *told) Unserved(kind ring.Kind, took time.Duration) { t.note("%s unserved %v", kind, took) }
func (t *told) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	t.note("%s event %s on %s: %s", eventType, reason, object.(*v1.ObjectReference).Name, fmt.Sprintf(format, args...))
}

func key(k int64) *int64 { return &k }

func TestTheObserverTellsHowRangesChangeHands(t *testing.T) {
	const (
		active  = shardingv1alpha1.InstanceActive
		waiting = shardingv1alpha1.InstanceWait
		leaving = shardingv1alpha1.InstanceLeaving
		locked  = shardingv1alpha1.InstanceLocked
	)
	low, all := hashkey.Between(hashkey.Max, 99), hashkey.All()
	high := all.Minus(low)
	a := ring.Record{Name: "a", Revision: 1, Key: key(hashkey.Max), Phase: active}
	b := ring.Record{Name: "b", Revision: 2, Donor: "a"}
	named := ring.Record{Name: "b", Revision: 3, Donor: "a", Next: key(99), Phase: locked}
	granted := ring.Record{Name: "b", Revision: 5, Donor: "a", Key: key(99), Phase: locked}
	c := ring.Record{Name: "c", Revision: 4, Key: key(200), Phase: active}
	namedAgain := named
	namedAgain.Revision, namedAgain.Generation = 5, 1
	byHand := ring.Record{Name: "b", Revision: 4, Key: key(99), Next: key(120), PinnedKey: key(120), Phase: active}
	movedByHand := ring.Record{Name: "b", Revision: 5, Key: key(120), PinnedKey: key(120), Phase: active}
	aWaits, aAgain, aLeaves := a, a, a
	aWaits.Revision, aWaits.Phase = 4, waiting
	aAgain.Revision = 6
	aLeaves.Revision, aLeaves.Phase = 7, leaving

	begin := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	// died is the last state of a record whose presence ended in that second.
	died := func(r ring.Record, second int) *ring.Record {
		r.PresenceEnded = begin.Add(time.Duration(second) * time.Second)
		return &r
	}
	// step is what an instance has come to at that second.
	type step struct {
		at            int
		log           *ring.Record
		view          *ring.View
		d             ring.Decision
		held, serving hashkey.Ranges
		busy          bool
	}
	for name, tc := range map[string]struct {
		self  string
		steps []step
		want  []string
	}{
		"first": {
			self: "a",
			steps: []step{
				{at: 1, view: ring.NewView(1, ring.Record{Name: "a", Revision: 1})},
				{at: 2, view: ring.NewView(2, ring.Record{Name: "a", Revision: 2, Key: key(hashkey.Max)}), d: ring.Decision{Follow: all, Phase: locked}},
				{at: 4, view: ring.NewView(2, ring.Record{Name: "a", Revision: 2, Key: key(hashkey.Max)}), d: ring.Decision{Follow: all, Phase: locked}, held: all, serving: all},
			},
			want: []string{"first cold", "open took 2s", "first unserved 2s", "Normal event Joined on a: Works on all keys: nobody owned any", "fill took 2s"},
		},
		"join": {
			self: "b",
			steps: []step{
				{at: 1, view: ring.NewView(2, a, b)},
				{at: 2, view: ring.NewView(3, a, named), d: ring.Decision{Follow: low, Phase: locked}},
				{at: 4, view: ring.NewView(3, a, named), d: ring.Decision{Follow: low, Phase: locked}, held: low},
				{at: 5, view: ring.NewView(4, aWaits, named), d: ring.Decision{Follow: low, Phase: locked}, held: low},
				{at: 7, view: ring.NewView(5, aWaits, granted), d: ring.Decision{Follow: low, Phase: locked}, held: low},
				{at: 8, view: ring.NewView(6, aAgain, granted), d: ring.Decision{Follow: low, Phase: active}, held: low, serving: low},
			},
			want: []string{"fill took 2s", "join warm", "open took 1s", "join unserved 3s", "Normal event Joined on b: Works on [0000000000000000, 0000000000000063], from a"},
		},
		"donor": {
			self: "a",
			steps: []step{
				{at: 1, view: ring.NewView(2, a, b), d: ring.Decision{Follow: all}, held: all, serving: all},
				{at: 2, view: ring.NewView(3, a, named), d: ring.Decision{Follow: all, Phase: waiting}, held: all, serving: high, busy: true},
				{at: 5, view: ring.NewView(4, aWaits, named), d: ring.Decision{Follow: all, Phase: waiting}, held: all, serving: high},
				{at: 6, view: ring.NewView(5, aWaits, granted), d: ring.Decision{Follow: high, Phase: active}, held: high, serving: high},
			},
			want: []string{"fill took 0s", "drain took 3s", "grant took 1s", "Normal event Granted on b: a gave [0000000000000000, 0000000000000063] to b"},
		},
		"donor calls off": {
			self: "a",
			steps: []step{
				{at: 1, view: ring.NewView(3, a, named), d: ring.Decision{Follow: all}, held: all, serving: all},
				{at: 2, view: ring.NewView(4, a, b), d: ring.Decision{Follow: all}, held: all, serving: all},
			},
			want: []string{"fill took 0s", "join called_off", "Warning event CalledOff on b: a keeps [0000000000000000, 0000000000000063], which b was to receive"},
		},
		"donor calls off for a reason": {
			self: "a",
			steps: []step{
				{at: 1, view: ring.NewView(3, a, named), d: ring.Decision{Follow: all}, held: all, serving: all},
				{at: 2, view: ring.NewView(3, a, named), d: ring.Decision{Follow: all, Write: &ring.Write{Reason: ring.ReasonCallOff, Name: "b", Detail: "it took too long"}}, held: all, serving: all},
				{at: 3, view: ring.NewView(4, a, b), d: ring.Decision{Follow: all}, held: all, serving: all},
				// Somebody else calls off the next.
				{at: 4, view: ring.NewView(5, a, namedAgain), d: ring.Decision{Follow: all}, held: all, serving: all},
				{at: 5, view: ring.NewView(6, a, b), d: ring.Decision{Follow: all}, held: all, serving: all},
			},
			want: []string{"fill took 0s",
				"join called_off", "Warning event CalledOff on b: a keeps [0000000000000000, 0000000000000063], which b was to receive: it took too long",
				"join called_off", "Warning event CalledOff on b: a keeps [0000000000000000, 0000000000000063], which b was to receive"},
		},
		"a person moves a boundary": {
			self: "a",
			steps: []step{
				{at: 1, view: ring.NewView(4, a, byHand), d: ring.Decision{Follow: high}, held: high, serving: high},
				{at: 2, view: ring.NewView(5, a, movedByHand), d: ring.Decision{Follow: high.Minus(hashkey.Between(99, 120))}, held: high, serving: high.Minus(hashkey.Between(99, 120))},
			},
			want: []string{"fill took 0s", "Normal event Granted on b: a gave (0000000000000063, 0000000000000078] to b: a person has moved the boundary", "drain took 0s"},
		},
		"crash": {
			self: "b",
			steps: []step{
				{at: 1, view: ring.NewView(5, a, granted), d: ring.Decision{Follow: low}, held: low, serving: low},
				{at: 2, view: ring.NewView(6, aAgain, granted), d: ring.Decision{Follow: low}, held: low, serving: low},
				{at: 8, view: ring.NewView(9, granted), d: ring.Decision{Follow: all}, held: low, serving: low},
				{at: 9, view: ring.NewView(9, granted), d: ring.Decision{Follow: all}, held: all, serving: all},
			},
			want: []string{"fill took 0s", "crash cold", "open took 1s", "crash unserved 6s", "Warning event TookOver on b: Works on (0000000000000063, 7fffffffffffffff]: the record of a has expired", "fill took 1s"},
		},
		"death": {
			self: "b",
			steps: []step{
				{at: 1, view: ring.NewView(5, a, granted), d: ring.Decision{Follow: low}, held: low, serving: low},
				{at: 8, log: died(a, 5), view: ring.NewView(9, granted), d: ring.Decision{Follow: all}, held: all, serving: low},
				{at: 9, view: ring.NewView(9, granted), d: ring.Decision{Follow: all}, held: all, serving: all},
			},
			want: []string{"fill took 0s", "fill took 0s", "death warm", "open took 1s", "death unserved 4s",
				"Warning event TookOver on b: Works on (0000000000000063, 7fffffffffffffff]: the process of a has died, as the end of its presence told at 2026-01-02T03:04:05Z"},
		},
		"death by a clock that is ahead": {
			self: "b",
			steps: []step{
				{at: 1, view: ring.NewView(5, a, granted), serving: low},
				{at: 8, log: died(a, 11), view: ring.NewView(9, granted), held: all, serving: all},
			},
			want: []string{"death warm", "open took 0s", "death unserved 0s",
				"Warning event TookOver on b: Works on (0000000000000063, 7fffffffffffffff]: the process of a has died, as the end of its presence told at 2026-01-02T03:04:11Z"},
		},
		"death by a clock that is far behind": {
			self: "b",
			steps: []step{
				{at: 1, view: ring.NewView(5, a, granted), serving: low},
				{at: 8, log: died(a, -60), view: ring.NewView(9, granted), held: all, serving: all},
			},
			want: []string{"death warm", "open took 0s", "death unserved 5s",
				"Warning event TookOver on b: Works on (0000000000000063, 7fffffffffffffff]: the process of a has died, as the end of its presence told at 2026-01-02T03:03:00Z"},
		},
		"death heard of a moment before": {
			self: "b",
			steps: []step{
				{at: 1, view: ring.NewView(5, a, granted), serving: low},
				{at: 7, log: died(a, 5), view: ring.NewView(8, *died(a, 5), granted), serving: low},
				{at: 8, log: died(a, 5), view: ring.NewView(9, granted), held: all, serving: all},
			},
			want: []string{"death warm", "open took 0s", "death unserved 3s",
				"Warning event TookOver on b: Works on (0000000000000063, 7fffffffffffffff]: the process of a has died, as the end of its presence told at 2026-01-02T03:04:05Z"},
		},
		"crash of one whose presence ended, and that was left to its lease": {
			self: "b",
			steps: []step{
				{at: 1, view: ring.NewView(5, a, granted), serving: low},
				{at: 5, log: died(a, 4), view: ring.NewView(8, *died(a, 4), granted), serving: low},
				{at: 8, log: died(a, 4), view: ring.NewView(9, granted), held: all, serving: all},
			},
			want: []string{"crash warm", "open took 0s", "crash unserved 5s", "Warning event TookOver on b: Works on (0000000000000063, 7fffffffffffffff]: the record of a has expired"},
		},
		"crash of one that has reported since": {
			self: "b",
			steps: []step{
				{at: 1, view: ring.NewView(5, a, granted), serving: low},
				{at: 7, log: died(a, 6), view: ring.NewView(8, *died(a, 6), granted), serving: low},
				{at: 8, log: &a, view: ring.NewView(9, granted), held: all, serving: all},
			},
			want: []string{"crash warm", "open took 0s", "crash unserved 5s", "Warning event TookOver on b: Works on (0000000000000063, 7fffffffffffffff]: the record of a has expired"},
		},
		"two crash at once": {
			self: "b",
			steps: []step{
				{at: 1, view: ring.NewView(5, a, granted, c), serving: low},
				{at: 3, view: ring.NewView(9, granted), d: ring.Decision{Follow: all}, held: all, serving: low},
				{at: 4, view: ring.NewView(9, granted), d: ring.Decision{Follow: all}, held: all, serving: all},
			},
			want: []string{"fill took 0s",
				"crash warm", "open took 1s", "crash unserved 6s", "Warning event TookOver on b: Works on (0000000000000063, 00000000000000c8]: the record of c has expired",
				"crash warm", "open took 1s", "crash unserved 6s", "Warning event TookOver on b: Works on (00000000000000c8, 7fffffffffffffff]: the record of a has expired"},
		},
		"leave": {
			self: "b",
			steps: []step{
				{at: 1, view: ring.NewView(5, a, granted), serving: low},
				{at: 2, view: ring.NewView(7, aLeaves, granted), d: ring.Decision{Follow: all}, held: all, serving: low},
				{at: 8, view: ring.NewView(9, granted), d: ring.Decision{Follow: all}, held: all, serving: low},
				{at: 9, view: ring.NewView(9, granted), d: ring.Decision{Follow: all}, held: all, serving: all},
			},
			want: []string{"fill took 0s", "leave warm", "open took 1s", "leave unserved 1s", "Normal event TookOver on b: Works on (0000000000000063, 7fffffffffffffff]: a has left"},
		},
		"a boundary moves up": {
			self: "b",
			steps: []step{
				{at: 1, view: ring.NewView(5, a, granted), serving: low},
				{at: 2, view: ring.NewView(7, aWaits, ring.Record{Name: "b", Revision: 7, Donor: "a", Key: key(99), Next: key(200)}), held: all, serving: low},
				{at: 4, view: ring.NewView(8, aWaits, ring.Record{Name: "b", Revision: 8, Donor: "a", Key: key(200)}), held: all, serving: low},
				{at: 5, view: ring.NewView(8, aWaits, ring.Record{Name: "b", Revision: 8, Donor: "a", Key: key(200)}), held: all, serving: all},
			},
			want: []string{"move warm", "open took 1s", "move unserved 3s", "Normal event TookOver on b: Works on (0000000000000063, 00000000000000c8], from a: a boundary has moved"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := &told{}
			o := newObserver(tc.self, tc.steps[0].view, 5*time.Second, got, got)
			for _, s := range tc.steps {
				now := begin.Add(time.Duration(s.at) * time.Second)
				if s.log != nil {
					o.hear(now, *s.log)
				}
				o.observe(now, s.view, s.d, s.held, s.serving, !s.busy)
			}
			if a, b := strings.Join(got.lines, "; "), strings.Join(tc.want, "; "); a != b {
				t.Errorf("told\n%s, want\n%s", a, b)
			}
		})
	}
}
