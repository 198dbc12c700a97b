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
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
)

// decideLeave is for an instance that goes.
func (m *Machine) decideLeave(self Record, in Input, d *Decision) {
	d.Phase = shardingv1alpha1.InstanceLeaving
	if m.give.draining {
		// The grant may be under way.
		d.Open = d.Open.Intersect(in.Serving)
	}
	// A predecessor that leaves may rely on these caches.
	d.Follow = d.Follow.Union(m.withoutLeaving().Owned(m.name).Intersect(self.Cached.Union(in.Told)))
	shut := m.leave.shut
	if !shut && !m.warmWithout() && in.Now-m.leave.since < m.limits.Leave {
		d.waitUntil(m.leave.since + m.limits.Leave)
		return
	}
	m.leave.shut = true
	d.Open = nil
	switch {
	case !shut:
		// As in decideGive.
		d.waitUntil(in.Now)
	case in.Idle(hashkey.All()):
		d.Write = &Write{Reason: ReasonLeave, Name: self.Name, UID: self.UID, Generation: self.Generation, Delete: true}
	}
}

// warmWithout says whether whoever takes this instance's range over has filled its caches,
// or there is nobody to wait for: the successor among those that stay or, where no owner
// stays, the oldest that joins. Which of them that is only they know themselves; it is the
// one that follows everything.
func (m *Machine) warmWithout() bool {
	staying := m.withoutLeaving()
	if m.view.Owned(m.name).Empty() {
		return true
	}
	if successor, ok := staying.Successor(m.name); ok {
		return successor.Cached.Covers(staying.Without(m.name).Owned(successor.Name))
	}
	joining := false
	for _, r := range staying.Records() {
		if r.Key == nil && !r.leaving() {
			if r.Cached.Covers(hashkey.All()) {
				return true
			}
			joining = true
		}
	}
	return !joining
}
