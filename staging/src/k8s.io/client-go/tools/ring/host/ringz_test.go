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

package host

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/member"
)

// getRingz returns the answer to a request with that Accept header.
func getRingz(h http.Handler, url, accept string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, url, nil)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// A process with an instance that is at work and one that is not registered.
func ringzProcess(now time.Time) member.Process {
	return member.Process{Started: now.Add(-90 * time.Minute), Instances: []member.Snapshot{{
		Ring: "claims", Holder: "host:1_2_x", Balance: member.BalanceState{Mode: member.BalanceDisabled}, Open: "nothing", Doors: []member.DoorState{{Controller: "pvc-protection", Open: "nothing"}},
	}, {
		Ring: "workloads", Holder: "host:1_2_x", Balance: member.BalanceState{Mode: member.BalanceDryRun, TolerancePercent: 10, KeysPercentPerMinute: 5}, Name: "workloads-a", UID: "u", RoundAgeSeconds: 12.3456, Revision: 41,
		Records: []member.RecordState{{Name: "workloads-a", UID: "u", HashKey: "7fffffffffffffff", Phase: shardingv1alpha1.InstanceActive, Generation: 2, Revision: 40}},
		Phase:   shardingv1alpha1.InstanceActive, Owned: "all", Follow: "all", Draining: "nothing", Epoch: 3,
		Open: "all", BelievesForSeconds: 4.5, Barred: "a reason", Presence: &member.PresenceState{Lacks: "no server"},
		Doors: []member.DoorState{
			{Controller: "job", Open: "nothing", Reason: "the leader runs it"},
			{Controller: "replicaset-controller", Open: "all", Working: true},
		},
		Sources: []member.SourceState{{Name: "pods by home", Held: "all", Lacks: "nothing", Waits: "a watch"}},
		Busy:    2, Oldest: []member.PieceState{{Controller: "replicaset-controller", HashKey: "0000000000000007", AgeSeconds: 61}},
		Decided: []member.Decided{
			{Time: now.Add(-2 * time.Hour), Times: 1, Revision: 30, What: member.DecidedRegistered, Text: "workloads-a"},
			{Time: now.Add(-time.Minute), Times: 3, Revision: 41, What: member.DecidedNotWritten, Text: "first: no"},
		},
	}}}
}

func TestRecordingsAreShownWhereTheyAreAskedFor(t *testing.T) {
	for query, want := range map[string]bool{"": false, "?recording=true": true, "?recording=false": false} {
		process := ringzProcess(time.Now())
		process.Instances[1].Recording = &ring.History{Steps: []ring.Step{{Raised: true}}}
		w := getRingz(NewRingz("component", func() member.Process { return process }), "/ringz"+query, jsonType)
		var got member.Process
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if shown := got.Instances[1].Recording; (shown != nil) != want || want && len(shown.Steps) != 1 {
			t.Errorf("%q: shows %+v", query, shown)
		}
	}
}

func TestRingzAsText(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	process := ringzProcess(now)
	var out strings.Builder
	writeRingz(&out, "kube-controller-manager", &process, now)
	want := `
kube-controller-manager ringz
Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.

Started  2026-01-02T01:34:05Z, 1h30m0s ago

==== ring claims ====

Holder         host:1_2_x
Balance        Disabled
Instance       none: it is not registered
Gate open for  nothing
Presence       not asked for
Barred         no

Records as of the last round: 0
NAME  UID  KEY  NEXT KEY  PHASE  GENERATION  REVISION

Doors
CONTROLLER      WORKS ON IT  OPEN FOR  WHY NOT
pvc-protection  no           nothing   

Sources
SOURCE  HOLDS  LACKS  WAITS FOR

Work under way: 0
AGE  CONTROLLER  KEY

Last decisions, the newest first
AGE  TIMES  REVISION  WHAT  

==== ring workloads ====

Holder          host:1_2_x
Balance         DryRun, tolerance 10%, 5% of all keys a minute
Instance        workloads-a, UID u
Last round      12s ago
Log read up to  revision 41
Phase           Active
Owns            all
Follows         all
Drains          nothing
Epoch           3
Gives           nothing
Next write      none
Proposal        none
Gate open for   all
Deadline        in 4.5s, unless a renewal is answered before
Presence        none: no server
Barred          a reason

Records as of the last round: 1
NAME         UID  KEY               NEXT KEY  PHASE   GENERATION  REVISION
workloads-a  u    7fffffffffffffff  none      Active  2           40

Doors
CONTROLLER             WORKS ON IT  OPEN FOR  WHY NOT
job                    no           nothing   the leader runs it
replicaset-controller  yes          all       

Sources
SOURCE        HOLDS  LACKS    WAITS FOR
pods by home  all    nothing  a watch

Work under way: 2, the oldest 1 of them
AGE   CONTROLLER             KEY
1m1s  replicaset-controller  0000000000000007

Last decisions, the newest first
AGE     TIMES  REVISION  WHAT         
1m0s    3      41        not written  first: no
2h0m0s  1      30        registered   workloads-a
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	out.Reset()
	writeRingz(&out, "any", &member.Process{Started: now}, now)
	if !strings.Contains(out.String(), "This process is on no ring.") {
		t.Errorf("got\n%s", out.String())
	}
}

func TestRingzIsTextUnlessTheClientAsksForJSON(t *testing.T) {
	now := time.Now().UTC().Round(0)
	process := ringzProcess(now)
	handler := NewRingz("any", func() member.Process { return process })
	for _, tc := range []struct {
		url, accept, want string
		code              int
	}{
		{"/ringz", "", "text/plain; charset=utf-8", http.StatusOK},
		{"/ringz", "*/*", "text/plain; charset=utf-8", http.StatusOK},
		{"/ringz", "text/html,text/plain;q=0.9,application/json;q=0.1", "text/plain; charset=utf-8", http.StatusOK},
		{"/ringz", "application/json", "application/json", http.StatusOK},
		{"/ringz?format=json", "", "application/json", http.StatusOK},
		{"/ringz", "application/yaml", "text/plain; charset=utf-8", http.StatusNotAcceptable},
	} {
		got := getRingz(handler, tc.url, tc.accept)
		if got.Code != tc.code || got.Header().Get("Content-Type") != tc.want {
			t.Errorf("%s with %q: got %d and %q, want %d and %q", tc.url, tc.accept, got.Code, got.Header().Get("Content-Type"), tc.code, tc.want)
		}
		if tc.want != "application/json" {
			continue
		}
		var decoded member.Process
		if err := json.Unmarshal(got.Body.Bytes(), &decoded); err != nil || !decoded.Started.Equal(process.Started) || len(decoded.Instances) != 2 || decoded.Instances[1].Doors[0] != process.Instances[1].Doors[0] {
			t.Errorf("got %v, and %s", err, got.Body)
		}
	}
}

// What a Host serves says that it is not registered, before it is.
func TestAHostServesRingz(t *testing.T) {
	cfg := good()
	cfg.HolderIdentity = "host:1_x"
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var got member.Process
	if err := json.Unmarshal(getRingz(h.Ringz(), "/ringz", "application/json").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Started.IsZero() || len(got.Instances) != 1 || got.Instances[0].Ring != "a" || got.Instances[0].Holder != "host:1_x" || got.Instances[0].Name != "" {
		t.Errorf("got %+v", got)
	}
	if text := getRingz(h.Ringz(), "/ringz", "").Body.String(); !strings.HasPrefix(text, "\na ringz\n") || !strings.Contains(text, "none: it is not registered") {
		t.Errorf("got\n%s", text)
	}
}

// What others have written, such as an answer of a server, neither controls a terminal nor forges a
// line.
func TestRingzAsTextIsPrintable(t *testing.T) {
	const hostile = "x\x1b[2J\nFORGED\u202e\xff"
	now := time.Now()
	process := ringzProcess(now)
	for i := range process.Instances {
		s := &process.Instances[i]
		s.Holder, s.Name, s.Write, s.Proposal, s.Gives, s.Barred = hostile, hostile, hostile, hostile, hostile, hostile
		for n := range s.Records {
			s.Records[n].Name, s.Records[n].Phase = hostile, hostile
		}
		for n := range s.Doors {
			s.Doors[n].Controller, s.Doors[n].Reason = hostile, hostile
		}
		for n := range s.Sources {
			s.Sources[n].Name = hostile
		}
		for n := range s.Oldest {
			s.Oldest[n].Controller = hostile
		}
		for n := range s.Decided {
			s.Decided[n].Text = hostile
		}
	}
	var out strings.Builder
	writeRingz(&out, "any", &process, now)
	if text := out.String(); text != ring.PrintableLines(text) || strings.Contains(text, "\nFORGED") || !strings.Contains(text, `x\u001b[2J\nFORGED\u202e\xff`) {
		t.Errorf("got %q", text)
	}
}
