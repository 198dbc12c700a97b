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

package follower

import "k8s.io/apimachinery/pkg/hashkey"

// extent says what is complete: every object in ranges as of revision, and every object in a part
// as of that part's revision if that is later. All of it is as of the moment of question answered
// or later.
type extent struct {
	ranges   hashkey.Ranges
	revision uint64
	parts    []part
	answered uint64
}

// part is some ranges that are complete as of a revision.
type part struct {
	ranges   hashkey.Ranges
	revision uint64
}

// holds reports whether r is complete as of revision or later.
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

// satisfies reports whether w's wait has ended.
func (e extent) satisfies(w waiter) bool {
	return e.answered > w.after && e.ranges.Covers(w.ranges)
}

// reached returns the latest revision as of which e.ranges is complete.
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
