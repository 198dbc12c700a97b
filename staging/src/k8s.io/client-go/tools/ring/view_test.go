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
	"math/rand"
	"testing"

	"k8s.io/apimachinery/pkg/hashkey"
)

func TestAnInstanceOwnsTheKeysAboveItsPredecessors(t *testing.T) {
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

func TestEveryKeyHasTheOwnerThatOwnsIt(t *testing.T) {
	for _, ring := range []map[string]int64{{"a": 5}, {"a": 0, "b": hashkey.Max}, {"a": 7, "b": 3}, {"a": 2, "b": 5, "c": 7}} {
		view := ringOf(ring)
		for _, key := range []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, hashkey.Max - 1, hashkey.Max} {
			owner, ok := view.Owner(key)
			if !ok || !view.Owned(owner.Name).Contains(key) {
				t.Errorf("%v: %d is owned by %q, which owns %v", ring, key, owner.Name, view.Owned(owner.Name))
			}
		}
	}
	if owner, ok := NewView(1, member("a", nil)).Owner(5); ok {
		t.Errorf("a ring where nobody owns a key: owned by %q", owner.Name)
	}
}

func TestNeighboursGoRoundTheRing(t *testing.T) {
	view := ringOf(map[string]int64{"a": 2, "b": 5, "c": 7}).With(member("n", nil))
	for name, want := range map[string][2]string{"a": {"c", "b"}, "b": {"a", "c"}, "c": {"b", "a"}} {
		predecessor, successor, ok := view.Neighbours(name)
		if got := [2]string{predecessor.Name, successor.Name}; !ok || got != want {
			t.Errorf("%s: between %q, want %q", name, got, want)
		}
		if successor, ok := view.Successor(name); !ok || successor.Name != want[1] {
			t.Errorf("%s: successor %q, want %q", name, successor.Name, want[1])
		}
	}
	if _, _, ok := view.Neighbours("n"); ok {
		t.Error("an instance that owns nothing has neighbours")
	}
	if _, ok := ringOf(map[string]int64{"a": 2}).Successor("a"); ok {
		t.Error("an instance alone on its ring has a successor")
	}
}

func TestWritingARecordMakesAnotherView(t *testing.T) {
	view := ringOf(map[string]int64{"a": 2, "c": 7})
	with := view.With(member("b", at(5)))
	if got := with.Owned("b"); !got.Equal(keys(2, 5)) {
		t.Errorf("with b: it owns %v, want %v", got, keys(2, 5))
	}
	moved := with.With(member("b", at(4)))
	if got := moved.Owned("c"); !got.Equal(keys(4, 7)) {
		t.Errorf("with b moved: c owns %v, want %v", got, keys(4, 7))
	}
	without := moved.Without("a")
	if got := without.Owned("b"); !got.Equal(keys(7, 4)) {
		t.Errorf("without a: b owns %v, want %v", got, keys(7, 4))
	}
	if got := view.Without("nobody"); got != view {
		t.Error("a view without one that is not there is another")
	}
	if len(view.Records()) != 2 || !view.Owned("c").Equal(keys(2, 7)) || !with.Owned("b").Equal(keys(2, 5)) {
		t.Error("a view has changed")
	}
}

func TestWhatIsOwnedAfterAHandoverIsWhatTheGrantMakes(t *testing.T) {
	chance := rand.New(rand.NewSource(1))
	for range 20_000 {
		var records []Record
		n, keys := 1+chance.Intn(5), 3+chance.Intn(6)
		key := func() int64 { return int64(chance.Intn(keys)) }
		for i := range n {
			r := member(string(rune('a'+i)), nil)
			if chance.Intn(4) > 0 {
				r.Key = at(key())
			}
			records = append(records, r)
		}
		moves := &records[chance.Intn(n)]
		moves.Next = at(key())
		view := NewView(1, records...)
		h := view.handover(*moves)
		granted := *moves
		granted.Key, granted.Next = moves.Next, nil
		for _, r := range records {
			if got, want := h.OwnedAfter(r.Name), view.With(granted).Owned(r.Name); !got.Equal(want) {
				t.Fatalf("%s owns %v after %s has %d, want %v; the records: %+v", r.Name, got, moves.Name, *moves.Next, want, records)
			}
		}
	}
}

func TestOfTwoInstancesWithOneKeyOnlyTheFirstIsInTheRing(t *testing.T) {
	v := NewView(1, member("b", at(5)), member("a", at(5)), member("c", at(9)))
	var names []string
	for _, r := range v.Ring() {
		names = append(names, r.Name)
	}
	if len(names) != 2 || names[0] != "a" || names[1] != "c" {
		t.Errorf("in the ring are %v, want a and c", names)
	}
}
