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

package harness

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

func TestParallel(t *testing.T) {
	var sum atomic.Int64
	if err := Parallel(t.Context(), 2, 5, func(_ context.Context, i int) error { sum.Add(int64(i)); return nil }); err != nil || sum.Load() != 10 {
		t.Errorf("got %d, %v, want 10", sum.Load(), err)
	}
	failed := errors.New("failed")
	if err := Parallel(t.Context(), 2, 2, func(ctx context.Context, i int) error {
		if i == 0 {
			<-ctx.Done()
			return ctx.Err()
		}
		return failed
	}); err != failed {
		t.Errorf("got %v, want that of the first that failed", err)
	}
}

func TestSleepEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("why")
	cancel(cause)
	if err := Sleep(ctx, 24*time.Hour); err != cause {
		t.Errorf("got %v, want %v", err, cause)
	}
	if err := Sleep(t.Context(), 1); err != nil {
		t.Error(err)
	}
}

func TestAwait(t *testing.T) {
	left := errors.New("two pods")
	looks := 0
	if err := Await(t.Context(), time.Hour, 1, "pods", func(context.Context) error {
		if looks++; looks < 3 {
			return left
		}
		return nil
	}); err != nil || looks != 3 {
		t.Errorf("%v after %d looks, want 3", err, looks)
	}
	err := Await(t.Context(), 1, time.Hour, "pods", func(context.Context) error { return left })
	if !errors.Is(err, left) || !errors.Is(err, context.DeadlineExceeded) || err.Error() != "waiting for pods: context deadline exceeded: two pods" {
		t.Errorf("got %v, want what was left", err)
	}
}
