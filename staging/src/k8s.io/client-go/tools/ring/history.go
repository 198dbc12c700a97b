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
	// Alive holds those that have owned a range.
	Alive map[registration]life
	// Slots holds those where the last process died young.
	Slots map[string]strikes
}

// life is that of an instance, as far as it was seen.
type life struct {
	Holder  string
	Since   time.Duration
	Leaving bool
}

type strikes struct {
	// Holder is the last that died.
	Holder string
	Times  int
	// Until is when the next may get a range.
	Until time.Duration
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
			alive = maps.Clone(h.Alive)
			if alive == nil {
				alive = map[registration]life{}
			}
			h.Slots = maps.Clone(h.Slots)
		}
	}
	for _, r := range view.Records() {
		s := Place(r.Holder)
		if s == "" {
			continue
		}
		if h.Slots[s].Holder == r.Holder {
			// It lives, and has lost its record only.
			change()
			delete(h.Slots, s)
		}
		l, known := h.Alive[r.registration()]
		if known && l.Leaving == r.leaving() || !known && r.Key == nil {
			continue
		}
		change()
		if !known {
			l = life{Holder: r.Holder, Since: now}
		}
		l.Leaving = r.leaving()
		alive[r.registration()] = l
	}
	for reg, l := range h.Alive {
		if r, ok := view.Get(reg.Name); ok && r.UID == reg.UID {
			continue
		}
		change()
		delete(alive, reg)
		s := Place(l.Holder)
		if l.Leaving || now-l.Since >= youngAge {
			delete(h.Slots, s)
			continue
		}
		if h.Slots == nil {
			h.Slots = map[string]strikes{}
		}
		n := h.Slots[s].Times + 1
		h.Slots[s] = strikes{Holder: l.Holder, Times: n, Until: now + min(firstRest<<min(n-1, 16), maxRest)}
	}
	if alive != nil {
		h.Alive = alive
	}
}

// doubtedUntil is until when the instance counts as one of a crash loop, which may still go on as
// soon as it gets a range; 0: it does not.
func (h *history) doubtedUntil(r Record) time.Duration {
	s := h.Slots[Place(r.Holder)]
	if s.Times == 0 {
		return 0
	}
	return s.Until + youngAge<<min(s.Times-1, 4)
}

// restsUntil is when the instance may get a range, as Input.Now counts; 0: at once.
func (h *history) restsUntil(r Record) time.Duration { return h.Slots[Place(r.Holder)].Until }
