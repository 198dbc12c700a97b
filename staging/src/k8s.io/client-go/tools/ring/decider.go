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

import "k8s.io/apimachinery/pkg/hashkey"

// Decider decides for one instance: its Machine, beside what goes with it. Methods that are not
// here are the Machine's, and are not recorded.
type Decider struct {
	*Machine
	// Policy evens out the ring; nil: the instance moves no boundary by itself.
	Policy Policy
	// Recording keeps what the Machine is given and decides; nil: nothing does.
	Recording *Recording
}

// Apply takes the log's next event, as Machine.Apply does.
func (d Decider) Apply(r Record) {
	d.Machine.Apply(r)
	d.seen(Step{Applied: &r})
}

// Remove takes the log's next event, as Machine.Remove does.
func (d Decider) Remove(name string, revision int64) {
	d.Machine.Remove(name, revision)
	d.seen(Step{Removed: name, Revision: revision})
}

// Replace takes a whole view, as Machine.Replace does.
func (d Decider) Replace(view *View) {
	d.Machine.Replace(view)
	d.seen(Step{Replaced: view})
}

// seen says that the Machine has seen more of the log.
func (d Decider) seen(s Step) {
	d.Recording.note(s, d.Machine)
	if d.Policy != nil {
		d.Policy.Observe(d.view)
	}
}

// Raise raises the instance's epoch, as Machine.Raise does.
func (d Decider) Raise() {
	d.Machine.Raise()
	d.Recording.note(Step{Raised: true}, d.Machine)
}

// Consult returns what is to be done now: what the Machine decides, with what the policy wants
// where it is its turn. keys returns the hash keys of all objects in these ranges, never nil; it is
// called only where something depends on them. work is Turn.Work.
func (d Decider) Consult(in Input, work []int64, keys func(hashkey.Ranges) []int64) Decision {
	decision := d.Decide(in)
	if decision.NeedsKeys {
		d.Recording.decided(in, decision, d.Machine)
		in.Keys = keys(decision.Owned)
		decision = d.Decide(in)
	}
	if d.Policy == nil || decision.Gone {
		d.Recording.decided(in, decision, d.Machine)
		return decision
	}
	ask := func(keys []int64) Advice {
		if decision.Turn == nil {
			return d.Policy.Shifts(d.view, in.Now, nil)
		}
		turn := *decision.Turn
		turn.Keys, turn.Work = keys, work
		return d.Policy.Shifts(d.view, in.Now, &turn)
	}
	advice := ask(in.Keys)
	if advice.NeedsKeys {
		advice = ask(keys(decision.Owned))
	}
	if decision.Turn != nil {
		// As if it had been decided with them.
		in.Shifts = advice.Shifts
		d.decideShift(in, &decision)
	}
	d.Recording.decided(in, decision, d.Machine)
	if advice.Wake > 0 {
		decision.wakeAt(advice.Wake)
	}
	return decision
}
