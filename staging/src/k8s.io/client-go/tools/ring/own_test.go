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
	"strings"
	"testing"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
)

func TestAReceiverTakesBackAMoveUpThatIsNotGrantedInTheEnd(t *testing.T) {
	low := member("low", at(100))
	low.Next, low.Revision, low.Generation = at(200), 3, 3
	m := NewMachine("low", NewView(3, low, member("high", at(300))), limits)
	own := keys(300, 100)
	d := atLimit(t, m, Input{Now: 7 * time.Second, Serving: own}, limits.Fill+3*limits.Step, own)
	if w := d.Write; w == nil || w.Reason != ReasonCallOff || w.Name != "low" || w.Generation != 3 || w.Next != nil || *w.Key != 100 || !strings.Contains(w.Detail, "high has not given up") {
		t.Errorf("at the limit: wrote %+v, want the move taken back", w)
	}
}

func TestTheWaitForAMoveUpBeginsAnewWithAnotherKey(t *testing.T) {
	low := member("low", at(100))
	low.Next = at(200)
	m := NewMachine("low", NewView(3, low, member("high", at(300))), limits)
	own := keys(300, 100)
	m.Decide(Input{Now: 7 * time.Second, Serving: own})
	low.Next = at(250)
	m.Apply(low)
	atLimit(t, m, Input{Now: 20 * time.Second, Serving: own}, limits.Fill+3*limits.Step, own)

	// So it does with the same key, once that has been taken back.
	low.Next = nil
	m.Apply(low)
	m.Decide(Input{Now: 150 * time.Second, Serving: own})
	low.Next = at(250)
	m.Apply(low)
	atLimit(t, m, Input{Now: 200 * time.Second, Serving: own}, limits.Fill+3*limits.Step, own)
}

func TestAMoveOutOfBoundsIsCalledOffWithTheAllowedInterval(t *testing.T) {
	mid := member("mid", at(200))
	mid.Next, mid.Revision = at(400), 3
	m := NewMachine("mid", NewView(3, member("low", at(100)), mid, member("high", at(300))), limits)
	d := m.Decide(Input{Now: 1, Serving: keys(100, 200)})
	if w := d.Write; w == nil || w.Reason != ReasonCallOff || w.Name != "mid" || w.Next != nil || *w.Key != 200 || !strings.Contains(w.Detail, "must lie between 0000000000000064 and 000000000000012c") {
		t.Errorf("wrote %+v, want the move called off", w)
	}
	if !d.Open.Equal(keys(100, 200)) {
		t.Errorf("open %v, want %v", d.Open, keys(100, 200))
	}
}

func TestAnOwnerFollowsWhatALeavingPredecessorWillLeave(t *testing.T) {
	a, b := member("a", at(100)), member("b", at(200))
	a.Phase, b.Phase = shardingv1alpha1.InstanceLeaving, shardingv1alpha1.InstanceLeaving
	m := NewMachine("c", NewView(1, a, b, member("c", at(300)), member("d", at(400))), limits)
	if d := m.Decide(Input{Now: 1, Serving: keys(200, 300)}); !d.Follow.Equal(keys(400, 300)) || !d.Open.Equal(keys(200, 300)) {
		t.Errorf("follows %v, open %v; want to follow %v and open no more than its own", d.Follow, d.Open, keys(400, 300))
	}
}

func TestAnOwnerNamesAKeyForOneThatAsksIt(t *testing.T) {
	wishes := joining("n", "d", nil)
	wishes.Revision, wishes.Generation = 3, 3
	leaving := wishes
	leaving.Phase = shardingv1alpha1.InstanceLeaving
	all := Input{Now: 1, Serving: hashkey.All(), Keys: []int64{10, 20, 30, 40}}
	for name, tc := range map[string]struct {
		view *View
		in   Input
		want bool
	}{
		"asked":                           {NewView(3, member("d", at(hashkey.Max)), wishes), all, true},
		"another is asked":                {NewView(3, member("d", at(hashkey.Max)), joining("n", "e", nil)), all, false},
		"asked by one that leaves":        {NewView(3, member("d", at(hashkey.Max)), leaving), all, false},
		"its own gate is not open at all": {NewView(3, member("d", at(hashkey.Max)), wishes), Input{Now: 1}, false},
		"it has one key":                  {NewView(3, member("a", at(99)), member("d", at(100)), wishes), Input{Now: 1, Serving: keys(99, 100)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := NewMachine("d", tc.view, limits).Decide(tc.in).Write
			if (w != nil) != tc.want {
				t.Fatalf("wrote %+v, want a key named: %v", w, tc.want)
			}
			if w != nil && (w.Reason != ReasonSplit || w.Name != "n" || w.Generation != 3 || w.Key != nil || *w.Next != 20 || w.Donor != "d") {
				t.Errorf("wrote %+v, want the median of the objects as next key", w)
			}
		})
	}
}
