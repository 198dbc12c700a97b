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

package member

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/hashkey"
)

// idleTold is how long an instance may be kept from work until its record says why.
const idleTold = 5 * time.Second

// Why an instance does not work on a controller that its record says it may be working on.
const (
	reasonNoLeader = "it could not be read who leads"
	reasonStale    = "its caches do not hold yet all that it owns"
)

// whyUnfilled says why the caches do not hold all keys that the instance owns, of which it has not
// begun to fill these.
func (t *term) whyUnfilled(unfilled hashkey.Ranges) string {
	if capacity := t.cfg.Capacity(); capacity > 0 && !unfilled.Empty() {
		return fmt.Sprintf("nobody works on %v: that may be more than the %d objects that the process can hold", unfilled, capacity)
	}
	return reasonStale
}

// maxAwaited bounds what a record says of what the sources wait for, in characters.
const maxAwaited = 512

// awaited says what sources have waited for, for long; "" if there is no such thing.
func (t *term) awaited() string {
	var all []string
	for i, s := range t.cfg.Sources {
		if waits := s.Waits(); waits != "" {
			all = append(all, fmt.Sprintf("%s waits for %s", nameOf(s, i), waits))
		}
	}
	return strings.ToValidUTF8(fmt.Sprintf("%.*s", maxAwaited, strings.Join(all, "; ")), "")
}

// sayAwaited has the record say what sources have waited for, for long, of each controller of which
// it says nothing else.
func (t *term) sayAwaited() {
	waits := t.awaited()
	if waits == "" {
		return
	}
	for i := range t.duties.states {
		if s := &t.duties.states[i]; s.Reason == "" || s.Reason == reasonStale {
			s.Reason = waits
		}
	}
	t.news.status.Controllers = controllerStates(t.duties.states)
}

// nameOf returns the name of a source, the i-th, for people.
func nameOf(s Source, i int) string {
	if named, ok := s.(fmt.Stringer); ok {
		return named.String()
	}
	return fmt.Sprintf("source %d", i+1)
}

// sayIdle has the record say why the instance does not work on keys for which its gate may be open,
// or on these controllers for which it may, once that has lasted. It returns when to look again; 0:
// once something else has happened.
func (t *term) sayIdle(now time.Time, open, unfilled hashkey.Ranges, may []string) time.Duration {
	shut := !open.Minus(t.cfg.Gate.serving()).Empty() || !unfilled.Empty()
	var idle []int
	for i, s := range t.duties.states {
		if !open.Empty() && s.Working && s.Reason == "" && (shut || !t.cfg.Gate.For(s.Name).isOpen()) {
			idle = append(idle, i)
		}
	}
	if len(idle) == 0 {
		t.idleSince = time.Time{}
		return 0
	}
	if t.idleSince.IsZero() {
		t.idleSince = now
	}
	if rest := t.idleSince.Add(idleTold).Sub(now); rest > 0 {
		return rest
	}
	for _, i := range idle {
		t.duties.states[i].Reason = reasonNoLeader
		if slices.Contains(may, t.duties.states[i].Name) {
			t.duties.states[i].Reason = t.whyUnfilled(unfilled)
		}
	}
	t.news.status.Controllers = controllerStates(t.duties.states)
	return 0
}
