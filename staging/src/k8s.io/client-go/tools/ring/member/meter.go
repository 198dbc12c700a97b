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

import "time"

// meter measures how long the workers of each controller have worked, altogether.
type meter map[string]*spent

// spent is how long the workers of a controller have worked.
type spent struct {
	total time.Duration
	// busy is how many do since at.
	busy int
	at   time.Time
}

// add counts one more, or one less, from now on.
func (s *spent) add(now time.Time, n int) {
	s.total += time.Duration(s.busy) * now.Sub(s.at)
	s.busy, s.at = s.busy+n, now
}

func (m meter) of(controller string) *spent {
	s, ok := m[controller]
	if !ok {
		s = &spent{}
		m[controller] = s
	}
	return s
}

// totals returns what each controller has spent up to now.
func (m meter) totals(now time.Time) map[string]time.Duration {
	totals := make(map[string]time.Duration, len(m))
	for controller, s := range m {
		s.add(now, 0)
		totals[controller] = s.total
	}
	return totals
}
