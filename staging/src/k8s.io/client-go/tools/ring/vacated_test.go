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

import "testing"

func TestADonorGivesBackTheRangeOfOneThatHasGone(t *testing.T) {
	objects := []int64{10, 20, 130, 140, 250, 260, 270, 350}
	var m *Machine
	var in Input
	// ring is one in which c has taken over from b.
	ring := func() {
		m = NewMachine("c", NewView(1, member("a", at(100)), member("b", at(200)), member("c", at(300)), member("d", at(400))), limits)
		in = Input{Serving: m.View().Owned("c"), Keys: objects}
		m.Decide(in)
		m.Remove("b", 2)
		in.Serving = m.View().Owned("c")
		m.Decide(in)
	}
	want := func(why string, key int64) {
		t.Helper()
		m.Apply(joining("e", "c", nil))
		if d := m.Decide(in); d.Write == nil || d.Write.Reason != ReasonSplit || *d.Write.Next != key {
			t.Errorf("%s: writes %+v, want a split at %d", why, d.Write, key)
		}
	}

	ring()
	want("b has gone", 200)

	ring()
	m.Remove("d", 3)
	m.Decide(in)
	want("so has a successor", 200)

	// a goes, too.
	ring()
	m.Remove("a", 3)
	in.Serving = m.View().Owned("c")
	m.Decide(in)
	objects = append(objects, 30, 40)
	in.Keys = objects
	want("two have gone", 100)

	// Both go at once, as one sees it whose watch breaks; another has the name of b by then.
	ring()
	m = NewMachine("d", NewView(1, member("a", at(100)), member("b", at(200)), member("c", at(300)), member("d", at(400))), limits)
	m.Decide(in)
	again := joining("b", "", nil)
	again.UID = "another"
	m.Replace(NewView(2, member("a", at(50)), again, member("d", at(400))))
	in.Serving = m.View().Owned("d")
	in.Keys = []int64{150, 160, 250, 260, 270}
	m.Decide(in)
	m.Apply(joining("e", "d", nil))
	if d := m.Decide(in); d.Write == nil || *d.Write.Next != 200 {
		t.Errorf("writes %+v, want a split at 200", d.Write)
	}

	// What lies beyond the range by now, or is its end, is none of it.
	ring()
	m.Apply(member("a", at(200)))
	in.Serving = m.View().Owned("c")
	m.Decide(in)
	m.Apply(member("a", at(150)))
	in.Serving = m.View().Owned("c")
	in.Keys = []int64{160, 170, 210, 220, 230}
	m.Decide(in)
	want("its predecessor had the key", 170)
}
