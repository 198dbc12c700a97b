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

package cache

import (
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
)

// RelistBackoff is an optional interface of a ListerWatcher that sets the back-off of its
// reflector: how long that waits before it lists or watches again.
type RelistBackoff interface {
	// RelistBackoff replaces the default of the reflector, which resets it every two minutes.
	RelistBackoff() wait.Backoff
}

// setBackoffOf makes the reflector use the back-off of lw, if lw has one.
func (r *Reflector) setBackoffOf(lw ListerWatcher, clock clock.Clock) {
	if b, ok := lw.(RelistBackoff); ok {
		r.delayHandler = b.RelistBackoff().DelayWithReset(clock, defaultBackoffReset)
	}
}
