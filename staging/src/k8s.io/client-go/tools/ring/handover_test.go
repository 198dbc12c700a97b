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
	"fmt"
	"reflect"
	"strings"
	"testing"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
)

func TestAHandoverNamesDonorReceiverAndShareOrWhyItIsVoid(t *testing.T) {
	type want struct {
		kind            Kind
		donor, receiver string
		share           hashkey.Ranges
		closer, reason  string
	}
	const bounds = "must lie between 000000000000012c and 00000000000000c8 (going on from the highest hash key to the lowest), the hash keys of the neighbours high and mid, and must not be 0000000000000064, the present one"
	// low owns [0, 100] and what lies above 300, mid (100, 200], high (200, 300].
	ring := []Record{member("low", at(100)), member("mid", at(200)), member("high", at(300))}
	moved := func(name string, next int64) Record {
		r, _ := NewView(0, ring...).Get(name)
		r.Next = &next
		return r
	}
	for name, tc := range map[string]struct {
		record Record
		want   want
	}{
		"down":                          {moved("mid", 150), want{kind: KindMove, donor: "mid", receiver: "high", share: keys(150, 200)}},
		"up":                            {moved("mid", 250), want{kind: KindMove, donor: "high", receiver: "mid", share: keys(200, 250)}},
		"down across the seam":          {moved("low", 1000), want{kind: KindMove, donor: "low", receiver: "mid", share: keys(1000, 100)}},
		"up to the seam":                {moved("high", hashkey.Max), want{kind: KindMove, donor: "low", receiver: "high", share: keys(300, hashkey.Max)}},
		"up across the seam":            {moved("high", 50), want{kind: KindMove, donor: "low", receiver: "high", share: keys(300, 50)}},
		"beyond the successor":          {moved("low", 250), want{closer: "low", reason: bounds}},
		"to the successor's own key":    {moved("low", 200), want{closer: "low", reason: bounds}},
		"to the predecessor's own key":  {moved("low", 300), want{closer: "low", reason: bounds}},
		"a join":                        {joining("n", "mid", at(150)), want{kind: KindJoin, donor: "mid", receiver: "n", share: keys(100, 150)}},
		"a join whose donor has gone":   {joining("n", "dead", at(150)), want{closer: "mid", reason: "owned by mid"}},
		"a join at the donor's own key": {joining("n", "mid", at(200)), want{closer: "mid", reason: "the donor's own"}},
	} {
		t.Run(name, func(t *testing.T) {
			view := NewView(1, ring...).With(tc.record)
			h := view.Handovers()[0]
			if h.Kind != tc.want.kind || h.Donor != tc.want.donor || h.Receiver != tc.want.receiver {
				t.Errorf("kind %q, from %q to %q; want kind %q, from %q to %q", h.Kind, h.Donor, h.Receiver, tc.want.kind, tc.want.donor, tc.want.receiver)
			}
			if h.Void == nil {
				if got := h.Share(h.Donor, view.Owned(h.Donor)); !got.Equal(tc.want.share) {
					t.Errorf("share %v, want %v", got, tc.want.share)
				}
				return
			}
			if got := h.Void.Error(); h.closer != tc.want.closer || !strings.Contains(got, tc.want.reason) {
				t.Errorf("closed by %q because %q, want by %q because %q", h.closer, got, tc.want.closer, tc.want.reason)
			}
		})
	}
	alone := Record{Name: "a", UID: "a", Key: at(5), Next: at(6)}
	if h := NewView(1, alone).Handovers()[0]; h.Void == nil || !strings.Contains(h.Void.Error(), "no boundary to move") {
		t.Errorf("a move on a ring of one: %+v", h)
	}
}

// ringOf returns the view of a ring whose instances have these keys.
func ringOf(keys map[string]int64) *View {
	var records []Record
	for name, key := range keys {
		records = append(records, member(name, at(key)))
	}
	return NewView(1, records...)
}

// order returns the names in order of key, beginning with a: a ring has no first.
func order(keys map[string]int64) string {
	var names string
	for _, r := range ringOf(keys).Ring() {
		names += r.Name
	}
	i := strings.Index(names, "a")
	return names[i:] + names[:i]
}

// Every key of a small line is tried on rings of two and three.
func TestABoundaryMayMoveToAnyKeyThatKeepsTheOrderOfTheRing(t *testing.T) {
	for _, keys := range []map[string]int64{
		{"a": 3, "b": 7}, {"a": 3, "b": hashkey.Max}, {"a": 0, "b": 1}, {"a": 2, "b": 5, "c": 7}, {"a": 5, "b": 2, "c": 7}, {"a": 7, "b": 5, "c": 2},
	} {
		view := ringOf(keys)
		for name, own := range keys {
			for next := range int64(10) {
				taken := false
				moved := map[string]int64{}
				for n, key := range keys {
					taken = taken || key == next
					moved[n] = key
				}
				moved[name] = next
				want := !taken && order(moved) == order(keys)
				if err := view.CheckMove(name, next); (err == nil) != want {
					t.Errorf("%v: %s from %d to %d: %v, want it allowed: %v", keys, name, own, next, err, want)
				}
			}
		}
	}
}

func TestARefusedMoveNamesTheReason(t *testing.T) {
	for name, tc := range map[string]struct {
		ring     map[string]int64
		instance string
		want     string
	}{
		"alone":              {map[string]int64{"a": 5}, "a", "must be unset: the instance owns all hash keys, so there is no boundary to move"},
		"not in the ring":    {map[string]int64{"a": 5}, "nobody", "must be unset: the instance owns no range in its ring"},
		"outside the bounds": {map[string]int64{"a": 16, "b": 32, "c": 48}, "b", "must lie between 0000000000000010 and 0000000000000030, the hash keys of the neighbours a and c, and must not be 0000000000000020, the present one"},
		"across the seam":    {map[string]int64{"a": 16, "b": 32}, "b", "must lie between 0000000000000010 and 0000000000000010 (going on from the highest hash key to the lowest), the hash keys of the neighbours a and a, and must not be 0000000000000020, the present one"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := ringOf(tc.ring).CheckMove(tc.instance, 16); err == nil || err.Error() != tc.want {
				t.Errorf("error %v, want %s", err, tc.want)
			}
		})
	}
	// An instance that joins is registered, but owns no range.
	view := ringOf(map[string]int64{"a": 5, "b": 9}).With(joining("n", "a", nil))
	if err := view.CheckMove("n", 3); err == nil || !strings.Contains(err.Error(), "owns no range") {
		t.Errorf("an instance that joins: error %v", err)
	}
}

func TestTheOutcomeOfAHandoverFollowsFromALaterView(t *testing.T) {
	moving := member("low", at(100))
	moving.Next = at(150)
	for name, before := range map[string]Record{"low": moving, "n": joining("n", "high", at(150))} {
		h := NewView(1, member("low", at(100)), member("high", at(200))).With(before).Handovers()[0]
		record := func(key, next *int64) *View {
			r := h.Record
			r.Key, r.Next = key, next
			return NewView(2, r, member("high", at(200)))
		}
		anew := h.Record
		anew.UID, anew.Key, anew.Next = "anew", at(150), nil
		for _, tc := range []struct {
			what  string
			later *View
			want  Outcome
		}{
			{"nothing has changed", record(h.Record.Key, at(150)), Open},
			{"it names another key", record(h.Record.Key, at(160)), Open},
			{"it has the key", record(at(150), nil), Granted},
			{"it has the key and is to move on", record(at(150), at(160)), Granted},
			{"it names no key", record(h.Record.Key, nil), CalledOff},
			{"its record is gone", NewView(2, member("high", at(200))), CalledOff},
			{"another has its name and the key", NewView(2, anew, member("high", at(200))), CalledOff},
		} {
			if got := h.Outcome(tc.later); got != tc.want {
				t.Errorf("%s, %s: outcome %d, want %d", name, tc.what, got, tc.want)
			}
		}
	}
}

func TestWhatAnInstanceReceivedNamesItsFormerOwnersAndHowItCame(t *testing.T) {
	ring := func(records ...Record) *View { return NewView(1, records...) }
	leaving := func(r Record) Record {
		r.Phase = shardingv1alpha1.InstanceLeaving
		return r
	}
	from := func(r Record, donor string) Record {
		r.Donor = donor
		return r
	}
	anew := member("a", nil)
	anew.UID = "a anew"
	a, b, c := member("a", at(100)), member("b", at(200)), member("c", at(300))
	for name, tc := range map[string]struct {
		before, after *View
		instance      string
		want          []Received
	}{
		"first": {ring(member("a", nil)), ring(member("a", at(hashkey.Max))), "a", []Received{{KindFirst, "", hashkey.All()}}},
		"join":  {ring(a, c, member("b", nil)), ring(a, from(b, "c"), c), "b", []Received{{KindJoin, "c", keys(100, 200)}}},
		"join, and the predecessor dies": {ring(a, c, member("b", nil)), ring(from(b, "c"), c), "b",
			[]Received{{KindCrash, "a", keys(300, 100)}, {KindJoin, "c", keys(100, 200)}}},
		"move down":             {ring(a, b, c), ring(a, member("b", at(150)), c), "c", []Received{{KindMove, "b", keys(150, 200)}}},
		"move up":               {ring(a, b, c), ring(a, member("b", at(250)), c), "b", []Received{{KindMove, "c", keys(200, 250)}}},
		"leave":                 {ring(a, leaving(b), c), ring(a, c), "c", []Received{{KindLeave, "b", keys(100, 200)}}},
		"crash":                 {ring(a, b, c), ring(a, c), "c", []Received{{KindCrash, "b", keys(100, 200)}}},
		"crash and restart":     {ring(a, b, c), ring(anew, b, c), "b", []Received{{KindCrash, "a", keys(300, 100)}}},
		"two crash":             {ring(a, b, c), ring(c), "c", []Received{{KindCrash, "a", keys(300, 100)}, {KindCrash, "b", keys(100, 200)}}},
		"one crashes, one goes": {ring(a, leaving(b), c), ring(c), "c", []Received{{KindCrash, "a", keys(300, 100)}, {KindLeave, "b", keys(100, 200)}}},
		"nothing changed":       {ring(a, b, c), ring(a, b, c), "c", nil},
		"only lost":             {ring(a, b, c), ring(a, member("b", at(150)), c), "b", nil},
		"another received":      {ring(a, b, c), ring(a, c), "a", nil},
		"gone itself":           {ring(a, b, c), ring(a, c), "b", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.after.ReceivedSince(tc.before, tc.instance); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("received %v, want %v", fmt.Sprint(got), fmt.Sprint(tc.want))
			}
		})
	}
}
