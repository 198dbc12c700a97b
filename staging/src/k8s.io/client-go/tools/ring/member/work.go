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

package member

import (
	"math"
	"time"
)

const (
	// workTime is about how far back the work that is told goes.
	workTime = time.Minute
	// workSamples is how many keys of work are remembered.
	workSamples = 256
)

// work is how much an instance has lately had to do. It belongs to the deciding goroutine.
type work struct {
	// shares are the parts of their time, from 0 to 1, that the workers of each controller have spent
	// on objects, smoothed.
	shares map[string]float64
	// spent is how long they had worked altogether when that was last looked at, and seen when.
	spent map[string]time.Duration
	seen  time.Time
	// keys are those that were in work when it was looked at, the oldest ones replaced first.
	keys []int64
	next int
}

// sample takes note of what has been worked on since the last time.
func (w *work) sample(now time.Time, gate *Gate, controllers []string, workers func(controller string) int) {
	spent, keys := gate.worked(now)
	if passed := now.Sub(w.seen); w.spent != nil && passed > 0 {
		recent := 1 - math.Exp(-float64(passed)/float64(workTime))
		for _, c := range controllers {
			share := float64(spent[c]-w.spent[c]) / float64(passed) / float64(max(1, workers(c)))
			w.shares[c] += (min(share, 1) - w.shares[c]) * recent
		}
	} else if w.shares == nil {
		w.shares = map[string]float64{}
	}
	w.spent, w.seen = spent, now
	for _, key := range keys {
		if len(w.keys) < workSamples {
			w.keys = append(w.keys, key)
			continue
		}
		w.keys[w.next] = key
		w.next = (w.next + 1) % workSamples
	}
}

// most returns the largest of the shares, in thousandths.
func (w *work) most() int32 {
	most := 0.0
	for _, share := range w.shares {
		most = max(most, share)
	}
	return int32(math.Round(1000 * most))
}
