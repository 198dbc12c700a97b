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
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/munnerz/goautoneg"

	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/member"
)

// ringzHeader is as that of /statusz and /flagz.
const ringzHeader = `
%s ringz
Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.
`

const (
	textType = "text/plain"
	jsonType = "application/json"
)

// Ringz returns what serves /ringz: what the process knows of its part in the ring. It names
// objects and instances, so it is for those who may see these, and belongs behind a filter that
// authenticates and authorizes. `kubectl ring views` asks for it by HTTPS at the host and port that
// HolderIdentity begins with.
func (h *Host) Ringz() http.Handler {
	return NewRingz(h.cfg.Ring, func() member.Process {
		return member.Process{Started: h.process.Made, Instances: []member.Snapshot{h.Snapshot()}}
	})
}

// NewRingz returns what serves /ringz for a component of that name: as text or, where the client
// asks for that, as JSON, what look returns; with what has been recorded only for ?recording=true.
func NewRingz(component string, look func() member.Process) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		contentType := textType
		if accept := r.Header.Get("Accept"); r.URL.Query().Get("format") == "json" {
			contentType = jsonType
		} else if accept != "" {
			contentType = goautoneg.Negotiate(accept, []string{textType, jsonType})
		}
		switch contentType {
		case textType:
			w.Header().Set("Content-Type", textType+"; charset=utf-8")
			process := look()
			writeRingz(w, component, &process, time.Now())
		case jsonType:
			w.Header().Set("Content-Type", jsonType)
			process := look()
			if r.URL.Query().Get("recording") != "true" {
				for i := range process.Instances {
					process.Instances[i].Recording = nil
				}
			}
			_ = json.NewEncoder(w).Encode(process)
		default:
			http.Error(w, fmt.Sprintf("only the following media types are accepted: %s, %s", textType, jsonType), http.StatusNotAcceptable)
		}
	})
}

// writeRingz writes the process as text. What does not get through, nobody reads.
func writeRingz(out io.Writer, component string, p *member.Process, now time.Time) {
	fmt.Fprintf(out, ringzHeader+"\n", component)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "Started\t%s, %s ago\n", p.Started.UTC().Format(time.RFC3339), age(now.Sub(p.Started).Seconds()))
	_ = w.Flush()
	if len(p.Instances) == 0 {
		fmt.Fprintf(out, "\nThis process is on no ring.\n")
	}
	for i := range p.Instances {
		writeRing(out, &p.Instances[i], now)
	}
}

func writeRing(out io.Writer, s *member.Snapshot, now time.Time) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	// No cell is of several lines, or controls a terminal.
	row := func(cells ...any) {
		for n, cell := range cells {
			if n > 0 {
				fmt.Fprint(w, "\t")
			}
			fmt.Fprint(w, ring.Printable(fmt.Sprint(cell)))
		}
		fmt.Fprintln(w)
	}
	line := func(name, format string, args ...any) { row(name, fmt.Sprintf(format, args...)) }
	// table ends what was begun, so its columns are its own.
	table := func(title, columns string) {
		_ = w.Flush()
		fmt.Fprintf(out, "\n%s\n", title)
		fmt.Fprintln(w, columns)
	}
	fmt.Fprintf(out, "\n==== ring %s ====\n\n", ring.Printable(s.Ring))
	line("Holder", "%s", s.Holder)
	line("Balance", "%s", s.Balance)
	if s.Name == "" {
		line("Instance", "none: it is not registered")
	} else {
		line("Instance", "%s, UID %s", s.Name, s.UID)
		line("Last round", "%s ago", age(s.RoundAgeSeconds))
		line("Log read up to", "revision %d", s.Revision)
		line("Phase", "%s", s.Phase)
		line("Owns", "%s", s.Owned)
		line("Follows", "%s", s.Follow)
		line("Drains", "%s", s.Draining)
		line("Epoch", "%d", s.Epoch)
		line("Gives", "%s", cmp.Or(s.Gives, "nothing"))
		line("Next write", "%s", cmp.Or(s.Write, "none"))
		line("Proposal", "%s", cmp.Or(s.Proposal, "none"))
	}
	line("Gate open for", "%s", s.Open)
	switch {
	case s.BelievesForSeconds > 0:
		line("Deadline", "in %s, unless a renewal is answered before", age(s.BelievesForSeconds))
	case s.Name != "":
		line("Deadline", "passed: no renewal was answered in time, so the gate is shut by itself")
	}
	switch p := s.Presence; {
	case p == nil:
		line("Presence", "not asked for")
	case p.Since != nil:
		line("Presence", "since %s", p.Since.UTC().Format(time.RFC3339))
	default:
		line("Presence", "none: %s", p.Lacks)
	}
	line("Barred", "%s", cmp.Or(s.Barred, "no"))

	table(fmt.Sprintf("Records as of the last round: %d", len(s.Records)), "NAME\tUID\tKEY\tNEXT KEY\tPHASE\tGENERATION\tREVISION")
	for _, r := range s.Records {
		row(r.Name, r.UID, cmp.Or(r.HashKey, "none"), cmp.Or(r.NextHashKey, "none"), r.Phase, r.Generation, r.Revision)
	}
	table("Doors", "CONTROLLER\tWORKS ON IT\tOPEN FOR\tWHY NOT")
	for _, d := range s.Doors {
		works := "no"
		if d.Working {
			works = "yes"
		}
		row(d.Controller, works, d.Open, d.Reason)
	}
	table("Sources", "SOURCE\tHOLDS\tLACKS\tWAITS FOR")
	for _, source := range s.Sources {
		row(source.Name, source.Held, source.Lacks, cmp.Or(source.Waits, "nothing"))
	}
	shown := ""
	if len(s.Oldest) < s.Busy {
		shown = fmt.Sprintf(", the oldest %d of them", len(s.Oldest))
	}
	table(fmt.Sprintf("Work under way: %d%s", s.Busy, shown), "AGE\tCONTROLLER\tKEY")
	for _, p := range s.Oldest {
		row(age(p.AgeSeconds), p.Controller, p.HashKey)
	}
	table("Last decisions, the newest first", "AGE\tTIMES\tREVISION\tWHAT\t")
	for _, d := range slices.Backward(s.Decided) {
		row(age(now.Sub(d.Time).Seconds()), d.Times, d.Revision, d.What, d.Text)
	}
	_ = w.Flush()
}

// age returns seconds as a duration that is short enough for people.
func age(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d < 10*time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	}
	return d.Round(time.Minute).String()
}
