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

import "time"

// Balancer is the policy of package balance, as the tests of this package use it. That package
// imports this one, so an external test links it in: NewBalancer.
type Balancer interface {
	Policy
	// Copy returns another one that remembers the same.
	Copy() Balancer
	// CalmAt returns the revisions at which each of the three ranges about its instance was last seen
	// to be another.
	CalmAt() [3]int64
	// Changed returns when an instance last came or went.
	Changed() time.Duration
	// Share has it remember of the log what the other one has seen.
	Share(with Balancer)
	// Donors returns who may give something in that view, soon after an instance has come.
	Donors(view *View) []string
}

// NewBalancer returns the policy of an instance: that by default, or one that moves at once, and
// without a limit.
var NewBalancer func(instance string, atOnce bool) Balancer

// ByDefault is what the policy has by default: which part of all keys may move in a minute, how
// many objects are few, and for how long after an instance has come or gone nothing limits it.
var ByDefault struct {
	Rate  float64
	Least int64
	Free  time.Duration
}
