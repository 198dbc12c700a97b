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
	"slices"
	"time"
)

// Candidate decides for one process what it runs itself if it leads: all that --controllers
// enables but the ring controllers that the rings share. It has no client, goroutine or clock. It
// does not change, so it is safe for concurrent use.
type Candidate struct {
	// Holder is the process's identity in its records.
	Holder string
	// Listed is the value of --controllers: "*" means all, "name" that one, "-name" not that one.
	Listed []string
	// Enabled are the ring controllers that it enables.
	Enabled []string
	// Rings are all rings that share controllers with a leader.
	Rings []RingControllers
}

// RingControllers is a ring and some of its controllers.
type RingControllers struct {
	Ring        string
	Controllers []string
}

const (
	// RegistrationLimit is how long a process waits for its own records before it stands; where
	// they make a difference, LateLimit.
	RegistrationLimit = 5 * time.Second
	// LateLimit is how long a controller may be undone where the ring only waits for this process's
	// own record: a process that is slow to register would be as slow after an exit.
	LateLimit = time.Minute
)

// Prepare returns what the process signs if it stands now, in the notation of Listed, and whether
// it waits no longer. registry was read with quorum; nil: it could not be, and the rings count as
// sharing all. lists says what the process lists on each of its rings, and waited how long it has
// prepared. It waits until it has a record on each of these, since a leader that runs what its
// rings could has to start anew for that.
func (c *Candidate) Prepare(registry *Views, lists []RingControllers, waited time.Duration) (signs []string, ready bool) {
	signs = c.signs(func(ring string) *View {
		if registry == nil {
			return nil
		}
		return registry.Ring(ring)
	})
	if registry == nil {
		return signs, waited >= RegistrationLimit
	}
	expected, registered := c.registered(*registry, lists)
	switch {
	case registered, waited >= LateLimit:
		return signs, true
	default:
		return signs, waited >= RegistrationLimit && slices.Equal(expected, signs)
	}
}

// signs returns what the process signs where the rings look like that; nil: a ring shares all.
func (c *Candidate) signs(ring func(name string) *View) []string {
	var signs, runs, leaves []string
	for _, r := range c.Rings {
		view := ring(r.Ring)
		for _, name := range r.Controllers {
			if slices.Contains(c.Enabled, name) && view != nil && !view.Shares(name) {
				runs = append(runs, name)
			} else {
				leaves = append(leaves, name)
			}
		}
	}
	for _, entry := range c.Listed {
		if !c.onRing(entry) && !(entry[0] == '-' && c.onRing(entry[1:])) {
			signs = append(signs, entry)
		}
	}
	if !slices.Contains(signs, "*") {
		return append(signs, runs...)
	}
	for _, name := range leaves {
		signs = append(signs, "-"+name)
	}
	return signs
}

// onRing says whether the controller is one of a ring.
func (c *Candidate) onRing(controller string) bool {
	return slices.ContainsFunc(c.Rings, func(r RingControllers) bool { return slices.Contains(r.Controllers, controller) })
}

// registered returns what the process would sign if it had a record on each of its rings, and
// whether it has.
func (c *Candidate) registered(registry Views, lists []RingControllers) (signs []string, registered bool) {
	expected := map[string]*View{}
	for _, own := range lists {
		view := registry.Ring(own.Ring)
		if !slices.ContainsFunc(view.Records(), func(r *Record) bool { return r.Holder == c.Holder }) {
			// No record has such a name.
			expected[own.Ring] = view.With(Record{Name: c.Holder, Controllers: own.Controllers})
		}
	}
	return c.signs(func(ring string) *View {
		if view, ok := expected[ring]; ok {
			return view
		}
		return registry.Ring(ring)
	}), len(expected) == 0
}

// runsAll says whether a leader with that set runs all ring controllers that it would with the
// other.
func (c *Candidate) runsAll(set, other []string) bool {
	has, wants := Leader{Holder: SignLeader("", set)}, Leader{Holder: SignLeader("", other)}
	for _, r := range c.Rings {
		if slices.ContainsFunc(r.Controllers, func(name string) bool { return wants.Runs(name) && !has.Runs(name) }) {
			return false
		}
	}
	return true
}

// Begin divides these controllers for a leader, this process: now has those that it runs and no
// ring may be working on, and later the others that it runs, which it begins once WorkingBeside
// returns nothing for a registry that was read with quorum since it has the Lease. registry is one
// that was; nil: there is none to read, so it waits with all ring controllers.
func (c *Candidate) Begin(leader Leader, controllers []string, registry *Views) (now, later []string) {
	var working []Record
	if registry != nil {
		working = registry.WorkingBeside(leader)
	}
	for _, name := range controllers {
		onRing, runs := c.onRing(name), leader.Runs(name)
		switch {
		case onRing && !runs:
		case onRing && (registry == nil || len(working) > 0), runs && workedOn(name, working):
			later = append(later, name)
		default:
			now = append(now, name)
		}
	}
	return now, later
}

func workedOn(controller string, working []Record) bool {
	return slices.ContainsFunc(working, func(r Record) bool { return slices.Contains(r.Working, controller) })
}

// WorkingBeside returns the instances of kube-controller-manager's rings that may be working on a
// controller that the leader runs. It goes by what the records say: those of another version may
// have controllers that this one knows on no ring.
func (v Views) WorkingBeside(leader Leader) []Record {
	var working []Record
	for _, name := range ManagerRings {
		for _, r := range v.Ring(name).Records() {
			if slices.ContainsFunc(r.Working, leader.Runs) {
				working = append(working, *r)
			}
		}
	}
	return working
}
