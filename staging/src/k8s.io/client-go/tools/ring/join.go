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

// decideJoin is for an instance that owns nothing yet.
func (m *Machine) decideJoin(self Record, handovers []Handover, in Input, d *Decision) {
	named := self.Next != nil
	d.Phase = shardingv1alpha1.InstanceInit
	limit := m.limits.Step
	if named {
		d.Phase = shardingv1alpha1.InstanceLocked
		limit = m.grantLimit()
	}
	if len(m.view.Ring()) == 0 {
		m.decideFirst(self, handovers, d)
		return
	}
	since := m.await(waiting{peer: self.Donor, named: named}, in.Now)
	overdue := in.Now-since >= limit
	best, found := m.bestDonor("")
	if overdue {
		if other, ok := m.bestDonor(self.Donor); ok {
			best, found = other, true
		}
	} else {
		d.wakeAt(since + limit)
	}
	if !found {
		return
	}
	present, eligible := m.donor(self.Donor)
	switch {
	case !eligible, overdue && (named || best.Name != self.Donor), !named && m.clearlyBetter(best, present):
		d.Write = write(ReasonWish, self, nil, nil, best.Name)
	}
}

// decideFirst is for an instance on a ring where nobody owns a key. The oldest takes
// everything, after it has closed what dead donors may have granted.
func (m *Machine) decideFirst(self Record, handovers []Handover, d *Decision) {
	m.wait = waiting{}
	if len(m.older) > 0 {
		return
	}
	for i := range handovers {
		if h := &handovers[i]; h.Record.Name != m.name {
			d.Write = callOff(h.Record, h.Void.Error())
			return
		}
	}
	all := hashkey.Max
	d.Write = write(ReasonFirst, self, &all, nil, "")
}

// bestDonor returns the instance with most to give, other than except: by
// workloads, then by the width of its range.
func (m *Machine) bestDonor(except string) (Record, bool) {
	var best Record
	found := false
	for _, r := range m.view.Ring() {
		if _, eligible := m.donor(r.Name); !eligible || r.Name == except {
			continue
		}
		if !found || r.Workloads > best.Workloads ||
			r.Workloads == best.Workloads && m.view.Owned(r.Name).Width() > m.view.Owned(best.Name).Width() {
			best, found = r, true
		}
	}
	return best, found
}

// donor returns the record of that name and whether it can be asked for a part of
// its range.
func (m *Machine) donor(name string) (Record, bool) {
	r, ok := m.view.Get(name)
	working := r.Phase == shardingv1alpha1.InstanceActive || r.Phase == shardingv1alpha1.InstanceWait
	return r, ok && name != m.name && r.Key != nil && working && m.view.Owned(name).Width() >= 2
}

// clearlyBetter keeps a joining instance from changing its mind with every heartbeat.
func (m *Machine) clearlyBetter(a, b Record) bool {
	if a.Workloads != b.Workloads {
		return a.Workloads > 2*b.Workloads
	}
	return m.view.Owned(a.Name).Width()/2 >= m.view.Owned(b.Name).Width()
}
