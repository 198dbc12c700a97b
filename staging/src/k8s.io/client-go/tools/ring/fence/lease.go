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

package fence

import (
	"fmt"
	"time"
)

const (
	// MinLease is the shortest lease: etcd's shortest time to live at its default
	// election timeout. etcd would lengthen a shorter one in silence.
	MinLease = 2 * time.Second
	// MaxLease is the longest lease. It bounds how long the range of a dead instance
	// can be without an owner.
	MaxLease = time.Hour

	// marginPerLease is the part of a lease by which an instance stops before its
	// lease can end: it pays for clocks that run at different rates and for the time
	// that a request is on its way.
	marginPerLease = 6
	// renewalsPerLease has the gate, which shuts five sixths of a lease after the last renewal
	// that was answered, outlive two thirds of a lease without an answer.
	renewalsPerLease = 6
)

// CheckLease says why a lease cannot have that duration: it takes whole seconds from
// MinLease to MaxLease.
func CheckLease(lease time.Duration) error {
	if lease < MinLease || lease > MaxLease || lease%time.Second != 0 {
		return fmt.Errorf("is %v, want whole seconds from %v to %v", lease, MinLease, MaxLease)
	}
	return nil
}

// Confidence is how long a renewal of a record lets anybody believe that the instance
// is alive, counted from an instant before the renewal: the lease less a sixth of it.
func Confidence(lease time.Duration) time.Duration {
	return lease - lease/marginPerLease
}

// RenewalPeriod is how often an instance renews its record: six times in a lease.
func RenewalPeriod(lease time.Duration) time.Duration {
	return lease / renewalsPerLease
}
