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

package balance

import (
	"slices"

	"k8s.io/client-go/tools/ring"
)

// mostWork is for how many objects work counts at most in a load: records may tell anything, and
// their keys take 16 MiB, as much as a process without objects.
const mostWork = 1 << 21

// loaded are the keys of a donor's load, one for each object of it, in order along its range.
type loaded struct {
	ring.Arc
	// distances are those of the keys, in order.
	distances []uint64
}

// load returns the load of the instance's range, from the keys of its objects and those of its
// work; others may be among them.
// Both are taken as a sample of what the record tells.
func load(view *ring.View, r ring.Record, settings Settings, objects, worked []int64) loaded {
	l := loaded{Arc: ring.NewArc(*r.Key, view.Owned(r.Name))}
	total := total(view)
	add := func(key int64) {
		if d := l.Distance(key); d < l.Width {
			l.distances = append(l.distances, d)
		}
	}
	for _, key := range objects {
		add(key)
	}
	if n := work(view, &r, settings, total); n > 0 && len(worked) > 0 {
		// What is given takes with it its part of all the work, not only of that which counts.
		n = min(n*int64(r.Work)/int64(r.Work-idleWork), mostWork)
		for i := range n {
			add(worked[i*int64(len(worked))/n])
		}
	}
	if n := seed(view, &r, settings, total); n > 0 {
		gap := l.Width / uint64(n+1)
		for i := range uint64(n) {
			l.distances = append(l.distances, (i+1)*gap)
		}
	}
	slices.Sort(l.distances)
	return l
}

// cut returns the key at which the range is to be cut so that about load changes hands, at most
// most and at most limit keys: those at the upper end of the range, or else at the lower one. It
// returns how many keys, and how much load, that is; no load: there is no such key. Objects of one
// key stay together, and the donor keeps a key.
func (l *loaded) cut(upper bool, load, most int64, limit uint64) (key int64, width uint64, given int64) {
	n := len(l.distances)
	best := uint64(0)
	for i := range n {
		// The lower range ends with this key, or before the gap to the next.
		d := l.distances[i]
		if i+1 < n && l.distances[i+1] == d || d+1 >= l.Width {
			continue
		}
		w, gives := d+1, int64(i+1)
		if upper {
			w, gives = l.Width-d-1, int64(n-i-1)
		}
		if w > limit || gives == 0 || gives > most {
			continue
		}
		if given == 0 || max(gives-load, load-gives) < max(given-load, load-given) {
			best, width, given = d, w, gives
		}
	}
	return l.Key(best), width, given
}

// reach returns the key at which the range is to be cut so that limit keys change hands, fewer than
// it has, at the upper end of the range, or else at the lower one, and how much load that is.
func (l *loaded) reach(upper bool, limit uint64) (key int64, given int64) {
	d := limit - 1
	if upper {
		d = l.Width - 1 - limit
	}
	below, _ := slices.BinarySearch(l.distances, d+1)
	if upper {
		return l.Key(d), int64(len(l.distances) - below)
	}
	return l.Key(d), int64(below)
}
