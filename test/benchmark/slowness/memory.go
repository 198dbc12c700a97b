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
	"log"
	"os"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/test/benchmark/measure"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/ownership"
	"k8s.io/utils/ptr"
)

const (
	// memoryManagers is how many processes share what none of them could hold alone.
	memoryManagers = 4
	// heapPeriod is between two looks at the heaps.
	heapPeriod = time.Second
)

// footprint is what a process took.
type footprint struct {
	name string
	// before is its live heap before, and heap the largest seen since, garbage included.
	before, heap uint64
	// resident is its largest resident set since.
	resident uint64
	// held is the most objects that its records told of at one time.
	held int64
}

// recovery is how all records came back.
type recovery struct {
	objects int
	// served is until every key had a worker again; 0: that did not happen in time.
	served     time.Duration
	footprints []footprint
	// cold is what was listed of ranges at the start.
	cold listed
	counts
}

// measureMemory deletes all records at once, by force, and looks at how the processes come back.
func measureMemory(ctx context.Context, b *benchmark) (string, error) {
	all, err := b.start(ctx, "memory", b.settings()+strings.TrimSpace(b.memorySettings)+"\n", false)
	if err != nil {
		return "", err
	}
	defer all.end()
	s := all[0]
	if err := s.createAll(ctx, b.memory); err != nil {
		return "", err
	}
	if err := s.addAll(ctx, memoryManagers, true); err != nil {
		return "", err
	}
	if err := s.rest(ctx); err != nil {
		return "", err
	}
	r := recovery{objects: b.memory.sets * (b.memory.pods + 1), cold: s.now().lists().ranges}
	for _, m := range s.running() {
		live, err := measure.Live(ctx, s.cluster, m.name)
		if err != nil {
			return "", err
		}
		if err := s.resetPeak(m); err != nil {
			return "", err
		}
		r.footprints = append(r.footprints, footprint{name: m.name, before: live})
	}
	err = s.recover(ctx, &r)
	return renderMemory(b, r), err
}

// resetPeak makes the largest resident set of a process count from now on.
func (s *side) resetPeak(m *manager) error {
	pid, err := s.cluster.PID(m.name)
	if err != nil {
		return err
	}
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// recover deletes all records, and measures until every key has a worker again.
func (s *side) recover(ctx context.Context, r *recovery) error {
	before := s.now()
	begin := time.Now()
	if err := s.deleteRecords(ctx); err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() {
		for watching.Err() == nil {
			s.weigh(watching, r.footprints)
			_ = harness.Sleep(watching, heapPeriod)
		}
	})
	err := s.settle(ctx, memoryManagers)
	if err == nil {
		r.served = time.Since(begin)
	} else if errors.Is(err, context.DeadlineExceeded) {
		log.Print(err)
		err = nil
	}
	stop()
	looking.Wait()
	r.counts = s.since(before)
	log.Printf("memory: %+v", *r)
	return err
}

// deleteRecords deletes all records as kubectl delete --all --grace-period=0 does.
func (s *side) deleteRecords(ctx context.Context) error {
	instances := s.client.ShardingV1alpha1().ControllerInstances()
	list, err := instances.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	return harness.Parallel(ctx, writers, len(list.Items), func(ctx context.Context, i int) error {
		return instances.Delete(ctx, list.Items[i].Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	})
}

// weigh notes what the processes take now, where that is more than before. A process that has ended
// is left out.
func (s *side) weigh(ctx context.Context, footprints []footprint) {
	held := map[int]int64{}
	if list, err := s.client.ShardingV1alpha1().ControllerInstances().List(ctx, metav1.ListOptions{}); err == nil {
		for _, i := range list.Items {
			if pid, ok := ownership.PID(i.Spec.HolderIdentity); ok {
				held[pid] += i.Status.Weight
			}
		}
	}
	for i := range footprints {
		f := &footprints[i]
		pid, err := s.cluster.PID(f.name)
		if err != nil {
			continue
		}
		f.held = max(f.held, held[pid])
		if heap, err := measure.Allocated(ctx, s.cluster, f.name); err == nil {
			f.heap = max(f.heap, heap)
		}
		if resident, _, err := measure.Usage(pid); err == nil {
			f.resident = max(f.resident, resident)
		}
	}
}
