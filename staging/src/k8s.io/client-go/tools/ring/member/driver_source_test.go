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

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/hashkey"
)

// informer is one of a process's sources. It holds what it is told to follow after a while.
type informer struct {
	process *process
	name    string
	dice    *dice
	changed chan struct{}

	lock         sync.Mutex
	follow, held hashkey.Ranges
	// asOf is the sequence of the truth as of which it has each key that it holds.
	asOf map[int64]int64
	// fills are those under way.
	underway []*underway
	// filled is how much of the ring it has filled, altogether.
	filled float64
	// moved is closed and replaced when held changes.
	moved chan struct{}
	// barren, if set, is a key whose range it never fills while the world is disturbed.
	barren *int64
}

// underway is what an informer lists at once.
type underway struct{ ranges hashkey.Ranges }

func newInformer(p *process, name string) *informer {
	return &informer{
		process: p, name: name, dice: newDice(p.world.seed, p.holder+" "+name), changed: make(chan struct{}, 1),
		asOf: map[int64]int64{}, moved: make(chan struct{}),
	}
}

// String implements fmt.Stringer.
func (s *informer) String() string { return s.name }

// drawFillTime is how long fills take that no scene sets.
func (w *world) drawFillTime(s *informer, _ hashkey.Ranges) time.Duration {
	if w.faults.fills && w.disturbed.Load() {
		switch draw := s.dice.below(100); {
		case draw < 15:
			return s.dice.upTo(time.Minute)
		case draw < 40:
			return s.dice.upTo(10 * time.Second)
		}
	}
	return s.dice.upTo(200 * time.Millisecond)
}

// SetRanges implements Source.
func (s *informer) SetRanges(r hashkey.Ranges) {
	w := s.process.world
	if open := s.process.gate.serving(); !r.Covers(open) {
		w.violation("the %s of %v are told to follow %v while its gate is open for %v", s.name, s.process, r, open)
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	missing := r.Minus(s.follow)
	s.follow = r
	s.holdLocked(s.held.Intersect(r))
	maps.DeleteFunc(s.asOf, func(key, _ int64) bool { return !s.held.Contains(key) })
	for _, f := range s.underway {
		f.ranges = f.ranges.Intersect(r)
	}
	if missing.Empty() {
		return
	}
	f := &underway{missing}
	s.underway = append(s.underway, f)
	go s.fill(f, w.fillTime(s, missing))
}

// fill fills what is still wanted of it then.
func (s *informer) fill(f *underway, takes time.Duration) {
	w := s.process.world
	select {
	case <-time.After(takes):
	case <-s.process.killed:
		return
	}
	if s.isBarren(f) {
		select {
		case <-w.calm:
		case <-s.process.killed:
			return
		}
	}
	s.process.thaw()
	sequence := w.truth.now()
	s.lock.Lock()
	defer s.lock.Unlock()
	for _, key := range w.keys {
		if f.ranges.Contains(key) {
			s.asOf[key] = sequence
		}
	}
	s.underway = slices.DeleteFunc(s.underway, func(other *underway) bool { return other == f })
	s.filled += part(f.ranges)
	s.holdLocked(s.held.Union(f.ranges))
}

func (s *informer) isBarren(f *underway) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.barren != nil && f.ranges.Contains(*s.barren)
}

func (s *informer) holdLocked(held hashkey.Ranges) {
	s.held = held
	close(s.moved)
	s.moved = make(chan struct{})
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Held implements Source.
func (s *informer) Held() hashkey.Ranges {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.held
}

// HeldChanged implements Source.
func (s *informer) HeldChanged() <-chan struct{} { return s.changed }

// Diverged implements Source.
func (s *informer) Diverged() string { return "" }

// Waits implements Source.
func (s *informer) Waits() string { return "" }

// WaitFor implements Source.
func (s *informer) WaitFor(ctx context.Context, r hashkey.Ranges) error {
	w := s.process.world
	sequence := w.truth.now()
	takes := s.dice.upTo(20 * time.Millisecond)
	if w.faults.fills && w.disturbed.Load() && s.dice.chance(0.1) {
		takes = s.dice.upTo(4 * time.Second)
		defer s.process.trouble("its caches are slow to catch up", slowed).end()
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		s.process.thaw()
		moved, holds := s.holdsAsOf(r, sequence)
		if holds {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// holdsAsOf says whether it holds ranges, which it then has as of that sequence.
func (s *informer) holdsAsOf(r hashkey.Ranges, sequence int64) (moved <-chan struct{}, holds bool) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if !s.held.Covers(r) {
		return s.moved, false
	}
	for key, asOf := range s.asOf {
		if r.Contains(key) {
			s.asOf[key] = max(asOf, sequence)
		}
	}
	return s.moved, true
}

// Keys implements Source. Keys have different numbers of objects.
func (s *informer) Keys(r hashkey.Ranges) []int64 {
	held := s.Held()
	var out []int64
	for n, key := range s.process.world.keys {
		if r.Contains(key) && held.Contains(key) {
			for range 3 + n%5*4 {
				out = append(out, key)
			}
		}
	}
	return out
}

// asOfKey returns as of which sequence it has that key, and whether it holds it.
func (s *informer) asOfKey(key int64) (sequence int64, held bool) {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.asOf[key], s.held.Contains(key)
}

// fills says whether a fill of that key is under way, or of another piece before it.
func (s *informer) fills(key int64) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	return slices.ContainsFunc(s.underway, func(f *underway) bool { return f.ranges.Contains(key) || !s.follow.Contains(key) })
}
