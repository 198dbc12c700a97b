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

// RelistBackoff is an optional interface of a list-watch that says how long its
// reflector waits before it lists again.
type RelistBackoff interface {
	RelistBackoff() wait.Backoff
}

// setBackoffOf makes the reflector wait as its list-watch says, if that does.
func (r *Reflector) setBackoffOf(lw ListerWatcher, clock clock.Clock) {
	if b, ok := lw.(RelistBackoff); ok {
		r.delayHandler = b.RelistBackoff().DelayWithReset(clock, defaultBackoffReset)
	}
}
