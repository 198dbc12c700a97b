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

// Package shared has what goroutines share, and wait for.
package shared

import (
	"context"
	"fmt"
	"sync"
)

// State is a value behind a lock, whose changes can be waited for.
type State[T any] struct {
	lock   sync.Mutex
	value  T
	failed error
	// moved is closed and replaced after each change.
	moved chan struct{}
}

// New returns a state with that value, which nobody else may use.
func New[T any](value T) *State[T] { return &State[T]{value: value, moved: make(chan struct{})} }

// See calls f with the value locked. f must not block, nor change what somebody may wait for.
func (s *State[T]) See(f func(T)) {
	s.lock.Lock()
	defer s.lock.Unlock()
	f(s.value)
}

// Change calls f with the value locked, and has those look again who wait. f must not block. Its
// error fails the state.
func (s *State[T]) Change(f func(T) error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if err := f(s.value); s.failed == nil {
		s.failed = err
	}
	close(s.moved)
	s.moved = make(chan struct{})
}

// Fail ends all waiting, now and later, with an error. The first counts.
func (s *State[T]) Fail(err error) { s.Change(func(T) error { return err }) }

// Failed returns what has failed the state, nil if nothing has.
func (s *State[T]) Failed() error {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.failed
}

// Await waits until f returns true, which it calls now and after each change. f must not block.
func (s *State[T]) Await(ctx context.Context, what string, f func(T) bool) error {
	for {
		s.lock.Lock()
		ok, failed, moved := f(s.value), s.failed, s.moved
		s.lock.Unlock()
		if failed != nil || ok {
			return failed
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		}
	}
}
