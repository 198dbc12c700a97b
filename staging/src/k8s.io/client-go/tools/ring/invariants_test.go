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
	"fmt"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
)

// invariant is one of the constants below, or several of them.
type invariant byte

const (
	// oneWorker: no key has two workers. A worker is a confident process whose gate is
	// open for the key or that still has work there, or a request that can still take
	// effect.
	oneWorker invariant = 1 << iota
	// ownerWorks: a process works only on keys that it owns by the registry.
	ownerWorks
	// cachesCurrent: it works only with caches that hold what others did there before.
	cachesCurrent
	// rest: once faults stop, every key is worked on and no handover stays open.
	rest

	allInvariants = oneWorker | ownerWorks | cachesCurrent | rest
)

// violation says which invariant a state breaks, and how.
type violation struct {
	invariant invariant
	text      string
}

func (v *violation) Error() string { return v.text }

func (s *state) violates(i invariant, format string, args ...any) *violation {
	return &violation{i, fmt.Sprintf(format, args...)}
}

// confident says whether the process believes that it is alive, so that its requests
// leave it.
func (s *state) confident(p *process) bool {
	return p.up && (!p.lapsed || !s.rules.selfFence)
}

// working returns the keys that the process works on now, and those where a stray
// request of it can still take effect.
func (s *state) working(p *process) (now, stray cellSet) {
	if s.confident(p) {
		now = p.serving | p.busy
	}
	return now, s.effective(p)
}

// check returns what is wrong with the state; nil: nothing. It is called after every
// action, since it also takes note of whose caches have become outdated.
func (s *state) check() *violation {
	var now, stray [places]cellSet
	for i, p := range s.proc {
		if p != nil {
			now[i], stray[i] = s.working(p)
		}
	}
	for i, p := range s.proc {
		if p == nil {
			continue
		}
		for j, q := range s.proc {
			if q == nil || i == j {
				continue
			}
			s.fresh[i] &^= now[j] | stray[j]
			if both := now[i] & now[j]; both != 0 && i < j && s.invariants&oneWorker != 0 {
				return s.violates(oneWorker, "%s and %s both work on %v", p.name, q.name, both)
			}
			if both := now[i] & stray[j]; both != 0 && s.invariants&oneWorker != 0 {
				return s.violates(oneWorker, "%s works on %v, where a request of %s can still take effect", p.name, both, q.name)
			}
		}
		if now[i] == 0 {
			continue
		}
		if foreign := now[i] &^ cellsOf(s.head.Owned(p.name)); foreign != 0 && s.invariants&ownerWorks != 0 {
			return s.violates(ownerWorks, "%s works on %v, which it does not own", p.name, foreign)
		}
		if unseen := now[i] & p.serving &^ s.fresh[i]; unseen != 0 && s.invariants&cachesCurrent != 0 {
			return s.violates(cachesCurrent, "%s works on %v, but its caches lack what others did there", p.name, unseen)
		}
	}
	return nil
}

// checkRest returns what is wrong with a state in which nothing happens any more.
func (s *state) checkRest() *violation {
	var served cellSet
	alive := 0
	for _, p := range s.proc {
		if p == nil || !p.up {
			continue
		}
		alive++
		served |= p.serving
		r, ok := s.head.Get(p.name)
		if !ok || r.Next != nil || r.Gives != nil || r.Phase != shardingv1alpha1.InstanceActive || p.serving != p.owned || p.busy != 0 {
			return s.violates(rest, "at rest %s is %s, its gate open for %v, its next key %s", p.name, r.Phase, p.serving, describeKey(r.Next))
		}
	}
	if alive > 0 && served != allCells {
		return s.violates(rest, "at rest nobody works on %v", allCells&^served)
	}
	return nil
}
