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
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/hashkey"
)

// readiness says for which keys all sources have been seen to hold everything as of a
// moment after a question, and which question is under way.
type readiness struct {
	ranges hashkey.Ranges
	// since is how far the log had been read when the last question was asked.
	since int64
	asked hashkey.Ranges
	// asking ends the question under way; nil: there is none.
	asking context.CancelFunc
}

// hold says whether all sources hold ranges as of a moment after the log had come to
// revision, which it has. If it is not known yet, a decision is asked for when it is.
func (t *term) hold(ctx context.Context, ranges hashkey.Ranges, revision int64) bool {
	r := &t.ready
	if r.since >= revision {
		if r.ranges.Covers(ranges) {
			return true
		}
		if r.asking != nil && r.asked.Equal(ranges) {
			return false
		}
	}
	if r.asking != nil {
		r.asking()
	}
	ctx, cancel := context.WithCancel(ctx)
	*r = readiness{since: t.machine.View().Revision, asked: ranges, asking: cancel}
	go func() {
		if !t.allHold(ctx, ranges) {
			return
		}
		t.post(ctx, func() {
			if ctx.Err() == nil {
				r.ranges = ranges.Intersect(t.follow)
				r.asked, r.asking = nil, nil
				cancel()
			}
		})
	}()
	return false
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
