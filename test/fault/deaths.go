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
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/kubernetes/test/harness"
)

func kill(ctx context.Context, r *run) ([]time.Duration, error) {
	return r.loseOne(ctx, fromNow(r.cluster.Kill))
}

// crash has a process end itself as a panic does: it writes what all its goroutines do, and exits.
func crash(ctx context.Context, r *run) ([]time.Duration, error) {
	return r.loseOne(ctx, fromNow(r.cluster.Crash))
}

// outOfMemory has the kernel end a process. When it does depends on when the process wants memory,
// so what counts is from then on.
func outOfMemory(ctx context.Context, r *run) ([]time.Duration, error) {
	return r.loseOne(ctx, func(process string) (time.Time, error) {
		err := r.cluster.EndBy(process, func(pid int) error { return exhaust(ctx, pid) })
		return time.Now(), err
	})
}

// killInTurn kills two processes, the second as soon as the range of the first is worked on again.
func killInTurn(ctx context.Context, r *run) (took []time.Duration, err error) {
	for range 2 {
		victim, err := r.victim()
		if err != nil {
			return nil, err
		}
		again, err := r.lose(ctx, victim, fromNow(r.cluster.Kill))
		took = append(took, again...)
		if err != nil {
			return took, err
		}
	}
	return took, r.replace(ctx)
}

// killHalf kills half of the processes at once.
func killHalf(ctx context.Context, r *run) (took []time.Duration, err error) {
	victims := r.victims()
	if victims = victims[:(len(victims)+1)/2]; len(victims) < 2 {
		return nil, errors.New("half of so few is no more than one: -instances must be at least 3")
	}
	results, errs := make([][]time.Duration, len(victims)), make([]error, len(victims))
	var wg sync.WaitGroup
	for i, victim := range victims {
		wg.Go(func() { results[i], errs[i] = r.lose(ctx, victim, fromNow(r.cluster.Kill)) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return slices.Concat(results...), r.replace(ctx)
}

// ending ends a process by its name, and returns from when on its ranges count as without a worker.
type ending func(process string) (time.Time, error)

// fromNow returns the ending that a function is if they count from the call on.
func fromNow(end func(process string) error) ending {
	return func(process string) (time.Time, error) {
		begin := time.Now()
		return begin, end(process)
	}
}

// loseOne has a process end, and starts another in its place.
func (r *run) loseOne(ctx context.Context, end ending) ([]time.Duration, error) {
	victim, err := r.victim()
	if err != nil {
		return nil, err
	}
	took, err := r.lose(ctx, victim, end)
	if err != nil {
		return nil, err
	}
	return took, r.replace(ctx)
}

// lose has a process end, and returns how long some of its ReplicaSets had no worker.
func (r *run) lose(ctx context.Context, victim *process, end ending) ([]time.Duration, error) {
	sets := r.owned(victim)
	victim.faulty = true
	begin, err := end(victim.name)
	if err != nil {
		return nil, err
	}
	return r.takeover(ctx, victim, sets, begin, r.maxReplicas/2)
}

// memoryLimits are where the kernel keeps cgroups with a limit of memory, and the file that has the
// limit: of version 1, and of version 2.
var memoryLimits = [...]struct{ groups, limit string }{
	{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
	{"/sys/fs/cgroup", "memory.max"},
}

// exhaust has the kernel end a process as one that wants more memory than it may have. It needs the
// right to make cgroups.
func exhaust(ctx context.Context, pid int) (err error) {
	at := slices.IndexFunc(memoryLimits[:], func(l struct{ groups, limit string }) bool {
		_, err := os.Stat(filepath.Join(l.groups, "cgroup.procs"))
		return err == nil
	})
	if at < 0 {
		return errors.New("there are no cgroups that limit memory: leave the fault out")
	}
	group, err := os.MkdirTemp(memoryLimits[at].groups, "fault-")
	if err != nil {
		return fmt.Errorf("the fault needs the right to make cgroups: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(group)) }()
	members := filepath.Join(group, "cgroup.procs")
	for _, write := range [...]struct{ file, value string }{
		{filepath.Join(group, memoryLimits[at].limit), "4096"}, {members, strconv.Itoa(pid)},
	} {
		if err := os.WriteFile(write.file, []byte(write.value), 0); err != nil {
			return err
		}
	}
	return harness.Await(ctx, time.Minute, 10*time.Millisecond, "the kernel to end it", func(context.Context) error {
		if left, err := os.ReadFile(members); err != nil || len(left) > 0 {
			return fmt.Errorf("it runs on (%v)", err)
		}
		return nil
	})
}
