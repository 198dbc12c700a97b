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
	"k8s.io/apimachinery/pkg/types"
)

func at(key int64) *int64 { return &key }

func member(name string, key *int64) Record {
	return Record{Name: name, UID: types.UID(name), Key: key, Phase: shardingv1alpha1.InstanceActive}
}

func span(start, end uint64) hashkey.Range { return hashkey.Range{Start: start, End: end} }

func TestOwnedFollowsTheOrderOfKeys(t *testing.T) {
	for name, tc := range map[string]struct {
		records []Record
		want    map[string]hashkey.Ranges
	}{
		"one owns all, wherever its key is": {
			records: []Record{member("a", at(100))},
			want:    map[string]hashkey.Ranges{"a": hashkey.All()},
		},
		"the lowest also owns what lies above the highest": {
			records: []Record{member("a", at(200)), member("b", at(100)), member("new", nil)},
			want: map[string]hashkey.Ranges{
				"a":   hashkey.NewRanges(span(101, 201)),
				"b":   hashkey.NewRanges(span(0, 101), span(201, hashkey.Limit)),
				"new": nil,
			},
		},
		"the highest key leaves nothing above": {
			records: []Record{member("a", at(hashkey.Max)), member("b", at(0))},
			want: map[string]hashkey.Ranges{
				"a": hashkey.NewRanges(span(1, hashkey.Limit)),
				"b": hashkey.NewRanges(span(0, 1)),
			},
		},
		"of two with the same key only one owns anything": {
			records: []Record{member("a", at(7)), member("b", at(7))},
			want:    map[string]hashkey.Ranges{"a": hashkey.All(), "b": nil},
		},
	} {
		t.Run(name, func(t *testing.T) {
			view := NewView(1, tc.records...)
			for instance, want := range tc.want {
				if got := view.Owned(instance); !got.Equal(want) {
					t.Errorf("%s owns %v, want %v", instance, got, want)
				}
			}
		})
	}
}

func TestSplitHalvesTheObjects(t *testing.T) {
	for name, tc := range map[string]struct {
		records []Record
		keys    []int64
		want    int64
	}{
		"the middle of the whole line without objects": {
			records: []Record{member("a", at(hashkey.Max))},
			want:    hashkey.Max / 2,
		},
		"the lower median of the objects": {
			records: []Record{member("a", at(hashkey.Max))},
			keys:    []int64{900, 10, 30, 20},
			want:    20,
		},
		"counted along the ring where the range goes round the seam": {
			// b owns [0, 100] and what lies above 1000.
			records: []Record{member("a", at(1000)), member("b", at(100))},
			keys:    []int64{5, 50, 2000, 3000, 4000, 6},
			want:    4000,
		},
		"the middle where all objects share the owner's key": {
			records: []Record{member("a", at(100)), member("b", at(200))},
			keys:    []int64{200, 200, 200},
			want:    150,
		},
		"a range of two keys": {
			records: []Record{member("a", at(100)), member("b", at(102))},
			want:    101,
		},
	} {
		t.Run(name, func(t *testing.T) {
			view := NewView(1, tc.records...)
			owner := tc.records[len(tc.records)-1].Name
			if got := split(view.Owned(owner), view, owner, tc.keys); got != tc.want {
				t.Errorf("split at %d, want %d", got, tc.want)
			}
		})
	}
}

// A dead donor may have a grant on its way. Its successor must not work on what
// that would give away before it has called the handover off.
func TestWhatADeadDonorMayHaveGrantedStaysShut(t *testing.T) {
	newcomer := Record{Name: "n", UID: "n", Donor: "d", Next: at(100), Phase: shardingv1alpha1.InstanceLocked, Revision: 3}
	m := NewMachine("s", NewView(3, member("d", at(200)), member("s", at(hashkey.Max)), newcomer), Limits{Step: time.Minute})
	own := hashkey.NewRanges(span(201, hashkey.Limit))
	m.Remove("d", 4)
	d := m.Decide(Input{Now: 1, Serving: own})
	if want := hashkey.NewRanges(span(101, hashkey.Limit)); !d.Open.Equal(want) || d.Since != 4 {
		t.Errorf("after the donor's death: open %v since %d, want %v since 4", d.Open, d.Since, want)
	}
	if d.Write == nil || d.Write.Reason != ReasonCallOff || d.Write.Name != "n" || d.Write.Next != nil || d.Write.Revision != 3 {
		t.Errorf("after the donor's death: wrote %+v, want the handover called off", d.Write)
	}

	calledOff := newcomer
	calledOff.Next, calledOff.Revision = nil, 5
	m.Apply(calledOff)
	if d := m.Decide(Input{Now: 2, Serving: own}); !d.Open.Equal(hashkey.All()) {
		t.Errorf("after the handover was called off: open %v, want everything", d.Open)
	}

	// The same for who takes an empty ring.
	oldest := NewMachine("a", NewView(3, Record{Name: "a", UID: "a", Revision: 1}, newcomer), Limits{Step: time.Minute})
	oldest.Replace(NewView(6, Record{Name: "a", UID: "a", Revision: 1}, newcomer))
	oldest.older = nil
	if d := oldest.Decide(Input{Now: 1}); d.Write == nil || d.Write.Reason != ReasonCallOff || d.Write.Name != "n" {
		t.Errorf("on an empty ring: wrote %+v, want the handover called off", d.Write)
	}
	oldest.Apply(calledOff)
	if d := oldest.Decide(Input{Now: 2}); d.Write == nil || d.Write.Reason != ReasonFirst {
		t.Errorf("on an empty ring: wrote %+v, want everything for itself", d.Write)
	}
}

func TestWhoGivesWhatToWhom(t *testing.T) {
	type want struct {
		kind          handoverKind
		giver, taker  string
		share         hashkey.Ranges
		closer, whyIn string
	}
	const why = "going up the ring it must lie after 300, the predecessor's key, before 200, the successor's, and not be 100, the present one"
	// low owns [0, 100] and what lies above 300, mid (100, 200], high (200, 300].
	ring := []Record{member("low", at(100)), member("mid", at(200)), member("high", at(300))}
	moved := func(name string, next int64) Record {
		r, _ := NewView(0, ring...).Get(name)
		r.Next = &next
		return r
	}
	newcomer := func(donor string, next int64) Record {
		return Record{Name: "n", UID: "n", Donor: donor, Next: &next}
	}
	for name, tc := range map[string]struct {
		record Record
		want   want
	}{
		"down":                              {moved("mid", 150), want{kind: moveDown, giver: "mid", taker: "high", share: hashkey.NewRanges(span(151, 201))}},
		"up":                                {moved("mid", 250), want{kind: moveUp, giver: "high", taker: "mid", share: hashkey.NewRanges(span(201, 251))}},
		"down across the seam":              {moved("low", 1000), want{kind: moveDown, giver: "low", taker: "mid", share: hashkey.NewRanges(span(0, 101), span(1001, hashkey.Limit))}},
		"up to the seam":                    {moved("high", hashkey.Max), want{kind: moveUp, giver: "low", taker: "high", share: hashkey.NewRanges(span(301, hashkey.Limit))}},
		"up across the seam":                {moved("high", 50), want{kind: moveUp, giver: "low", taker: "high", share: hashkey.NewRanges(span(0, 51), span(301, hashkey.Limit))}},
		"beyond the successor":              {moved("low", 250), want{kind: void, closer: "low", whyIn: why}},
		"to the successor's own key":        {moved("low", 200), want{kind: void, closer: "low", whyIn: why}},
		"to the predecessor's own key":      {moved("low", 300), want{kind: void, closer: "low", whyIn: why}},
		"a newcomer":                        {newcomer("mid", 150), want{kind: join, giver: "mid", taker: "n", share: hashkey.NewRanges(span(101, 151))}},
		"a newcomer whose donor has gone":   {newcomer("dead", 150), want{kind: void, closer: "mid", whyIn: "owned by mid"}},
		"a newcomer at its donor's own key": {newcomer("mid", 200), want{kind: void, closer: "mid", whyIn: "the donor's own"}},
	} {
		t.Run(name, func(t *testing.T) {
			view := NewView(1, ring...).With(tc.record)
			h := view.handovers()[0]
			if h.kind != tc.want.kind || h.giver != tc.want.giver || h.taker != tc.want.taker {
				t.Errorf("kind %d, from %q to %q; want kind %d, from %q to %q", h.kind, h.giver, h.taker, tc.want.kind, tc.want.giver, tc.want.taker)
			}
			if h.kind != void {
				if got := h.share(h.giver, view.Owned(h.giver)); !got.Equal(tc.want.share) {
					t.Errorf("share %v, want %v", got, tc.want.share)
				}
				return
			}
			if got := view.whyVoid(tc.record); h.closer != tc.want.closer || !strings.Contains(got, tc.want.whyIn) {
				t.Errorf("closed by %q because %q, want by %q because %q", h.closer, got, tc.want.closer, tc.want.whyIn)
			}
		})
	}
	alone := Record{Name: "a", UID: "a", Key: at(5), Next: at(6)}
	if view := NewView(1, alone); view.handovers()[0].kind != void || !strings.Contains(view.whyVoid(alone), "no other instance") {
		t.Errorf("a move on a ring of one: %v, %q", view.handovers(), view.whyVoid(alone))
	}
}

// The whole of a move up: the donor is the successor, and what it keeps and what
// the instance has already stay open all the time.
func TestABoundaryMovesUp(t *testing.T) {
	low, high := member("low", at(100)), member("high", at(300))
	low.Next, low.Revision = at(200), 2
	view := NewView(2, low, high)
	of := func(name string) hashkey.Ranges { return view.Owned(name) }
	taker, giver := NewMachine("low", view, Limits{Step: time.Minute}), NewMachine("high", view, Limits{Step: time.Minute})
	idle := func(hashkey.Ranges) bool { return true }

	d := taker.Decide(Input{Now: 1, Serving: of("low")})
	if want := of("low").Union(hashkey.NewRanges(span(101, 201))); !d.Follow.Equal(want) || !d.Open.Equal(of("low")) || d.Write != nil {
		t.Errorf("taker: follows %v, open %v, writes %+v; want to follow %v and no more", d.Follow, d.Open, d.Write, want)
	}
	if d := giver.Decide(Input{Now: 1, Serving: of("high")}); !d.Open.Equal(of("high")) || d.Write != nil || d.Wake == 0 {
		t.Errorf("giver, the taker's caches cold: open %v, writes %+v, wakes at %v; want to wait", d.Open, d.Write, d.Wake)
	}
	low.Cached, low.Revision = d.Follow, 3
	giver.Apply(low)
	keep := hashkey.NewRanges(span(201, 301))
	if d := giver.Decide(Input{Now: 2, Serving: of("high")}); !d.Open.Equal(keep) || d.Phase != shardingv1alpha1.InstanceWait || d.Write != nil {
		t.Errorf("giver, the taker's caches warm: %s, open %v, writes %+v; want to drain", d.Phase, d.Open, d.Write)
	}
	d = giver.Decide(Input{Now: 3, Serving: keep, Idle: idle})
	if d.Write == nil || d.Write.Reason != ReasonMove || d.Write.Name != "low" || *d.Write.Key != 200 || d.Write.Next != nil || d.Write.Revision != 3 {
		t.Fatalf("giver, drained: writes %+v, want the move", d.Write)
	}
	low.Key, low.Next, low.Revision = d.Write.Key, nil, 4
	taker.Apply(low)
	giver.Apply(low)
	if d := taker.Decide(Input{Now: 4, Serving: of("low")}); !d.Open.Equal(taker.View().Owned("low")) || d.Since != 4 {
		t.Errorf("taker, unlocked: open %v since %d, want %v since 4", d.Open, d.Since, taker.View().Owned("low"))
	}
	if d := giver.Decide(Input{Now: 4, Serving: keep}); !d.Open.Equal(keep) || d.Phase != shardingv1alpha1.InstanceActive {
		t.Errorf("giver, at the end: %s, open %v; want Active and %v", d.Phase, d.Open, keep)
	}
}

// Keys may have been another's in a gap of the log, so caches from before it will
// not do.
func TestAGapInTheLogAsksForNewCaches(t *testing.T) {
	m := NewMachine("a", NewView(1, member("a", at(5))), Limits{Step: time.Minute})
	m.Replace(NewView(9, member("a", at(5))))
	if d := m.Decide(Input{Now: 1}); d.Since != 9 {
		t.Errorf("caches as of %d will do, want 9", d.Since)
	}
}

func TestOnlyTheOldestTakesAnEmptyRing(t *testing.T) {
	older := Record{Name: "z", UID: "z", Revision: 1}
	self := Record{Name: "a", UID: "a", Revision: 2}
	m := NewMachine("a", NewView(2, older, self), Limits{Step: time.Minute})
	if d := m.Decide(Input{Now: 1}); d.Write != nil {
		t.Errorf("a younger instance wrote %+v", d.Write)
	}
	m.Remove("z", 3)
	d := m.Decide(Input{Now: 2})
	if d.Write == nil || d.Write.Reason != ReasonFirst || *d.Write.Key != hashkey.Max {
		t.Errorf("the oldest instance left wrote %+v, want everything for itself", d.Write)
	}
}

// While a donor drains, its predecessor's death must not open what will be the
// receiver's.
func TestAPredecessorsDeathDoesNotReopenWhatIsGivenAway(t *testing.T) {
	receiver := Record{Name: "n", UID: "n", Donor: "d", Next: at(150), Revision: 3, Phase: shardingv1alpha1.InstanceLocked}
	m := NewMachine("d", NewView(3, member("a", at(100)), member("d", at(200)), member("z", at(hashkey.Max)), receiver), Limits{Step: time.Minute})
	all := hashkey.All()
	busy := func(hashkey.Ranges) bool { return false }
	m.Decide(Input{Now: 1, Serving: all, Idle: busy})
	receiver.Cached, receiver.Revision = hashkey.NewRanges(span(101, 151)), 4
	m.Apply(receiver)
	keep := hashkey.NewRanges(span(151, 201))
	if d := m.Decide(Input{Now: 2, Serving: all, Idle: busy}); !d.Open.Equal(keep) || d.Phase != shardingv1alpha1.InstanceWait {
		t.Fatalf("draining: %s, open %v, want Wait with %v", d.Phase, d.Open, keep)
	}
	m.Remove("a", 5)
	d := m.Decide(Input{Now: 3, Serving: keep, Idle: busy})
	if !d.Open.Equal(keep) {
		t.Errorf("after the predecessor's death: open %v, want %v", d.Open, keep)
	}
	if !d.Owned.Equal(hashkey.NewRanges(span(0, 201))) {
		t.Errorf("after the predecessor's death: owned %v, want [0, 201)", d.Owned)
	}
	d = m.Decide(Input{Now: 4, Serving: keep, Idle: func(hashkey.Ranges) bool { return true }})
	if d.Write == nil || d.Write.Reason != ReasonGrant || *d.Write.Key != 150 {
		t.Errorf("drained: wrote %+v, want the grant", d.Write)
	}
}
