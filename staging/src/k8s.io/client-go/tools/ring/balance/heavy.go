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

// heavyShare is how many even shares of the ring's load the objects of one key must be for it to be
// heavy: nothing that the ring does brings its owner below half as much again as the mean.
const heavyShare = 1.5

// Heaviest returns the key that most of keys are, the lowest if there are several, and how many
// are. It sorts keys.
func Heaviest(keys []int64) (key int64, n int) {
	slices.Sort(keys)
	for rest := keys; len(rest) > 0; {
		same := slices.IndexFunc(rest, func(other int64) bool { return other != rest[0] })
		if same < 0 {
			same = len(rest)
		}
		if same > n {
			key, n = rest[0], same
		}
		rest = rest[same:]
	}
	return key, n
}

// Before returns how many of keys, all in the range of one instance, come before that key, from the
// range's lower end.
func Before(key int64, keys []int64, owned hashkey.Ranges) (n int) {
	if owned.Empty() {
		return 0
	}
	// A range that goes round the seam ends with its lower part.
	along := ring.NewArc(int64(owned[0].End-1), owned)
	for _, other := range keys {
		if along.Distance(other) < along.Distance(key) {
			n++
		}
	}
	return n
}

// Heavy returns which share of the load of a ring the n objects of one key are, and whether they
// are so many that they leave their owner with half as much again as an even share: a key cannot be
// split. weight is that of their owner now; the view has what the others have told.
func Heavy(owner string, weight int64, n int, view *ring.View) (share float64, heavy bool) {
	load := weight
	for _, other := range view.Ring() {
		if other.Name != owner {
			load += other.Weight
		}
	}
	if load == 0 {
		return 0, false
	}
	share = float64(n) / float64(load)
	return share, n >= fewObjects && len(view.Ring()) > 1 && share*float64(len(view.Ring())) >= heavyShare
}
