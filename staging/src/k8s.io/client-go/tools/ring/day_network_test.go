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
	"math/rand"
	"time"
)

// network says how long things take.
type network struct{ rand *rand.Rand }

func (n network) between(least, most time.Duration) time.Duration {
	return least + time.Duration(n.rand.Int63n(int64(most-least)))
}

func (n network) oneWay() time.Duration { return n.between(5*time.Millisecond, 40*time.Millisecond) }

// usualLag is by how much a watch is behind at most, but for one event in a hundred.
const usualLag = 200 * time.Millisecond

// lag is by how much a watch is behind.
func (n network) lag() time.Duration {
	if n.rand.Intn(100) == 0 {
		return n.between(usualLag, 4*time.Second)
	}
	return n.between(10*time.Millisecond, usualLag)
}

// work is how long work goes on behind a shut gate.
func (n network) work() time.Duration {
	switch c := n.rand.Intn(1000); {
	case c < 700:
		return n.between(10*time.Millisecond, 100*time.Millisecond)
	case c < 950:
		return n.between(100*time.Millisecond, 2*time.Second)
	case c < 997:
		return n.between(2*time.Second, 10*time.Second)
	default:
		return n.between(10*time.Second, time.Minute)
	}
}

// fill is how long it takes to list that many objects.
func (n network) fill(objects int64) time.Duration {
	return n.between(50*time.Millisecond, 300*time.Millisecond) + time.Duration(objects)*time.Second/20000
}

// transmit sends a request of the process to the registry. It may be late, get lost, or its
// answer may. The process gives it up after a lease, or when it can no longer trust its own.
func (d *day) transmit(p *simulatedProcess, land func(), answer func(answered bool)) {
	n := d.network
	late := n.oneWay()
	lost, silent := false, false
	switch n.rand.Intn(2000) {
	case 0:
		late = n.between(time.Second, 30*time.Second)
	case 1:
		lost = true
	case 2:
		silent = true
	}
	done := false
	finish := func(answered bool) func() {
		return func() {
			if !done {
				done = true
				answer(answered)
			}
		}
	}
	p.do(simulatedLease, finish(false))
	var arrive func()
	arrive = func() {
		if d.now < d.registry.stalled {
			d.at(d.registry.stalled+n.oneWay(), arrive)
			return
		}
		land()
		if !silent {
			p.do(n.oneWay(), finish(true))
		}
	}
	if !lost {
		d.after(late, arrive)
	}
}
