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
	"slices"
	"time"

	"k8s.io/client-go/tools/ring/fence"
)

// What an instance has to outlive follows from how it renews: a renewal is sent each sixth of a
// lease, whether or not earlier ones were answered, and the newest that was counts. So if in some
// interval as long as that, and early enough to be answered, each request of the instance would
// have been, the instance has to believe in itself. It has to know of its record by then; and where
// it has had no answer for a lease, it reads the record before it sends a renewal.

const (
	// renewalPeriod is how often an instance sends a renewal.
	renewalPeriod = worldLease / 6
	// renewalSlack is how much later one may be sent.
	renewalSlack = 200 * time.Millisecond
	// promiseStep is how fine the times are at which requests are thought to be sent.
	promiseStep = 100 * time.Millisecond
)

// standing is what a process knows of its record from then on: when the newest renewal was sent
// that was answered; zero: it has no record.
type standing struct{ from, answered time.Time }

// noteStanding notes what the process knows now.
func (p *process) noteStanding() {
	var answered time.Time
	if _, registered := p.gate.identity(); registered {
		answered = p.gate.Deadline().Add(-fence.Confidence(worldLease))
	}
	p.lock.Lock()
	defer p.lock.Unlock()
	if n := len(p.standings); n == 0 || !p.standings[n-1].answered.Equal(answered) {
		p.standings = append(p.standings, standing{time.Now(), answered})
	}
}

// renews says whether the process sends renewals at that time, and whether it reads its record
// before.
func (p *process) renews(at time.Time) (does, reads bool) {
	p.lock.Lock()
	defer p.lock.Unlock()
	for _, s := range slices.Backward(p.standings) {
		if !s.from.After(at) {
			return !s.answered.IsZero(), at.Sub(s.answered) >= worldLease-renewalSlack
		}
	}
	return false, false
}

// mustBelieve says whether the instance's gate must let it work at that time.
func (p *process) mustBelieve(at time.Time) bool {
	return p.hadRenewal(at, fence.Confidence(worldLease), func(latency time.Duration) time.Duration { return latency + 2*maxDelay })
}

// mustBeKept says whether the instance's record must still be there at that time.
func (p *process) mustBeKept(at time.Time) bool {
	return p.hadRenewal(at, worldLease, func(latency time.Duration) time.Duration { return latency/2 + maxDelay })
}

// hadRenewal says whether at least one renewal must have come through that was sent within that
// time before at. takes says how much of its latency has to have passed.
func (p *process) hadRenewal(at time.Time, within time.Duration, takes func(latency time.Duration) time.Duration) bool {
	n := p.world.network
	for good, sent := time.Duration(0), at.Add(-within); sent.Before(at); sent = sent.Add(promiseStep) {
		does, reads := p.renews(sent)
		leaves := sent
		if reads {
			leaves = sent.Add(n.latency(p, sent))
		}
		through := leaves.Add(takes(n.latency(p, leaves)))
		if !does || through.After(at) || p.troubled(silenced, sent, sent) != "" || p.troubled(severed, sent, through) != "" || n.reached(p, sent, through) != reachServer {
			good = 0
			continue
		}
		if good += promiseStep; good >= renewalPeriod+renewalSlack {
			return true
		}
	}
	return false
}
