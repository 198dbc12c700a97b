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

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/test/harness"
)

// fault is something that happens to an operator.
type fault struct {
	name string
	// do makes it happen, and then undoes it, so that the operator can settle.
	do func(context.Context, *run) error
}

var faults = []fault{
	{"join", join},
	{"leave", leaveAndReturn},
	{"die", die},
	{"crash-restart", crashRestart},
	{"stop", stop},
	{"brief-stop", briefStop},
	{"move", move},
	{"rolling", rolling},
	{"apiserver-restart", restartAPIServer},
}

// join starts one more replica. Another one, or this one, leaves afterwards.
func join(ctx context.Context, r *run) error {
	if _, err := r.add(ctx); err != nil {
		return err
	}
	if err := r.awaitRing(ctx); err != nil {
		return err
	}
	return r.terminate(ctx, r.victim())
}

// leaveAndReturn ends a replica with SIGTERM, and starts one again.
func leaveAndReturn(ctx context.Context, r *run) error {
	if err := r.terminate(ctx, r.victim()); err != nil {
		return err
	}
	if err := r.awaitRing(ctx); err != nil {
		return err
	}
	_, err := r.add(ctx)
	return err
}

// die kills a replica, and starts another once the record has expired.
func die(ctx context.Context, r *run) error {
	p := r.victim()
	if err := r.kill(p); err != nil {
		return err
	}
	if err := r.awaitLoss(ctx, p); err != nil {
		return err
	}
	_, err := r.add(ctx)
	return err
}

// crashRestart kills a replica, and starts one again at once.
func crashRestart(ctx context.Context, r *run) error {
	if err := r.kill(r.victim()); err != nil {
		return err
	}
	_, err := r.add(ctx)
	return err
}

// stop suspends a replica until its record has expired.
func stop(ctx context.Context, r *run) error {
	p := r.victim()
	r.touch(p)
	if err := r.cluster.Signal(p.name, syscall.SIGSTOP); err != nil {
		return err
	}
	err := r.awaitLoss(ctx, p)
	return errors.Join(err, r.cluster.Signal(p.name, syscall.SIGCONT))
}

// awaitLoss waits until the replica has no record.
func (r *run) awaitLoss(ctx context.Context, p *replica) error {
	ctx, cancel := context.WithTimeoutCause(ctx, soon, errSoon)
	defer cancel()
	return r.history.Await(ctx, "the record of "+p.name+" to expire", func(c *checker) bool { return c.ofProcess(p.name) == nil })
}

// briefStop suspends a replica for less than a quarter of its lease, which it must not lose.
func briefStop(ctx context.Context, r *run) error {
	p := r.victim()
	var lease time.Duration
	r.history.See(func(c *checker) {
		if record := c.ofProcess(p.name); record != nil {
			lease = record.lease
		}
	})
	if err := r.cluster.Signal(p.name, syscall.SIGSTOP); err != nil {
		return err
	}
	_ = harness.Sleep(ctx, lease/5)
	return r.cluster.Signal(p.name, syscall.SIGCONT)
}

// moves is how often a boundary is moved in one fault.
const moves = 4

// move moves boundaries, as an administrator would.
func move(ctx context.Context, r *run) error {
	for range moves {
		if err := errors.Join(r.moveBoundary(ctx), r.awaitRing(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// moveBoundary moves the boundary above an instance to some place between its neighbours', and
// releases it once it is there.
func (r *run) moveBoundary(ctx context.Context) error {
	var name string
	var next int64
	r.history.See(func(c *checker) {
		owners := c.views.at(c.revision).View
		if len(owners) == 0 {
			return
		}
		i := r.rand.IntN(len(owners))
		low, high := uint64(0), uint64(math.MaxInt64)
		if i > 0 {
			low = uint64(owners[i-1].Key)
		}
		if i < len(owners)-1 {
			high = uint64(owners[i+1].Key)
		}
		name, next = owners[i].Name, int64(low+1+r.rand.Uint64N(high-low-1))
	})
	if name == "" {
		return errors.New("no instance owns a range")
	}
	if err := r.steer(ctx, name, fmt.Sprintf(`{"spec":{"nextHashKey":%d}}`, next)); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, soon, errSoon)
	defer cancel()
	// The instance clears a key that is not between its neighbours' any more.
	err := r.history.Await(bounded, "a boundary to be moved", func(c *checker) bool {
		i := c.records[name]
		return i == nil || i.pinned != nil && i.next == nil
	})
	if err != nil {
		return err
	}
	return r.steer(ctx, name, `{"spec":{"pinnedHashKey":null}}`)
}

func (r *run) steer(ctx context.Context, name, patch string) error {
	_, err := r.client.ShardingV1alpha1().ControllerInstances().Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// rolling replaces all replicas, one after the other.
func rolling(ctx context.Context, r *run) error {
	for _, p := range r.running() {
		if err := r.terminate(ctx, p); err != nil {
			return err
		}
		if _, err := r.add(ctx); err != nil {
			return err
		}
		if err := r.awaitRing(ctx); err != nil {
			return err
		}
	}
	return nil
}

// restartAPIServer kills the API server and starts it again.
func restartAPIServer(ctx context.Context, r *run) error {
	r.touch(r.running()...)
	return errors.Join(r.cluster.Kill(apiServerName), r.cluster.StartAgain(ctx, apiServerName))
}
