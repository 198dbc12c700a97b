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

package main

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/client-go/tools/ring/member"
)

func TestParseRangesIsTheReverseOfString(t *testing.T) {
	const half = hashkey.Limit / 2
	for _, want := range []hashkey.Ranges{
		nil,
		hashkey.All(),
		hashkey.NewRanges(hashkey.Range{Start: 0, End: half}),
		hashkey.NewRanges(hashkey.Range{Start: half, End: hashkey.Limit}),
		hashkey.NewRanges(hashkey.Range{Start: 10, End: 20}, hashkey.Range{Start: 30, End: 40}),
		hashkey.NewRanges(hashkey.Range{Start: 0, End: 20}, hashkey.Range{Start: 30, End: 40}, hashkey.Range{Start: half, End: hashkey.Limit}),
	} {
		if got, err := parseRanges(want.String()); err != nil || !got.Equal(want) {
			t.Errorf("%v: got %v, %v", want, got, err)
		}
	}
	for _, text := range []string{"", "none", "[0000000000000000]", "(x, y]"} {
		if got, err := parseRanges(text); err == nil {
			t.Errorf("%q: got %v", text, got)
		}
	}
}

func TestAProcessServesWhereADoorIsOpenAndItBelieves(t *testing.T) {
	all := hashkey.All().String()
	shown := func(believes float64, barred string) member.Process {
		return member.Process{Instances: []member.Snapshot{{
			Ring: "r", BelievesForSeconds: believes, Barred: barred,
			Doors: []member.DoorState{{Controller: "open", Open: all}, {Controller: "shut", Open: "nothing"}},
		}}}
	}
	for name, c := range map[string]struct {
		shown member.Process
		want  hashkey.Ranges
	}{
		"believes": {shown(1, ""), hashkey.All()},
		"doubts":   {shown(0, ""), nil},
		"barred":   {shown(1, "why"), nil},
	} {
		got, err := servingOf(c.shown)
		if err != nil || !got["r/open"].Equal(c.want) || !got["r/shut"].Empty() {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}

func TestUnservedAddsUpKeysTimesTime(t *testing.T) {
	begin := time.Now()
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	half := hashkey.NewRanges(hashkey.Range{Start: 0, End: hashkey.Limit / 2})
	u := newUnserved(begin, []string{"a", "b"})
	expect := func(seconds int, want time.Duration, whole bool) {
		t.Helper()
		got := u.until(at(seconds))
		if _, is := u.whole(); got != want || is != whole {
			t.Errorf("after %d s: got %v, whole %t; want %v, %t", seconds, got, is, want, whole)
		}
	}
	expect(1, time.Second, false)
	u.set(at(2), "1", serving{"a": half, "b": hashkey.All()})
	// A quarter of all has no worker.
	expect(6, 3*time.Second, false)
	u.set(at(6), "2", serving{"a": hashkey.All().Minus(half), "b": half})
	expect(100, 3*time.Second, true)
	u.set(at(100), "1", nil)
	expect(104, 5*time.Second, false)
	u.set(at(105), "1", serving{"a": half, "b": hashkey.All()})
	u.set(at(106), "1", serving{"a": hashkey.All(), "b": hashkey.All()})
	if since, whole := u.whole(); !whole || !since.Equal(at(105)) {
		t.Errorf("whole %t since %v, want 105 s", whole, since.Sub(begin))
	}
}
