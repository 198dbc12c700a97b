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
	"slices"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/test/harness/ownership"
)

const (
	// evenRatio is how many times the mean the largest load may be, and fewObjects how much above
	// it if there are few objects.
	evenRatio  = 1.2
	fewObjects = 20
	// free is for how long after an instance has come or gone more than rate may move.
	free = 2 * time.Minute
)

// What makes keys change hands.
const (
	byFirst   = "first"
	byJoin    = "join"
	byLeave   = "leave"
	byDeath   = "death"
	byBalance = "balance"
)

// change is some keys that have changed hands.
type change struct {
	at time.Time
	by string
	// keys is the part of all keys, from 0 to 1.
	keys float64
	// begun is when a move by balance was asked for, uid whose upper end has moved from where to
	// where.
	begun    time.Time
	uid      string
	from, to int64
}

// load is how the load lies on the ring at a moment.
type load struct {
	at time.Time
	// owners are the instances that own a range.
	owners int
	mean   float64
	// ratio is the largest weight : the mean one.
	ratio float64
	// counted is the same where each weight counts without what its heaviest key has beyond the
	// mean: no range can be split within a key.
	counted float64
	// even says that counted is small enough.
	even bool
	// width is the widest range : the mean one.
	width float64
}

// history is what the events say.
type history struct {
	changes []change
	loads   []load
	// owners are those at the time of each load, in order of key.
	owners []ownership.View
}

// replay goes through the events.
func replay(events []event) *history {
	h := &history{}
	now := map[string]event{}
	begun := map[string]time.Time{}
	for _, e := range events {
		before := ownersOf(now)
		former, known := now[e.UID]
		if e.Deleted {
			delete(now, e.UID)
		} else {
			now[e.UID] = e
		}
		owners := ownersOf(now)
		if e.Next != nil && (former.Next == nil || *former.Next != *e.Next) {
			begun[e.UID] = e.At
		}
		c := change{at: e.At, uid: e.UID}
		switch {
		case e.Deleted && known && former.Key != nil:
			c.by, c.keys = byDeath, share(before, e.UID)
			if former.Phase == shardingv1alpha1.InstanceLeaving || former.Asked {
				c.by = byLeave
			}
		case !e.Deleted && e.Key != nil && former.Key == nil:
			c.by, c.keys = byJoin, share(owners, e.UID)
			if len(before) == 0 {
				c.by = byFirst
			}
		case !e.Deleted && e.Key != nil && *e.Key != *former.Key:
			c.by, c.from, c.to, c.begun = byBalance, *former.Key, *e.Key, e.At
			c.keys = min(distance(c.from, c.to), distance(c.to, c.from))
			if asked, ok := begun[e.UID]; ok {
				c.begun = asked
			}
		}
		if c.by != "" {
			h.changes = append(h.changes, c)
		}
		if len(owners) > 0 {
			h.loads = append(h.loads, loadOf(e.At, now, owners))
			h.owners = append(h.owners, owners)
		}
	}
	return h
}

// ownersOf returns what the instances own.
func ownersOf(now map[string]event) ownership.View {
	var parts []ownership.Part
	for _, e := range now {
		if e.Key != nil {
			parts = append(parts, ownership.Part{Name: e.Name, UID: types.UID(e.UID), Key: *e.Key})
		}
	}
	return ownership.Of(parts)
}

// distance returns how far it is up the line from one key to another, as a part of all keys.
func distance(from, to int64) float64 {
	return float64(uint64(to-from)&(hashkey.Limit-1)) / float64(hashkey.Limit)
}

// share returns the part of all keys that one of the owners owns.
func share(owners ownership.View, uid string) float64 {
	i := slices.IndexFunc(owners, func(o ownership.Part) bool { return string(o.UID) == uid })
	if len(owners) == 1 {
		return 1
	}
	return distance(owners[(i+len(owners)-1)%len(owners)].Key, owners[i].Key)
}

func loadOf(at time.Time, now map[string]event, owners ownership.View) load {
	l := load{at: at, owners: len(owners)}
	var sum, most int64
	for _, o := range owners {
		sum += now[string(o.UID)].Weight
		most = max(most, now[string(o.UID)].Weight)
		l.width = max(l.width, share(owners, string(o.UID))*float64(len(owners)))
	}
	l.mean = float64(sum) / float64(len(owners))
	var counted float64
	for _, o := range owners {
		e := now[string(o.UID)]
		counted = max(counted, float64(e.Weight)-max(0, float64(e.Heaviest)-l.mean))
	}
	if sum > 0 {
		l.ratio, l.counted = float64(most)/l.mean, counted/l.mean
	}
	l.even = counted <= max(evenRatio*l.mean, l.mean+fewObjects)
	return l
}

// phase is a part of the scenario.
type phase struct {
	name string
	// begin is when something began to happen, done when that had happened, and end when the next
	// phase began.
	begin, done, end time.Time
	// within says that the load has to be even soon, and rolling that it is the rolling restart.
	within, rolling bool
}

// figures are those of a phase.
type figures struct {
	phase
	last load
	// even is since when the load has been even for good, never is set if it is not.
	even  time.Time
	never bool
	// most is the largest counted ratio.
	most float64
	// moved has the part of all keys that has moved, by what has moved them.
	moved map[string]float64
	moves int
	// back is how many moves have undone more than half of an earlier one.
	back int
	// minute is the most that balance has moved in any minute later than free after an instance came
	// or went.
	minute float64
}

// of returns the figures of a phase.
func (h *history) of(p phase) figures {
	f := figures{phase: p, even: p.begin, moved: map[string]float64{}}
	for _, l := range h.loads {
		if !l.at.Before(p.end) {
			break
		}
		wasEven := l.even
		f.last = l
		if l.at.Before(p.begin) {
			continue
		}
		f.most = max(f.most, l.counted)
		switch {
		case !wasEven:
			f.never = true
		case f.never:
			f.even, f.never = l.at, false
		}
	}
	if !f.last.even {
		f.never = true
	}
	for _, c := range h.changes {
		if !c.at.Before(p.begin) && c.at.Before(p.end) {
			f.moved[c.by] += c.keys
			if c.by == byBalance {
				f.moves++
			}
		}
	}
	f.back = len(h.goneBack(p))
	f.minute = h.mostInAMinute(p)
	return f
}

// goneBack returns the moves by balance that undo more than half of an earlier one of the same
// boundary, both asked for in the phase, if no instance has come or gone since the earlier one was.
// Where the load is to be even soon, what was right before the load had changed for good is left
// out.
func (h *history) goneBack(p phase) (back []change) {
	earlier := map[string][]change{}
	stirred := p.begin
	if p.within {
		stirred = p.done
	}
	for _, c := range h.changes {
		if c.at.Before(p.begin) || !c.at.Before(p.end) {
			continue
		}
		if c.by != byBalance {
			clear(earlier)
			if c.at.After(stirred) {
				stirred = c.at
			}
			continue
		}
		if c.begun.Before(stirred) {
			continue
		}
		if slices.ContainsFunc(earlier[c.uid], func(e change) bool { return undone(e, c) > e.keys/2 }) {
			back = append(back, c)
		}
		earlier[c.uid] = append(earlier[c.uid], c)
	}
	return back
}

// undone returns which part of all keys the second move gives back of what the first one has moved.
func undone(first, second change) float64 {
	up := func(c change) bool { return distance(c.from, c.to) <= distance(c.to, c.from) }
	if up(first) == up(second) {
		return 0
	}
	// Both as intervals along the line, from the lower end of the first.
	low, high := first.from, first.to
	if !up(first) {
		low, high = high, low
	}
	lower, higher := second.from, second.to
	if !up(second) {
		lower, higher = higher, lower
	}
	length := distance(low, high)
	from := distance(low, lower)
	if from > 0.5 {
		from-- // it begins below
	}
	return max(0, min(length, from+distance(lower, higher))-max(0, from))
}

// mostInAMinute returns the most keys that balance has moved in any minute of the phase, of the
// moves that were asked for later than free after an instance had come or gone.
func (h *history) mostInAMinute(p phase) (most float64) {
	var stirred time.Time
	var late []change
	for _, c := range h.changes {
		if !c.at.Before(p.end) {
			break
		}
		if c.by != byBalance {
			stirred = c.at
			continue
		}
		if c.at.Before(p.begin) || c.begun.Before(stirred.Add(free)) {
			continue
		}
		late = append(late, c)
		sum := 0.0
		for _, other := range late {
			if c.at.Sub(other.at) < time.Minute {
				sum += other.keys
			}
		}
		most = max(most, sum)
	}
	return most
}

// hops returns how often each of some keys, evenly spaced, has changed its owner in the phase.
func (h *history) hops(p phase, keys int) []int {
	hops := make([]int, keys)
	owners := make([]ownership.Part, keys)
	for n, l := range h.loads {
		if !l.at.Before(p.end) {
			break
		}
		for i := range keys {
			key := int64(hashkey.Limit / uint64(keys) * uint64(i))
			now, _ := h.owners[n].Owner(key)
			if !l.at.Before(p.begin) && owners[i].UID != "" && now.UID != owners[i].UID {
				hops[i]++
			}
			owners[i] = now
		}
	}
	return hops
}
