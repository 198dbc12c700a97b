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

// Package harness has what the programs below test/ share that run clusters.
package harness

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/ringtable"
)

// Main runs a program until it ends or somebody interrupts it. If it fails, it says why and exits
// with 1.
func Main(name string, run func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Absolute makes paths absolute.
func Absolute(paths ...*string) error {
	for _, path := range paths {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = absolute
	}
	return nil
}

// Sleep waits for a while. It returns the cause of ctx's end if that comes earlier.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Await looks every period until left returns nil. If it does not within some time, the error says
// what was waited for, and what was left.
func Await(ctx context.Context, within, period time.Duration, what string, left func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		err := left(ctx)
		if err == nil {
			return nil
		}
		if cause := Sleep(ctx, period); cause != nil {
			return fmt.Errorf("waiting for %s: %w: %w", what, cause, err)
		}
	}
}

// Settled returns what a ring lacks to have n Active instances that cover all keys, nil if it has
// them.
func Settled(ctx context.Context, client kubernetes.Interface, name string, n int) error {
	ring, err := ringtable.Get(ctx, client, name)
	if err != nil {
		return err
	}
	if len(ring.Instances) != n || ring.Active() != n || n > 0 && !ring.Gap.Empty() {
		return fmt.Errorf("ring %s: %d instances, %d of them Active, nobody works on %v; want %d that cover all keys", name, len(ring.Instances), ring.Active(), ring.Gap, n)
	}
	return nil
}

// Parallel calls do with the numbers below n, so many at a time, until one fails.
func Parallel(ctx context.Context, atOnce, n int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}
