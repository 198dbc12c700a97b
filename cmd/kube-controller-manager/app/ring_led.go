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

package app

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/ring"
	"k8s.io/klog/v2"
)

// waitLogPeriod is how often the log says whom a leader waits for.
const waitLogPeriod = 5 * time.Second

// led returns run for what this process runs outside its rings: without the ring controllers
// that are not in its set as leader. Those that are it runs once no instance works on any
// controller that the leader runs; all else does not wait for that.
func (e *ringElection) led(run func(context.Context, map[string]*ControllerDescriptor) error) func(context.Context, map[string]*ControllerDescriptor) error {
	if e == nil {
		return run
	}
	return func(ctx context.Context, descriptors map[string]*ControllerDescriptor) error {
		e.lock.Lock()
		leader := e.leader
		e.lock.Unlock()
		counted := func(ctx context.Context, descriptors map[string]*ControllerDescriptor) error {
			e.count(1)
			err := run(ctx, descriptors)
			if err == nil {
				e.count(-1)
			}
			return err
		}
		var views *ring.Views
		if leader.Holder != "" {
			var err error
			if views, err = e.readIfServed(ctx); err != nil {
				return err
			}
		}
		now, later := e.candidate.Begin(leader, slices.Sorted(maps.Keys(descriptors)), views)
		if len(later) == 0 {
			return counted(ctx, only(descriptors, now))
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var wg sync.WaitGroup
		errs := make([]error, 2)
		wg.Go(func() {
			defer cancel()
			errs[0] = counted(ctx, only(descriptors, now))
		})
		wg.Go(func() {
			defer cancel()
			if e.untilLeft(ctx, leader) == nil {
				errs[1] = counted(ctx, only(descriptors, later))
			}
		})
		wg.Wait()
		return errors.Join(errs...)
	}
}

// readIfServed reads the registry with quorum, and tries again where it could not. It returns
// nil where the API server says that this process will not read it.
func (e *ringElection) readIfServed(ctx context.Context) (views *ring.Views, err error) {
	err = wait.PollUntilContextCancel(ctx, registryPeriod, true, func(ctx context.Context) (bool, error) {
		read, err := e.read(ctx)
		switch {
		case err == nil:
			views = &read
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
			klog.FromContext(ctx).Error(err, "Leads without the registry of rings, so it starts no ring controller")
		default:
			klog.FromContext(ctx).Error(err, "Leads, and starts nothing until it has read which controllers the rings work on")
			return false, nil
		}
		return true, nil
	})
	return views, err
}

func only(descriptors map[string]*ControllerDescriptor, names []string) map[string]*ControllerDescriptor {
	named := make(map[string]*ControllerDescriptor, len(names))
	for _, name := range names {
		named[name] = descriptors[name]
	}
	return named
}

// untilLeft waits until no instance works on a controller that the leader, this process, is
// about to run. It fails only when ctx ends.
func (e *ringElection) untilLeft(ctx context.Context, leader ring.Leader) error {
	logger := klog.FromContext(ctx)
	var logged time.Time
	return wait.PollUntilContextCancel(ctx, registryPeriod, true, func(ctx context.Context) (bool, error) {
		views, err := e.read(ctx)
		var working []string
		if err == nil {
			for _, r := range views.WorkingBeside(leader) {
				working = append(working, r.Name)
			}
			if len(working) == 0 {
				return true, nil
			}
		}
		if time.Since(logged) < waitLogPeriod || ctx.Err() != nil {
			return false, nil
		}
		logged = time.Now()
		if err != nil {
			logger.Error(err, "Leads, and starts no ring controller until it knows that no ring works on it")
		} else {
			logger.Info("Leads, and starts no ring controller while rings work on those that it runs", "instances", working)
		}
		return false, nil
	})
}

func (e *ringElection) count(n int) {
	e.lock.Lock()
	defer e.lock.Unlock()
	e.underLease += n
}

func (e *ringElection) isIdle() bool {
	e.lock.Lock()
	defer e.lock.Unlock()
	return e.underLease == 0
}
