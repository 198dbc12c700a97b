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

package shared

import (
	"context"
	"errors"
	"testing"
)

func TestAwaitLooksAgainAfterEachChange(t *testing.T) {
	s := New(new(int))
	done := make(chan error)
	go func() { done <- s.Await(t.Context(), "three", func(n *int) bool { return *n == 3 }) }()
	for range 3 {
		s.Change(func(n *int) error { *n++; return nil })
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAwaitEndsWithItsContextOrTheState(t *testing.T) {
	s := New(new(int))
	never := func(*int) bool { return false }
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("too late"))
	if err := s.Await(ctx, "what never comes", never); err == nil || err.Error() != "waiting for what never comes: too late" {
		t.Errorf("got %v", err)
	}
	done := make(chan error)
	go func() { done <- s.Await(t.Context(), "what never comes", never) }()
	first := errors.New("first")
	s.Fail(first)
	s.Fail(errors.New("second"))
	if err := <-done; err != first || s.Failed() != first {
		t.Errorf("got %v, and the state has failed with %v, want %v", err, s.Failed(), first)
	}
}
