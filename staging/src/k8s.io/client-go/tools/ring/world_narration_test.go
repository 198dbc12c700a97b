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
	"strings"
)

// note adds to the trace what follows from the action before it.
func (s *state) note(format string, args ...any) {
	if s.trace != nil {
		*s.trace = append(*s.trace, "    "+fmt.Sprintf(format, args...))
	}
}

// describe says what the action does, in the state before it.
func (s *state) describe(a action) string {
	if a.kind == start {
		return "a process starts"
	}
	p := s.proc[a.proc]
	switch {
	case a.kind == deliver:
		return fmt.Sprintf("%s reads %d of %d new events", p.name, a.arg, s.head.Revision-p.read)
	case a.kind == move && a.arg == cells:
		return fmt.Sprintf("an administrator takes back nextHashKey of %s", p.name)
	case a.kind == move:
		return fmt.Sprintf("an administrator sets nextHashKey of %s to %d", p.name, a.arg)
	case a.kind == suspect:
		return fmt.Sprintf("%s takes %s for dead", p.name, s.proc[a.arg].name)
	}
	return fmt.Sprintf([...]string{
		decide:     "%s decides again",
		report:     "%s reports its phase and caches",
		fill:       "%s fills its caches, as of now",
		refresh:    "%s brings what its caches hold up to date",
		finish:     "%s ends its work behind the shut gate",
		land:       "the write of %s arrives",
		landLate:   "the late write of %s arrives",
		tell:       "the report of %s arrives",
		tellLate:   "the late report of %s arrives",
		renew:      "%s renews its lease again",
		expire:     "the lease of %s ends, its record is gone",
		leave:      "%s is asked to terminate",
		drain:      "an administrator drains %s",
		crash:      "%s crashes",
		lapse:      "%s cannot renew before its gate's deadline; its requests may still be in flight",
		loseAnswer: "the write of %s arrives, the answer is lost",
		loseWrite:  "%s gets no answer to its write, which may still arrive",
		loseWork:   "the work of %s behind the shut gate ends in errors; its requests may still be in flight",
		cut:        "the connection of %s is cut; what it has sent may still arrive",
		loseTold:   "the report of %s arrives, the answer is lost",
		loseNews:   "%s gets no answer to its report, which may still arrive",
		stall:      "a time limit of %s passes",
		gap:        "the watch of %s ends, it lists the registry",
	}[a.kind], p.name)
}

func describeWrite(w *Write) string {
	if w.Delete {
		return fmt.Sprintf("%s: delete %s", w.Reason, w.Name)
	}
	return fmt.Sprintf("%s: %s gets key %s, next key %s, donor %q", w.Reason, w.Name, describeKey(w.Key), describeKey(w.Next), w.Donor)
}

func describeNews(n *news) string {
	if n.Gives == nil {
		return fmt.Sprintf("it gives nothing, epoch %d", n.Epoch)
	}
	return fmt.Sprintf("it gives %s the key %s, epoch %d", n.Gives.To, describeKey(&n.Gives.Key), n.Epoch)
}

// describeKey names a key by the cell that it ends.
func describeKey(key *int64) string {
	if key == nil {
		return "none"
	}
	return fmt.Sprint(cellOfKey(key))
}

func describeRing(v *View) string {
	if len(v.Ring()) == 0 {
		return "empty"
	}
	var parts []string
	for _, r := range v.Ring() {
		parts = append(parts, fmt.Sprintf("%s %v", r.Name, cellsOf(v.Owned(r.Name))))
	}
	return strings.Join(parts, ", ")
}
