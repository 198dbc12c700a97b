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
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// recordedSteps is how many steps a recording has at least, once there have been as many: some
	// minutes of a ring where much happens. It has about twice as many at most. A view counts as many
	// steps as it has records, and keysOfStep keys of objects as one: they take about as much memory.
	recordedSteps = 500
	keysOfStep    = 32
	// recordedKeys is how many keys of objects are recorded of a decision at most. Few depend on them.
	recordedKeys = 1 << 14
)

// History is what a Machine was given and what it decided, in order: all that it takes to see it
// decide the same again. JSON holds it.
type History struct {
	// Start is the Machine before the first of the steps.
	Start *Machine
	Steps []Step
}

// Step is one thing that a Machine was given: Input or one of those before it.
type Step struct {
	// Applied, Removed as of Revision, Replaced and Raised say that the method of that name was
	// called.
	Applied  *Record `json:",omitempty"`
	Removed  string  `json:",omitempty"`
	Revision int64   `json:",omitempty"`
	Replaced *View   `json:",omitempty"`
	Raised   bool    `json:",omitempty"`
	// Input was decided on, and Decision is what followed.
	Input    *Input    `json:",omitempty"`
	Decision *Decision `json:",omitempty"`
	// KeysLeftOut is how many keys of objects the Input had, if these were too many to be recorded.
	// What followed from them cannot be seen again.
	KeysLeftOut int `json:",omitempty"`
}

// Recording is the last part of a History, which goes on. A copy is as it was when it was made, and
// may be read by another goroutine.
type Recording struct {
	before, now History
	// size is how many steps there are now.
	size int
}

// NewRecording returns one that begins with the Machine as it is.
func NewRecording(m *Machine) *Recording {
	start := *m
	return &Recording{now: History{Start: &start}}
}

// note adds a step, after which the Machine is this one.
func (r *Recording) note(s Step, m *Machine) {
	if r == nil {
		return
	}
	r.now.Steps = append(r.now.Steps, s)
	r.size++
	if s.Replaced != nil {
		r.size += len(s.Replaced.records)
	}
	if s.Input != nil {
		r.size += len(s.Input.Keys) / keysOfStep
	}
	// What a decision leaves is all there in JSON.
	if r.size >= recordedSteps && s.Decision != nil && !s.Decision.Gone {
		*r = Recording{before: r.now, now: NewRecording(m).now}
	}
}

// decided adds a decision.
func (r *Recording) decided(in Input, d Decision, m *Machine) {
	s := Step{Input: &in, Decision: &d}
	if len(in.Keys) > recordedKeys {
		s.KeysLeftOut, in.Keys = len(in.Keys), nil
	}
	r.note(s, m)
}

// History returns what has been recorded.
func (r *Recording) History() *History {
	if r.before.Start == nil {
		return &r.now
	}
	return &History{Start: r.before.Start, Steps: append(r.before.Steps[:len(r.before.Steps):len(r.before.Steps)], r.now.Steps...)}
}

// Replay has a Machine take all the steps, and returns what it decides otherwise; nil if it decides
// the same.
func (h *History) Replay() error {
	m := *h.Start
	for i, s := range h.Steps {
		switch {
		case s.Applied != nil:
			m.Apply(*s.Applied)
		case s.Removed != "":
			m.Remove(s.Removed, s.Revision)
		case s.Replaced != nil:
			m.Replace(s.Replaced)
		case s.Raised:
			m.Raise()
		case s.Input != nil && s.Decision != nil:
			got, err := json.Marshal(m.Decide(*s.Input))
			if err != nil {
				return err
			}
			want, err := json.Marshal(s.Decision)
			if err != nil {
				return err
			}
			if s.KeysLeftOut == 0 && !bytes.Equal(got, want) {
				return fmt.Errorf("step %d of %d, at %v and revision %d: decides\n%s\nand decided\n%s", i+1, len(h.Steps), s.Input.Now, m.view.Revision, got, want)
			}
		default:
			return fmt.Errorf("step %d of %d says nothing", i+1, len(h.Steps))
		}
	}
	return nil
}

// memory returns where the Machine keeps what, by name.
func (m *Machine) memory() map[string]any {
	return map[string]any{
		"name": &m.name, "limits": &m.limits, "view": &m.view, "registeredBefore": &m.registeredBefore, "gainedAt": &m.gainedAt,
		"follow": &m.follow, "fill": &m.fill, "vacated": &m.vacated, "epoch": &m.epoch, "history": &m.history, "give": &m.give,
		"wait": &m.wait, "leave": &m.leave, "slow": &m.slow, "rests": &m.rests, "failed": &m.failed, "began": &m.began,
		"moved": &m.moved, "moves": &m.moves, "redirected": &m.redirected,
	}
}

// MarshalJSON returns the Machine as it is after a decision, or before its first step.
func (m *Machine) MarshalJSON() ([]byte, error) { return json.Marshal(m.memory()) }

// UnmarshalJSON is its inverse.
func (m *Machine) UnmarshalJSON(data []byte) error {
	parts := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	memory := m.memory()
	for name, part := range parts {
		if err := json.Unmarshal(part, memory[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if m.began > 0 {
		m.history.view = m.view
	}
	return nil
}

// viewJSON is a View in JSON: the rest follows from the records.
type viewJSON struct {
	Revision int64
	Records  []Record
}

// MarshalJSON returns the view's revision and records.
func (v *View) MarshalJSON() ([]byte, error) {
	out := viewJSON{Revision: v.Revision}
	for _, r := range v.records {
		out.Records = append(out.Records, *r)
	}
	return json.Marshal(out)
}

// UnmarshalJSON is its inverse.
func (v *View) UnmarshalJSON(data []byte) error {
	var in viewJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	*v = *NewView(in.Revision, in.Records...)
	return nil
}

// MarshalText returns the registration as NAME/UID: no name has a slash.
func (r registration) MarshalText() ([]byte, error) { return []byte(r.Name + "/" + string(r.UID)), nil }

// UnmarshalText is its inverse.
func (r *registration) UnmarshalText(text []byte) error {
	name, uid, _ := strings.Cut(string(text), "/")
	r.Name, r.UID = name, types.UID(uid)
	return nil
}
