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
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/hashkey"
)

// readiness knows for which keys all sources have been seen to hold everything as of a moment after
// an inquiry, and which inquiries are under way. One that has no answer yet, since a source cannot
// hold what it asks for, keeps no other keys waiting.
type readiness struct {
	known []holding
	asked []*inquiry
}

// holding are keys that all sources hold as of a moment after the log had come to revision since.
type holding struct {
	ranges hashkey.Ranges
	since  int64
}

// inquiry is one that is under way.
type inquiry struct {
	holding
	end context.CancelFunc
}

// ready returns those of these keys that all sources hold as of a moment after the log had come to
// revision, which it has. Of the others the sources are asked: what they hold already apart from
// what they do not. A decision is asked for with each answer.
func (t *term) ready(ctx context.Context, ranges hashkey.Ranges, revision int64) hashkey.Ranges {
	r := &t.readiness
	var ready hashkey.Ranges
	for _, h := range r.known {
		if h.since >= revision {
			ready = ready.Union(h.ranges.Intersect(ranges))
		}
	}
	rest := ranges.Minus(ready)
	var parts []hashkey.Ranges
	r.asked = slices.DeleteFunc(r.asked, func(q *inquiry) bool {
		if q.since >= revision && rest.Covers(q.ranges) {
			return false
		}
		q.end()
		parts = append(parts, q.ranges)
		return true
	})
	for _, q := range r.asked {
		rest = rest.Minus(q.ranges)
	}
	// What was asked for apart is asked for apart again.
	for _, part := range append(parts, t.held(rest), rest) {
		part = part.Intersect(rest)
		t.ask(ctx, part)
		rest = rest.Minus(part)
	}
	return ready
}

// held returns those of these keys that all sources say they hold.
func (t *term) held(ranges hashkey.Ranges) hashkey.Ranges {
	for _, s := range t.cfg.Sources {
		ranges = ranges.Intersect(s.Held())
	}
	return ranges
}

// ask asks all sources for these keys.
func (t *term) ask(ctx context.Context, ranges hashkey.Ranges) {
	if ranges.Empty() {
		return
	}
	r := &t.readiness
	ctx, end := context.WithCancel(ctx)
	q := &inquiry{holding{ranges, t.machine.View().Revision}, end}
	r.asked = append(r.asked, q)
	go func() {
		if !t.allHold(ctx, ranges) {
			return
		}
		t.post(ctx, func() {
			if ctx.Err() != nil {
				return
			}
			end()
			r.asked = slices.DeleteFunc(r.asked, func(other *inquiry) bool { return other == q })
			r.forget(q.ranges)
			r.known = append(r.known, holding{q.ranges.Intersect(t.follow), q.since})
		})
	}()
}

// forget drops what is known of these keys.
func (r *readiness) forget(ranges hashkey.Ranges) {
	r.known = slices.DeleteFunc(r.known, func(h holding) bool { return ranges.Covers(h.ranges) })
	for i := range r.known {
		r.known[i].ranges = r.known[i].ranges.Minus(ranges)
	}
}

// reset drops all that is known, and ends what is being asked.
func (r *readiness) reset() {
	for _, q := range r.asked {
		q.end()
	}
	*r = readiness{}
}

// allHold waits until all sources hold ranges as of a moment after this call. It asks them at once,
// so that it takes no longer than the slowest. It returns false if one does not, or ctx ends.
func (t *term) allHold(ctx context.Context, ranges hashkey.Ranges) bool {
	var asked sync.WaitGroup
	var failed atomic.Bool
	for _, s := range t.cfg.Sources {
		asked.Go(func() {
			if err := s.WaitFor(ctx, ranges); err != nil {
				failed.Store(true)
			}
		})
	}
	asked.Wait()
	return !failed.Load()
}
