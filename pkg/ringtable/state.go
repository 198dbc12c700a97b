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
package ringtable

import (
	"slices"
	"strings"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
)

// State is a ring for programs, as JSON or YAML. Ranges are written as (after, upTo].
type State struct {
	Name      string          `json:"name"`
	Instances []InstanceState `json:"instances"`
	// Problems says what is not worked on, and why, one sentence each.
	Problems []string `json:"problems,omitempty"`
	// Imbalance is how many times the mean weight the largest is; 0: there is no load.
	Imbalance float64 `json:"imbalance"`
}

// InstanceState is an instance of a State.
type InstanceState struct {
	Name   string                         `json:"name"`
	Holder string                         `json:"holder"`
	Phase  shardingv1alpha1.InstancePhase `json:"phase"`
	// Range is what the instance owns, Coming what it is to receive.
	Range  string `json:"range,omitempty"`
	Coming string `json:"coming,omitempty"`
	// Share is the owned part of all hash keys, from 0 to 1.
	Share    float64 `json:"share"`
	Weight   int64   `json:"weight"`
	Heaviest int64   `json:"heaviest"`
	Busy     int64   `json:"busy"`
	// LiveBytes is what its process held after a garbage collection; 0: it has not told.
	LiveBytes   int64     `json:"liveBytes"`
	Controllers []string  `json:"controllers"`
	Working     []string  `json:"working"`
	Created     time.Time `json:"created"`
	// Pods are those of its ReplicaSets, if they were counted.
	Pods *Pods `json:"pods,omitempty"`
}

// State returns the ring for programs.
func (r *Ring) State() State {
	text := func(ranges hashkey.Ranges) string {
		if ranges.Empty() {
			return ""
		}
		return ranges.String()
	}
	s := State{Name: r.Name, Instances: []InstanceState{}, Problems: r.Problems(), Imbalance: r.Imbalance()}
	for _, i := range r.Instances {
		state := InstanceState{
			Name: i.Name, Holder: i.Holder, Phase: i.Phase, Range: text(i.Owned), Coming: text(i.Coming), Share: share(i.Owned),
			Weight: i.Weight, Heaviest: i.Heaviest, Busy: i.Busy, LiveBytes: i.LiveBytes,
			Controllers: append([]string{}, i.Controllers...), Working: append([]string{}, i.Working...), Created: i.Created,
		}
		if r.Counted {
			state.Pods = &i.Pods
		}
		s.Instances = append(s.Instances, state)
	}
	return s
}

// Problems says which keys no instance works on and which controllers some instance does not work
// on, in sentences; none: all keys are owned and worked on.
func (r *Ring) Problems() []string {
	if len(r.Instances) == 0 {
		return []string{"no instance is on the ring: nothing works on any hash key"}
	}
	var problems []string
	if !r.Gap.Empty() {
		problems = append(problems, "nothing works on "+percent(r.Gap)+" of the hash keys: "+r.Gap.String())
	}
	if !r.Draining.Empty() {
		problems = append(problems, percent(r.Draining)+" of the hash keys change hands just now: "+r.Draining.String())
	}
	for _, line := range r.Waiting {
		problems = append(problems, "waits: "+line)
	}
	for _, i := range r.Instances {
		var idle []string
		for _, c := range i.Controllers {
			// Why it does not is among those that wait, if the instance knows.
			known := slices.ContainsFunc(r.Waiting, func(line string) bool { return strings.HasPrefix(line, c+": ") })
			if !i.Owned.Empty() && !slices.Contains(i.Working, c) && !known {
				idle = append(idle, c)
			}
		}
		if len(idle) > 0 {
			problems = append(problems, i.Name+" does not work on "+strings.Join(idle, ", "))
		}
	}
	return problems
}

// share returns which part of all hash keys ranges hold, from 0 to 1.
func share(ranges hashkey.Ranges) float64 {
	return float64(ranges.Width()) / float64(hashkey.Limit)
}
