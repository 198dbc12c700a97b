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

package fenced

import (
	"context"
	"sync"
	"time"
)

// shared reads something for all who wait for it at the same time. An answer must show what was
// stored before its question, so nobody gets that of a read which had begun before they asked:
//
//	ask ──► next ──► running ──► answer, for all who asked while it was next
//	        joined   one at a time
//
// So however many ask at once, at most one read runs and at most one is next.
type shared[T any] struct {
	// ctx ends all reads, and timeout each of them: they outlive whoever asked first.
	ctx     context.Context
	timeout time.Duration
	read    func(context.Context) (T, error)

	lock sync.Mutex
	// next has not begun yet; nil: nobody has asked since the last one began.
	next *sharedRead[T]
	// running says that a goroutine makes the reads.
	running bool
}

// sharedRead is one read. Its answer is there once done is closed.
type sharedRead[T any] struct {
	done   chan struct{}
	answer T
	err    error
}

// get returns the answer of a read that begins after the call; others get the same one, so it must
// not be changed. It fails if ctx ends first, while the read goes on for the others.
func (s *shared[T]) get(ctx context.Context) (T, error) {
	joined := s.join()
	select {
	case <-joined.done:
		return joined.answer, joined.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// join returns the next read, and sees to it that it is made.
func (s *shared[T]) join() *sharedRead[T] {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.next == nil {
		s.next = &sharedRead[T]{done: make(chan struct{})}
	}
	if !s.running {
		s.running = true
		go s.run()
	}
	return s.next
}

// run makes one read after the other until nobody asks for another.
func (s *shared[T]) run() {
	for {
		begun := s.begin()
		if begun == nil {
			return
		}
		ctx, cancel := context.WithTimeout(s.ctx, s.timeout)
		begun.answer, begun.err = s.read(ctx)
		cancel()
		close(begun.done)
	}
}

// begin returns the read that is to be made now: nobody can join it any more. It returns nil if
// there is none.
func (s *shared[T]) begin() *sharedRead[T] {
	s.lock.Lock()
	defer s.lock.Unlock()
	begun := s.next
	s.next, s.running = nil, begun != nil
	return begun
}
