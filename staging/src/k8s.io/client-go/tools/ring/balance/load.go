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

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/client-go/tools/ring"
)

const (
	// idleWork is the work, in thousandths, that does not count as load: a worker that rests for half
	// of the time keeps up. One that never rests counts as much as an even share of the ring.
	idleWork = 500
	// processBytes is about what a process holds without objects. What it holds beside them counts as
	// far as it is above as much again: less is not worth a handover.
	processBytes = 16 << 20
	// fewObjects take about as much memory as processBytes, at most. So few do not say how large one
	// is, nor make up for what a process holds beside them (three times as many make up for all of
	// it), and if they are of one key it is not worth a warning.
	fewObjects = 1000
	// mostLoad is what a record may tell of a load that counts: records may tell anything, and sums
	// of thousands of such loads, times a thousand, do not overflow.
	mostLoad = 1 << 32
)

// Part is an instance's part in the load of a ring, in objects.
type Part struct {
	Name string
	// Weight is how many objects it has told of, and Load that and what else counts as much: its
	// work and, where there are few objects, the width of its range.
	Weight, Load int64
	// Wanted is the load that it should have.
	Wanted int64
	// Beside is what its process holds beside the ring: as many objects would take as much memory. It
	// counts up to two thirds of what one has on average.
	Beside int64

	// These are measured. grown is by how much more its process holds now than what Beside counts, in
	// objects, if that is of before: it is to get as much less. It gives nothing for that by itself,
	// as heaps swing, but may come down to it where it passes load on.
	grown int64
	// pinned says that the upper end of its range is.
	pinned bool
	// heaviest is the load that cannot be taken from it, before and after what comes before and after
	// it in the range.
	heaviest, before, after int64

	// These follow from what it should have. It is fixed if its heaviest key alone is more than that:
	// it gets nothing then.
	fixed bool
	// tolerated is how much more it may have than wanted; of too little it may have twice that.
	tolerated int64
	// surplus is what it has too much, room how much more it can have without being near too much, and
	// least what it is to keep, which is less where it makes room for a heavy key.
	surplus, room, least int64

	// These follow from what is to flow. lumps are what lies at the lower and at the upper end of its
	// range up to its heaviest key, with that key, if the key is in the way of load that is to pass
	// there; else 0.
	lumps [2]int64
	// passes is what it is to get from its predecessor and to give to its successor; negative: the
	// other way round.
	passes int64
}

// measure returns the parts of all that own a range, in order of key, without what they should
// have. What processes hold beside their rings is that of heaps, an earlier view or the same; nil:
// nothing.
func measure(view *ring.View, settings Settings, heaps *ring.View) []Part {
	owners := view.Ring()
	out := make([]Part, len(owners))
	total := total(view)
	var bytes, share float64
	if heaps != nil {
		bytes, share = bytesOfObject(heaps), shareOfHeaps(heaps)
	}
	for i, r := range owners {
		part := &out[i]
		part.Name, part.Weight, part.pinned = r.Name, min(r.Weight, mostLoad), r.Pinned()
		if bytes > 0 {
			if then, ok := heaps.Get(r.Name); ok && then.UID == r.UID {
				most := 2 * total / int64(3*len(owners))
				part.Beside = min(beside(&then, bytes, share), most)
				part.grown = max(0, min(beside(r, bytes, share), most)-part.Beside)
			}
		}
		busy := work(view, r, settings, total)
		part.Load = part.Weight + seed(view, r, settings, total) + busy
		if part.Weight > 0 {
			// Its part of the work is not known: it may be as large as its part of the objects.
			scale := float64(part.Weight+busy) / float64(part.Weight)
			heaviest := min(r.Heaviest, part.Weight)
			part.heaviest = int64(scale * float64(heaviest))
			part.before = int64(scale * float64(min(r.BeforeHeaviest, part.Weight-heaviest)))
		}
		part.after = part.Load - part.heaviest - part.before
	}
	return out
}

// total returns how many objects the ring has.
func total(view *ring.View) (total int64) {
	for _, r := range view.Ring() {
		total += min(r.Weight, mostLoad)
	}
	return total
}

// seed is the load of the instance's range by its width alone, if the ring has that many objects.
func seed(view *ring.View, r *ring.Record, settings Settings, total int64) int64 {
	missing := settings.Seed*int64(len(view.Ring())) - total
	if missing <= 0 {
		return 0
	}
	return int64(float64(missing) * width(view, r.Name))
}

// work is the load of the instance's work, if the ring has that many objects.
func work(view *ring.View, r *ring.Record, settings Settings, total int64) int64 {
	n := int64(len(view.Ring()))
	mean := max(total, settings.Seed*n) / n
	return mean * int64(min(max(r.Work-idleWork, 0), 1000-idleWork)) / (1000 - idleWork)
}

// width returns the part of all keys that the instance owns, from 0 to 1.
func width(view *ring.View, name string) float64 {
	return float64(view.Owned(name).Width()) / float64(hashkey.Limit)
}

// bytesOfObject returns about how many bytes of heap come to one object in the caches of a process,
// 0 if that is not known: the lower median, as a process that leads holds more.
func bytesOfObject(view *ring.View) float64 {
	var all []float64
	for _, r := range view.Ring() {
		if tellsHeap(r) {
			all = append(all, float64(r.LiveBytes-processBytes)/float64(r.HeapObjects))
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[(len(all)-1)/2]
}

// tellsHeap says whether the instance has told of a heap that says how large an object is.
func tellsHeap(r *ring.Record) bool { return r.HeapObjects >= fewObjects && r.LiveBytes > processBytes }

// comparesHeaps says whether two processes or more have told of their heaps: what one alone holds
// can be compared with nothing.
func comparesHeaps(view *ring.View) bool {
	told := 0
	for _, r := range view.Ring() {
		if tellsHeap(r) {
			told++
		}
		if told > 1 {
			return true
		}
	}
	return false
}

// shareOfHeaps returns how much, from 0 to 1, of what a process holds beside its rings this ring
// makes up for: as large a part as it has of all objects, and less where these are few, as it would
// not help.
func shareOfHeaps(view *ring.View) float64 {
	var weight, objects, processes float64
	for _, r := range view.Ring() {
		if r.HeapObjects >= fewObjects {
			weight += float64(min(r.Weight, mostLoad))
			objects += float64(r.HeapObjects)
			processes++
		}
	}
	if objects == 0 {
		return 0
	}
	many := (objects/processes - fewObjects) / (2 * fewObjects)
	return min(1, weight/objects) * max(0, min(1, many))
}

// beside returns the share that counts of what the instance's process holds beside its rings, in
// objects of so many bytes.
func beside(r *ring.Record, bytes, share float64) int64 {
	side := float64(r.LiveBytes) - 2*processBytes - bytes*float64(r.HeapObjects)
	return int64(max(0, min(share*side/bytes, mostLoad)))
}
