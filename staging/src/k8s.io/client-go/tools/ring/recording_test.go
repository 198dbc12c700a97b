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
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/hashkey"
)

// written returns the history as one reads it who gets it in JSON.
func written(t *testing.T, r *Recording) *History {
	t.Helper()
	data, err := json.Marshal(r.History())
	if err != nil {
		t.Fatal(err)
	}
	var h History
	if err := json.Unmarshal(data, &h); err != nil {
		t.Fatal(err)
	}
	return &h
}

func TestWhatWasRecordedIsDecidedAgain(t *testing.T) {
	longest := 0
	for seed := range int64(20) {
		s := newSimulation(seed)
		if err := s.run(4000); err != nil {
			t.Fatal(err)
		}
		for _, a := range s.instances {
			h := written(t, a.machine.Recording)
			if err := h.Replay(); err != nil {
				t.Errorf("seed %d, %s: %v", seed, a.name, err)
			}
			longest = max(longest, len(h.Steps))
		}
	}
	if longest < recordedSteps || longest > 2*recordedSteps {
		t.Errorf("the longest of the histories has %d steps, want %d to %d", longest, recordedSteps, 2*recordedSteps)
	}
}

func TestAViewCountsAsItsRecords(t *testing.T) {
	var records []Record
	for i := range int64(recordedSteps) {
		records = append(records, member(fmt.Sprint("i", i), at(i)))
	}
	m := NewMachine("i7", NewView(1, records...), limits)
	d := Decider{Machine: m, Recording: NewRecording(m)}
	for revision := range int64(10) {
		d.Replace(NewView(revision+2, records...))
		d.Consult(Input{Now: 1}, nil, nil)
	}
	if h := written(t, d.Recording); len(h.Steps) != 2 || h.Replay() != nil {
		t.Errorf("of views of so many records %d steps are kept, %v", len(h.Steps), h.Replay())
	}
}

func TestKeysCountAsSteps(t *testing.T) {
	m := ofThree("b")
	d := Decider{Machine: m, Recording: NewRecording(m)}
	for range 10 {
		d.Consult(Input{Now: 1, Keys: make([]int64, recordedKeys)}, nil, nil)
	}
	if h := written(t, d.Recording); len(h.Steps) != 1 || h.Replay() != nil {
		t.Errorf("%d steps are kept that have so many keys each, %v", len(h.Steps), h.Replay())
	}
}

// TestRecorded replays what kubectl ring bundle has collected: RING_RECORDED is one of its files,
// ringz-of-HOST_PORT.json.
func TestRecorded(t *testing.T) {
	file := os.Getenv("RING_RECORDED")
	if file == "" {
		t.Skip("RING_RECORDED names no file")
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var process struct {
		Instances []struct {
			Name      string
			Recording *History
		}
	}
	if err := json.Unmarshal(data, &process); err != nil {
		t.Fatal(err)
	}
	for _, i := range process.Instances {
		if i.Recording == nil {
			t.Logf("%s: nothing is recorded", i.Name)
			continue
		}
		if err := i.Recording.Replay(); err != nil {
			t.Errorf("%s: %v", i.Name, err)
		}
		t.Logf("%s: %d steps", i.Name, len(i.Recording.Steps))
	}
}

// A test that cannot fail shows nothing.
func TestAReplayFindsWhatIsDecidedOtherwise(t *testing.T) {
	for name, change := range map[string]func(*History){
		"":                         func(*History) {},
		"another input":            func(h *History) { h.Steps[len(h.Steps)-1].Input.Serving = keys(100, 199) },
		"another decision":         func(h *History) { h.Steps[len(h.Steps)-1].Decision.Since++ },
		"another record":           func(h *History) { h.Steps[0].Applied.Key = at(110) },
		"another beginning":        func(h *History) { h.Start.epoch++ },
		"a step that says nothing": func(h *History) { h.Steps[0] = Step{} },
	} {
		m := ofThree("b")
		d := Decider{Machine: m, Recording: NewRecording(m)}
		d.Apply(member("a", at(90)))
		d.Consult(Input{Now: 1, Serving: keys(100, 200)}, nil, nil)
		d.Raise()
		d.Consult(Input{Now: 2, Serving: keys(100, 200)}, nil, nil)
		h := written(t, d.Recording)
		change(h)
		if err := h.Replay(); (err != nil) != (name != "") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestShiftsAreRecordedAndClocksOfPoliciesAreNot(t *testing.T) {
	m := ofThree("b")
	shift := Shift{Boundary: "b", Donor: "b", Receiver: "c", Key: 160}
	d := Decider{Machine: m, Policy: &witness{advice: []Advice{{NeedsKeys: true}, {Shifts: []Shift{shift}, Wake: 9}}}, Recording: NewRecording(m)}
	decision := d.Consult(Input{Now: 1, Serving: keys(100, 200)}, nil, func(hashkey.Ranges) []int64 { return []int64{7} })
	h := written(t, d.Recording)
	if err := h.Replay(); err != nil {
		t.Error(err)
	}
	if s := h.Steps[0]; len(h.Steps) != 1 || !reflect.DeepEqual(s.Input.Shifts, []Shift{shift}) || s.Input.Keys != nil || s.Decision.Write == nil || s.Decision.Wake == 9 || decision.Wake != 9 {
		t.Errorf("recorded are %+v and %+v", s.Input, s.Decision)
	}
}

func TestMoreKeysThanFitAreNotRecorded(t *testing.T) {
	for n, left := range map[int]int{recordedKeys: 0, recordedKeys + 1: recordedKeys + 1} {
		m := NewMachine("d", NewView(1, member("d", at(hashkey.Max)), joining("n", "d", nil)), limits)
		d := Decider{Machine: m, Recording: NewRecording(m)}
		objects := make([]int64, n)
		for i := range objects {
			objects[i] = int64(i) << 40
		}
		decision := d.Consult(Input{Now: 1, Serving: hashkey.All()}, nil, func(hashkey.Ranges) []int64 { return objects })
		d.Consult(Input{Now: time.Second, Serving: hashkey.All(), Keys: noKeys}, nil, nil)
		h := written(t, d.Recording)
		if decision.Write == nil || len(h.Steps) != 3 || h.Steps[1].KeysLeftOut != left {
			t.Errorf("%d keys: writes %+v, and %d of %d steps have left keys out", n, decision.Write, h.Steps[1].KeysLeftOut, len(h.Steps))
		}
		if err := h.Replay(); err != nil {
			t.Errorf("%d keys: %v", n, err)
		}
	}
}

func TestAMachineInJSONKeepsAllThatItRemembers(t *testing.T) {
	memory := (&Machine{}).memory()
	for field := range reflect.TypeFor[Machine]().Fields() {
		if memory[field.Name] == nil {
			t.Errorf("%s is left out", field.Name)
		}
		delete(memory, field.Name)
		// What is not exported is not in JSON. Which view was observed last is known after a decision.
		if kind := field.Type; kind.Kind() == reflect.Struct {
			for part := range kind.Fields() {
				if name := field.Name + "." + part.Name; !part.IsExported() && name != "history.view" {
					t.Errorf("%s is left out", name)
				}
			}
		}
	}
	if len(memory) > 0 {
		t.Errorf("%v are nothing of the Machine's", memory)
	}
	var m Machine
	if err := json.Unmarshal([]byte(`{"name": 7}`), &m); err == nil || !strings.Contains(err.Error(), "name") {
		t.Errorf("a name that is a number: %v", err)
	}
}
