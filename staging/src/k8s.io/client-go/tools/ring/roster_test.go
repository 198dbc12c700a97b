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
	"slices"
	"strings"
	"testing"
)

// desk is where a roster decides in a test. It begins where all list x and y, the leader runs
// neither, the record says nothing and no work is under way.
type desk struct {
	*testing.T
	*Roster
	view           *View
	leader         *Leader
	reported, busy []string
}

func newDesk(t *testing.T, controllers ...string) *desk {
	return &desk{T: t, Roster: NewRoster(controllers), view: sharedView, leader: &signedLeaders[0]}
}

// decides checks the next decision. It is written as one word for each controller in which
// the record says that the instance works on it, "x" or, where the gate may open, "X"; then
// "raise" and "read".
func (d *desk) decides(want string) {
	d.Helper()
	got := d.Decide(RosterInput{
		View: d.view, Leader: d.leader, Reported: d.reported, Busy: d.busy,
	})
	var words []string
	for _, s := range got.States {
		switch open := slices.Contains(got.Open, s.Name); {
		case open && s.Working:
			words = append(words, strings.ToUpper(s.Name))
		case open:
			d.Errorf("%s is open and the record says otherwise", s.Name)
		case s.Working:
			words = append(words, s.Name)
		}
	}
	if got.Raise {
		words = append(words, "raise")
	}
	if got.Read {
		words = append(words, "read")
	}
	if text := strings.Join(words, " "); text != want {
		d.Errorf("decides %q, want %q", text, want)
	}
}

// may lets the leader run all but these.
func (d *desk) may(controllers ...string) {
	d.leader = &signedLeaders[xAndY&^controllersOf(controllers)]
}

// answers answers who leads: one who runs these.
func (d *desk) answers(controllers ...string) {
	d.Answer(signedLeaders[controllersOf(controllers)], true)
}

// works brings the roster to work on all of its controllers.
func (d *desk) works() {
	d.Helper()
	d.decides(strings.Join(d.controllers, " "))
	d.reported = d.controllers
	d.decides(strings.Join(d.controllers, " ") + " read")
	d.answers()
	d.decides(strings.ToUpper(strings.Join(d.controllers, " ")))
}

func TestAnInstanceBeginsOnceItsRecordSaysSoAndTheLeaderIsRead(t *testing.T) {
	d := newDesk(t, "x")
	d.decides("x")
	d.decides("x")
	d.reported = []string{"x"}
	d.decides("x read")
	d.decides("x")
	d.answers()
	d.decides("X")
	d.decides("X")
	// The record may fall behind, where another controller's work has raised the epoch.
	d.reported = nil
	d.decides("X")
}

func TestAnInstanceDoesNotBeginWhatItMustNot(t *testing.T) {
	d := newDesk(t, "x")
	d.may()
	d.decides("")
	d.reported = []string{"x"}
	d.decides("")
	d.answers()
	d.decides("")
}

func TestAnInstanceDoesNotAskWhoLeadsWhenItMustNotBegin(t *testing.T) {
	d := newDesk(t, "x")
	d.decides("x")
	d.may()
	d.reported = []string{"x"}
	d.decides("x")
	d.decides("raise")
}

func TestAnInstanceCeasesFromEachStageOnceItsWorkHasEnded(t *testing.T) {
	for stage, reach := range map[string]func(*desk){
		"announcing": func(d *desk) { d.decides("x") },
		"asking":     func(d *desk) { d.decides("x"); d.reported = []string{"x"}; d.decides("x read") },
		"on":         func(d *desk) { d.works() },
	} {
		t.Run(stage, func(t *testing.T) {
			d := newDesk(t, "x")
			reach(d)
			d.may()
			d.busy = []string{"x"}
			d.decides("x")
			d.decides("x")
			// What has begun to end ends.
			d.may("x")
			d.decides("x")
			d.busy = nil
			d.decides("raise")
			d.reported = nil
			d.decides("x")
			d.decides("x")
		})
	}
}

func TestAnInstanceCeasesIfTheLeaderThatItReadRunsIt(t *testing.T) {
	d := newDesk(t, "x")
	d.decides("x")
	d.reported = []string{"x"}
	d.decides("x read")
	d.answers("x")
	d.busy = []string{"x"}
	d.decides("x")
	d.may()
	d.busy = nil
	d.decides("raise")
	d.decides("")
}

func TestALeaderThatCouldNotBeReadIsReadAgain(t *testing.T) {
	d := newDesk(t, "x")
	d.decides("x")
	d.reported = []string{"x"}
	d.decides("x read")
	// Who it is does not count.
	d.Answer(signedLeaders[justX], false)
	d.decides("x read")
	d.Answer(signedLeaders[0], false)
	d.decides("x read")
	d.answers()
	d.decides("X")
}

func TestAnAnswerToAnEarlierQuestionDoesNotCount(t *testing.T) {
	t.Run("after the instance has ceased and told anew", func(t *testing.T) {
		d := newDesk(t, "x")
		d.decides("x")
		d.reported = []string{"x"}
		d.decides("x read")
		d.may()
		d.decides("x")
		d.decides("raise")
		d.may("x")
		d.decides("x")
		// One question at a time.
		d.decides("x")
		d.answers()
		d.decides("x read")
		d.answers()
		d.decides("X")
	})
	t.Run("for a controller that was told later", func(t *testing.T) {
		d := newDesk(t, "x", "y")
		d.decides("x y")
		d.reported = []string{"x"}
		d.decides("x y read")
		d.reported = []string{"x", "y"}
		d.decides("x y")
		d.answers()
		d.decides("X y read")
		d.answers()
		d.decides("X Y")
	})
	t.Run("while the instance ceases", func(t *testing.T) {
		d := newDesk(t, "x")
		d.decides("x")
		d.reported = []string{"x"}
		d.decides("x read")
		d.may()
		d.busy = []string{"x"}
		d.decides("x")
		d.answers()
		d.decides("x")
		d.busy = nil
		d.decides("raise")
	})
	t.Run("while the instance works", func(t *testing.T) {
		d := newDesk(t, "x", "y")
		d.decides("x y")
		d.reported = []string{"x"}
		d.decides("x y read")
		d.answers()
		d.reported = []string{"x", "y"}
		d.decides("X y read")
		d.answers("x", "y")
		// The leader that it sees says what becomes of x.
		d.decides("X raise")
	})
}

func TestControllersComeAndGoOneByOne(t *testing.T) {
	d := newDesk(t, "x", "y")
	d.works()
	d.may("x")
	d.decides("X y")
	d.decides("X raise")
	d.decides("X")
	d.may("x", "y")
	d.reported = []string{"x"}
	d.decides("X y")
	d.may("y")
	d.reported = []string{"x", "y"}
	d.decides("x y read")
	d.answers()
	d.decides("Y raise")
}

func TestAnInstanceWithoutControllersDecidesNothing(t *testing.T) {
	newDesk(t).decides("")
}

func TestTheRecordSaysWhyAnInstanceMustNotWork(t *testing.T) {
	short := NewView(0, Record{Name: "a", Controllers: rosterControllers}, Record{Name: "b", Controllers: []string{"y"}})
	for name, tc := range map[string]struct {
		barred string
		view   *View
		leader *Leader
		want   string
	}{
		"it may":                       {"", sharedView, &signedLeaders[justY], ""},
		"nobody leads":                 {"", sharedView, &Leader{}, ""},
		"unknown who leads":            {"", sharedView, nil, "it is not known yet who leads"},
		"a leader of ours":             {"", sharedView, &Leader{SignLeader("host_1f3c", []string{"*"})}, "the leader, host_1f3c, runs it"},
		"a stock leader":               {"", sharedView, &Leader{"host_1f3c"}, "the leader's Lease is held by host_1f3c, a kube-controller-manager without rings"},
		"one that controls a terminal": {"", sharedView, &Leader{"host\x1b[2J\n\u202e"}, `the leader's Lease is held by host\u001b[2J\n\u202e, a kube-controller-manager without rings`},
		// What it is called is cut as people see it, so the record can hold it.
		"one of a long name":     {"", sharedView, &Leader{strings.Repeat("\x1b", 1000)}, "the leader's Lease is held by " + strings.Repeat(`\u001b`, 1000)[:256] + ", a kube-controller-manager without rings"},
		"another does not list":  {"", short, &Leader{}, "ControllerInstance b does not list it in spec.controllers"},
		"that, and a stock one":  {"", short, &Leader{"host_1f3c"}, "ControllerInstance b does not list it in spec.controllers"},
		"that, and unknown":      {"", short, nil, "ControllerInstance b does not list it in spec.controllers"},
		"its own record is gone": {"", NewView(0), &Leader{}, ""},
		"barred":                 {"it must not", sharedView, &Leader{}, "it must not"},
		"barred, and all else":   {"it must not", short, nil, "it must not"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, "x")
			d.works()
			in := RosterInput{Barred: tc.barred, View: tc.view, Leader: tc.leader, Reported: []string{"x"}}
			want := fmt.Sprint([]ControllerState{{"x", true, tc.want}})
			if got := d.Decide(in); fmt.Sprint(got.States) != want || (len(got.Open) == 1) != (tc.want == "") {
				t.Errorf("says %v, open %v; want %s", got.States, got.Open, want)
			}
			want = fmt.Sprint([]ControllerState{{"x", tc.want == "", tc.want}})
			if got := d.Decide(in); fmt.Sprint(got.States) != want {
				t.Errorf("says %v then, want %s", got.States, want)
			}
		})
	}
}
