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
	"sort"

	"k8s.io/apimachinery/pkg/hashkey"
)

// split returns the key at which the owner's range is cut: the receiver gets what
// lies up to and including it. It is the median of the keys of the owner's objects,
// so that each side has half of them. If that is the owner's own key, which too many
// objects share, the receiver gets all others. Without two objects, or others, it is the
// middle of the range. But it is the key in vacated, all of which lie in the range, that cuts it
// most evenly, if each side has two fifths then. owned holds two keys or more; the result is never
// the owner's own key. What the receiver has failed to fill so many times is halved as often.
func split(owned hashkey.Ranges, view *View, owner string, keys, vacated []int64, failed int) int64 {
	record, _ := view.Get(owner)
	along := NewArc(*record.Key, owned)
	width, distance := along.Width, along.Distance
	halves := 1 + min(failed, 30)
	at, all := max(width>>halves, 1)-1, width
	below := func(d uint64) uint64 { return d + 1 }
	if len(keys) >= 2 {
		sort.Slice(keys, func(i, j int) bool { return distance(keys[i]) < distance(keys[j]) })
		upTo := func(d uint64) int {
			return sort.Search(len(keys), func(i int) bool { return distance(keys[i]) > d })
		}
		if end := upTo(width - 2); end > 0 {
			at = distance(keys[min(end, max(len(keys)>>halves, 1))-1])
		}
		all = uint64(len(keys))
		below = func(d uint64) uint64 { return uint64(upTo(d)) }
	}
	// uneven is how much more one side has than the other.
	uneven := func(d uint64) uint64 { return max(below(d), all-below(d)) - min(below(d), all-below(d)) }
	limit := all/5 + 1
	if failed > 0 {
		vacated = nil
	}
	for _, key := range vacated {
		if d := distance(key); uneven(d) < limit {
			at, limit = d, uneven(d)
		}
	}
	return along.Key(at)
}
