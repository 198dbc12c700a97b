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

// State is a ring for programs, as JSON or YAML. Ranges are written as (after, upTo], keys as 16
// hexadecimal digits.
type State struct {
	Name      string          `json:"name"`
	Instances []InstanceState `json:"instances"`
	// Problems is what Ring.Problems returns.
	Problems []string `json:"problems"`
	// Notes is what Ring.Notes returns.
	Notes []string `json:"notes"`
	// Imbalance is how many times the mean weight the largest is; 0: there is none.
	Imbalance float64 `json:"imbalance"`
	// BalanceOffBy is an instance whose record says that the ring is not to be evened out.
	BalanceOffBy string `json:"balanceOffBy,omitempty"`
}

// InstanceState is an instance of a State.
type InstanceState struct {
	Name   string                         `json:"name"`
	Holder string                         `json:"holder"`
	Host   string                         `json:"host"`
	Phase  shardingv1alpha1.InstancePhase `json:"phase"`
	// Range is what the instance owns, Coming what it is to receive.
	Range  string `json:"range,omitempty"`
	Coming string `json:"coming,omitempty"`
	// NextHashKey is where the end of its range is to move.
	NextHashKey string `json:"nextHashKey,omitempty"`
	// PinnedHashKey is where a person wants the end of its range to be, and Pinned says that it is
	// there, or is to move there.
	PinnedHashKey string `json:"pinnedHashKey,omitempty"`
	Pinned        bool   `json:"pinned,omitempty"`
	// Drained says that it is to own a range only while no other instance can.
	Drained bool `json:"drained,omitempty"`
	// Deleting says that it has been asked to leave.
	Deleting bool `json:"deleting,omitempty"`
	// Share is the owned part of all hash keys, from 0 to 1.
	Share    float64 `json:"share"`
	Weight   int64   `json:"weight"`
	Heaviest int64   `json:"heaviest"`
	// Busy is how many objects it was working on when it last told anything.
	Busy int64 `json:"busy"`
	// Work is the part of their time that its busiest workers spend on objects, in thousandths.
	Work int32 `json:"work"`
	// LiveBytes is what its process held after a garbage collection, and HeapObjects how many objects
	// were in its caches then, on all rings; 0: it has not told.
	LiveBytes   int64     `json:"liveBytes"`
	HeapObjects int64     `json:"heapObjects"`
	Controllers []string  `json:"controllers"`
	Working     []string  `json:"working"`
	Created     time.Time `json:"created"`
	// PhaseSince is since when it has its phase, if that is known.
	PhaseSince *time.Time `json:"phaseSince,omitempty"`
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
	s := State{Name: r.Name, Instances: []InstanceState{}, Problems: append([]string{}, r.Problems()...), Notes: append([]string{}, r.Notes()...), Imbalance: r.Imbalance()}
	s.BalanceOffBy, _ = r.view.BalanceOff()
	for _, i := range r.Instances {
		state := InstanceState{
			Name: i.Name, Holder: i.Holder, Host: i.Host(), Phase: i.Phase, Deleting: i.Deleting, Pinned: i.Pinned, Drained: i.Drained,
			Range: text(i.Owned), Coming: text(i.Coming), Share: share(i.Owned),
			Weight: i.Weight, Heaviest: i.Heaviest, Busy: i.Busy, Work: i.Work, LiveBytes: i.LiveBytes, HeapObjects: i.HeapObjects,
			Controllers: append([]string{}, i.Controllers...), Working: append([]string{}, i.Working...), Created: i.Created,
		}
		if i.Next != nil {
			state.NextHashKey = hashkey.Format(*i.Next)
		}
		if i.PinnedKey != nil {
			state.PinnedHashKey = hashkey.Format(*i.PinnedKey)
		}
		if !i.PhaseSince.IsZero() {
			state.PhaseSince = &i.PhaseSince
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
		return []string{"no instance is on the ring: " + nobody}
	}
	var problems []string
	if !r.Gap.Empty() {
		problems = append(problems, "nothing works on "+percent(r.Gap)+" of the hash keys: "+r.Gap.String())
	}
	return append(problems, r.unworked()...)
}

// Notes says what people should know though every key may be owned and worked on, in sentences: a
// drained instance owns a range all the same where all are drained.
func (r *Ring) Notes() []string {
	for _, i := range r.Instances {
		if !i.Drained {
			return nil
		}
	}
	if len(r.Instances) == 0 {
		return nil
	}
	return []string{"all instances are drained: one of them owns all hash keys, until another starts or one is undrained"}
}

// unworked says what is not worked on though somebody is there to do it.
func (r *Ring) unworked() []string {
	var lines []string
	if !r.Draining.Empty() {
		lines = append(lines, percent(r.Draining)+" of the hash keys change hands just now: "+r.Draining.String())
	}
	for _, i := range r.Instances {
		if i.Owned.Empty() {
			continue
		}
		for _, wait := range i.Waits {
			lines = append(lines, "waits: "+wait)
		}
		var idle []string
		for _, c := range i.Controllers {
			known := slices.ContainsFunc(i.Waits, func(wait string) bool { return strings.HasPrefix(wait, c+": ") })
			if !slices.Contains(i.Working, c) && !known {
				idle = append(idle, c)
			}
		}
		if len(idle) > 0 {
			lines = append(lines, i.Name+" does not work on "+strings.Join(idle, ", "))
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// share returns which part of all hash keys ranges hold, from 0 to 1.
func share(ranges hashkey.Ranges) float64 {
	return float64(ranges.Width()) / float64(hashkey.Limit)
}
