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
	"maps"
	"strings"
	"time"
)

const (
	// youngAge is how long a process has to own a range that its death is none of a crash
	// loop.
	youngAge = 5 * time.Minute
	// firstRest is how long one that died young gets no range, twice as long after each
	// further time, up to maxRest.
	firstRest = 10 * time.Second
	maxRest   = 5 * time.Minute
)

// history is what an instance remembers of processes that have died young. A crash loop
// takes a range down with it each time, so a donor lets the next one in that slot wait. Its
// maps are never changed in place.
type history struct {
	// view is the one that was observed last.
	view *View
	// alive holds those that have owned a range.
	alive map[registration]life
	// slots holds those where the last process died young.
	slots map[string]strikes
}

// life is that of an instance, as far as it was seen.
type life struct {
	holder  string
	since   time.Duration
	leaving bool
}

type strikes struct {
	// holder is the last that died.
	holder string
	times  int
	// until is when the next may get a range.
	until time.Duration
}

// Place returns the place of a process, which outlives it: what comes before the last two parts
// of a holder's name, HOST_PID_RANDOM, or before the only '_'. The name of a host may have a '_'
// itself. A holder without one has no place, "".
func Place(holder string) string {
	end := strings.LastIndex(holder, "_")
	if end < 0 {
		return ""
	}
	if pid := strings.LastIndex(holder[:end], "_"); pid >= 0 {
		end = pid
	}
	return holder[:end]
}

// observe takes note of who has come and gone.
func (h *history) observe(view *View, now time.Duration) {
	if h.view == view {
		return
	}
	h.view = view
	var alive map[registration]life
	change := func() {
		if alive == nil {
			alive = maps.Clone(h.alive)
			if alive == nil {
				alive = map[registration]life{}
			}
			h.slots = maps.Clone(h.slots)
		}
	}
	for _, r := range view.Records() {
		s := Place(r.Holder)
		if s == "" {
			continue
		}
		if h.slots[s].holder == r.Holder {
			// It lives, and has lost its record only.
			change()
			delete(h.slots, s)
		}
		l, known := h.alive[r.registration()]
		if known && l.leaving == r.leaving() || !known && r.Key == nil {
			continue
		}
		change()
		if !known {
			l = life{holder: r.Holder, since: now}
		}
		l.leaving = r.leaving()
		alive[r.registration()] = l
	}
	for reg, l := range h.alive {
		if r, ok := view.Get(reg.name); ok && r.UID == reg.uid {
			continue
		}
		change()
		delete(alive, reg)
		s := Place(l.holder)
		if l.leaving || now-l.since >= youngAge {
			delete(h.slots, s)
			continue
		}
		if h.slots == nil {
			h.slots = map[string]strikes{}
		}
		n := h.slots[s].times + 1
		h.slots[s] = strikes{holder: l.holder, times: n, until: now + min(firstRest<<min(n-1, 16), maxRest)}
	}
	if alive != nil {
		h.alive = alive
	}
}

// doubtedUntil is until when the instance counts as one of a crash loop, which may still go on as soon
// as it gets a range; 0: it does not.
func (h *history) doubtedUntil(r Record) time.Duration {
	s := h.slots[Place(r.Holder)]
	if s.times == 0 {
		return 0
	}
	return s.until + youngAge<<min(s.times-1, 4)
}

// restsUntil is when the instance may get a range, as Input.Now counts; 0: at once.
func (h *history) restsUntil(r Record) time.Duration { return h.slots[Place(r.Holder)].until }
