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

	"k8s.io/apimachinery/pkg/hashkey"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// What takes time in proportion to a range is done beside the deciding goroutine: while that does
// not come round, it neither shuts the gate nor answers a peer, and in the end the record expires.

// queueing is what a controller is to be told of beside the deciding goroutine, which it belongs
// to.
type queueing struct {
	// next are the ranges that the controller has not been told of yet.
	next hashkey.Ranges
	busy bool
}

// aside does what takes long beside the deciding goroutine, which then calls done.
func (t *term) aside(ctx context.Context, long, done func()) {
	t.beside.Go(func() {
		defer utilruntime.HandleCrashWithContext(ctx)
		long()
		t.post(ctx, done)
	})
}

// acquired tells the controllers whose doors are open of ranges that the gate was opened for.
func (t *term) acquired(ctx context.Context, ranges hashkey.Ranges) {
	for name := range t.cfg.Controllers {
		if t.cfg.Gate.For(name).isOpen() {
			t.queue(ctx, name, ranges)
		}
	}
}

// queue tells one controller of ranges that its door was opened for, once it has been told of those
// before.
func (t *term) queue(ctx context.Context, name string, ranges hashkey.Ranges) {
	q, ok := t.queueing[name]
	if !ok {
		q = &queueing{}
		t.queueing[name] = q
	}
	q.next = q.next.Union(ranges)
	if q.busy || q.next.Empty() {
		return
	}
	now := q.next
	q.next, q.busy = nil, true
	t.aside(ctx, func() {
		// One at a time: others need the processor, too.
		select {
		case t.turns <- struct{}{}:
			defer func() { <-t.turns }()
			t.cfg.Controllers[name].Acquired(ctx, now)
		case <-ctx.Done():
		}
	}, func() {
		q.busy = false
		t.queue(ctx, name, nil)
	})
}
