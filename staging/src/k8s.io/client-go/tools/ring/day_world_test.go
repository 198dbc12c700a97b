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
	"cmp"
	"container/heap"
	"fmt"
	"math/rand"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/hashkey"
)

// These are the parts of a simulated day that know nothing of instances: its clock, the
// objects, and who works on which keys.

// timetable holds what is to happen, in order of time; of the same time, in the order in which
// it was asked for.
type timetable struct {
	now   time.Duration
	asked uint64
	queue occurrences
}

type occurrence struct {
	at    time.Duration
	asked uint64
	do    func()
}

type occurrences []occurrence

func (q occurrences) Len() int { return len(q) }
func (q occurrences) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].asked < q[j].asked
}
func (q occurrences) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *occurrences) Push(x any)   { *q = append(*q, x.(occurrence)) }
func (q *occurrences) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	(*q)[last] = occurrence{}
	*q = (*q)[:last]
	return x
}

// at has do happen at that time, or now if that has passed.
func (t *timetable) at(at time.Duration, do func()) {
	t.asked++
	heap.Push(&t.queue, occurrence{max(at, t.now), t.asked, do})
}

func (t *timetable) after(pause time.Duration, do func()) { t.at(t.now+pause, do) }

// next lets the next thing happen, if it is due by then.
func (t *timetable) next(until time.Duration) bool {
	if len(t.queue) == 0 || t.queue[0].at > until {
		t.now = until
		return false
	}
	o := heap.Pop(&t.queue).(occurrence)
	t.now = o.at
	o.do()
	return true
}

// objects are those of the ring's controllers, counted by key.
type objects struct {
	keys  []int64 // in order
	count []int64
	// tree is a Fenwick tree of count.
	tree []int64
	// heavy are the places of keys with more than one object, in order.
	heavy []int
	total int64
}

func newObjects(r *rand.Rand, n int) *objects {
	o := &objects{keys: make([]int64, n), count: make([]int64, n), tree: make([]int64, n+1)}
	for i := range o.keys {
		o.keys[i] = r.Int63()
	}
	slices.Sort(o.keys)
	return o
}

// set says how many objects the key at that place has.
func (o *objects) set(place int, n int64) {
	more := n - o.count[place]
	o.count[place] = n
	o.total += more
	for i := place + 1; i < len(o.tree); i += i & -i {
		o.tree[i] += more
	}
	at, is := slices.BinarySearch(o.heavy, place)
	switch {
	case n > 1 && !is:
		o.heavy = slices.Insert(o.heavy, at, place)
	case n <= 1 && is:
		o.heavy = slices.Delete(o.heavy, at, at+1)
	}
}

// before returns how many objects lie at the places below that one.
func (o *objects) before(place int) (n int64) {
	for i := place; i > 0; i &= i - 1 {
		n += o.tree[i]
	}
	return n
}

// places returns the places of the keys of a range, [first, end).
func (o *objects) places(r hashkey.Range) (first, end int) {
	first, _ = slices.BinarySearchFunc(o.keys, r.Start, func(key int64, start uint64) int { return cmp.Compare(uint64(key), start) })
	end, _ = slices.BinarySearchFunc(o.keys, r.End, func(key int64, start uint64) int { return cmp.Compare(uint64(key), start) })
	return first, end
}

func (o *objects) weight(ranges hashkey.Ranges) (n int64) {
	for _, r := range ranges {
		first, end := o.places(r)
		n += o.before(end) - o.before(first)
	}
	return n
}

// heaviest returns how many objects the key has that has most, the lowest if there are several, and
// how many come before it in the range.
func (o *objects) heaviest(ranges hashkey.Ranges) (most, before int64) {
	parts := slices.Clone(ranges)
	if n := len(parts); n > 1 && parts[0].Start == 0 && parts[n-1].End == hashkey.Limit {
		// It goes round the seam.
		parts[0], parts[n-1] = parts[n-1], parts[0]
	}
	sum, key := int64(0), int64(0)
	for _, r := range parts {
		first, end := o.places(r)
		from := o.before(first)
		if most == 0 && o.before(end) > from {
			most, before, key = 1, sum, o.keys[o.find(from)]
		}
		at, _ := slices.BinarySearch(o.heavy, first)
		for ; at < len(o.heavy) && o.heavy[at] < end; at++ {
			place := o.heavy[at]
			if n := o.count[place]; n > most || n == most && o.keys[place] < key {
				most, before, key = n, sum+o.before(place)-from, o.keys[place]
			}
		}
		sum += o.before(end) - from
	}
	return most, before
}

// list returns the keys of all objects in those ranges.
func (o *objects) list(ranges hashkey.Ranges) []int64 {
	out := make([]int64, 0, o.weight(ranges))
	for _, r := range ranges {
		first, end := o.places(r)
		for i := first; i < end; i++ {
			for range o.count[i] {
				out = append(out, o.keys[i])
			}
		}
	}
	return out
}

// sample returns the keys of n random objects in those ranges.
func (o *objects) sample(r *rand.Rand, ranges hashkey.Ranges, n int) []int64 {
	weight := o.weight(ranges)
	if weight == 0 {
		return nil
	}
	out := make([]int64, n)
	for i := range out {
		at := r.Int63n(weight)
		for _, part := range ranges {
			first, end := o.places(part)
			from := o.before(first)
			if in := o.before(end) - from; at >= in {
				at -= in
				continue
			}
			out[i] = o.keys[o.find(from+at)]
			break
		}
	}
	return out
}

// find returns the place of the key of the object with so many before it.
func (o *objects) find(before int64) int {
	place, step := 0, 1
	for step*2 < len(o.tree) {
		step *= 2
	}
	for ; step > 0; step /= 2 {
		if next := place + step; next < len(o.tree) && o.tree[next] <= before {
			place = next
			before -= o.tree[next]
		}
	}
	return place
}

// coverage says who works on which keys: parts of the line, in order and without gaps.
type coverage struct {
	parts []worked
	// gap is how many keys nobody works on, from 0 to 1; seconds is that times seconds.
	gap, seconds float64
	seen         time.Duration
	// longest is how long a key had no worker, of those that have one again.
	longest time.Duration
}

// worked is the part of the line from start to the next part.
type worked struct {
	start uint64
	by    *simulatedProcess // nil: nobody
	since time.Duration
}

func newCoverage() *coverage { return &coverage{parts: []worked{{}}, gap: 1} }

func (c *coverage) count(now time.Duration) {
	c.seconds += c.gap * (now - c.seen).Seconds()
	c.seen = now
}

// split makes a part begin there, and returns which one.
func (c *coverage) split(start uint64) int {
	i, ok := slices.BinarySearchFunc(c.parts, start, func(w worked, start uint64) int { return cmp.Compare(w.start, start) })
	if !ok && start < hashkey.Limit {
		w := c.parts[i-1]
		w.start = start
		c.parts = slices.Insert(c.parts, i, w)
	}
	return i
}

func (c *coverage) end(i int) uint64 {
	if i+1 < len(c.parts) {
		return c.parts[i+1].start
	}
	return hashkey.Limit
}

// set takes note that the range has another worker. It fails if it had one already.
func (c *coverage) set(r hashkey.Range, by *simulatedProcess, now time.Duration) error {
	c.count(now)
	first := c.split(r.Start)
	last := c.split(r.End)
	for i := first; i < last; i++ {
		w := &c.parts[i]
		width := float64(c.end(i)-w.start) / float64(hashkey.Limit)
		switch {
		case w.by != nil && by != nil:
			return fmt.Errorf("%s and %s both work on %v", w.by.name, by.name, hashkey.Ranges{{Start: w.start, End: c.end(i)}})
		case by != nil:
			c.gap -= width
			c.longest = max(c.longest, now-w.since)
		case w.by != nil:
			c.gap += width
		}
		w.by, w.since = by, now
	}
	// Parts that are alike become one.
	from, to := max(first-1, 0), min(last+1, len(c.parts))
	kept := from + 1
	for i := from + 1; i < to; i++ {
		if last := c.parts[kept-1]; c.parts[i].by == last.by && (last.by != nil || c.parts[i].since == last.since) {
			continue
		}
		c.parts[kept] = c.parts[i]
		kept++
	}
	c.parts = slices.Delete(c.parts, kept, to)
	return nil
}

// open returns what nobody works on, and how long that has been so at most.
func (c *coverage) open(now time.Duration) (gaps hashkey.Ranges, longest time.Duration) {
	for i, w := range c.parts {
		if w.by == nil {
			gaps = append(gaps, hashkey.Range{Start: w.start, End: c.end(i)})
			longest = max(longest, now-w.since)
		}
	}
	return gaps, longest
}
