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

package rangewatch

import (
	"slices"

	"k8s.io/apimachinery/pkg/hashkey"
)

// extent says how far something is complete: in ranges, every object as of
// revision, and in each part as of that part's revision if that is later.
type extent struct {
	ranges   hashkey.Ranges
	revision uint64
	parts    []part
}

type part struct {
	ranges   hashkey.Ranges
	revision uint64
}

// holds says whether r is complete as of revision or later.
func (e extent) holds(r hashkey.Ranges, revision uint64) bool {
	if !e.ranges.Covers(r) {
		return false
	}
	if revision <= e.revision {
		return true
	}
	for _, p := range e.parts {
		if revision <= p.revision {
			r = r.Minus(p.ranges)
		}
	}
	return r.Empty()
}

// reached returns the latest revision as of which all ranges are complete.
func (e extent) reached() uint64 {
	reached := e.revision
	if e.ranges.Empty() {
		return reached
	}
	for _, p := range e.parts {
		if p.revision > reached && e.holds(e.ranges, p.revision) {
			reached = p.revision
		}
	}
	return reached
}

// proof says that the objects of ranges have been delivered as of revision, once
// those that are outstanding have. It comes from a list: what the list says and
// the watch has not yet brought is outstanding.
type proof struct {
	part
	// growth marks ranges that were not followed before. They are held when they are
	// complete as of level, which is how far the store is: it never falls back, and must
	// not claim for these what it has for others.
	growth bool
	level  uint64
	// outstanding has the objects that the watch still has to bring.
	outstanding map[objectID]outstanding
}

// outstanding is what the watch must bring for one object: a revision of it or,
// where gone is set, its end or that revision.
type outstanding struct {
	revision uint64
	key      int64
	gone     bool
}

// complete says whether nothing is outstanding.
func (p *proof) complete() bool { return len(p.outstanding) == 0 }

// restrictProofs limits proofs to the ranges that are kept.
func restrictProofs(proofs []*proof, keep hashkey.Ranges) []*proof {
	return slices.DeleteFunc(proofs, func(p *proof) bool {
		p.ranges = p.ranges.Intersect(keep)
		for id, o := range p.outstanding {
			if !matches(o.key, p.ranges) {
				delete(p.outstanding, id)
			}
		}
		return p.ranges.Empty()
	})
}
