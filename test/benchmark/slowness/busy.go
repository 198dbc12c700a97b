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
	"fmt"
	"log"
	"time"

	"k8s.io/kubernetes/test/harness"
)

// busyOutcome is what two busy cores did to a side.
type busyOutcome struct {
	side string
	counts
	// took is from the first ReplicaSet to the last pod.
	took time.Duration
}

// measureBusy has controller managers create as many pods as the machine can, one side after the
// other: each has the whole machine.
func measureBusy(ctx context.Context, b *benchmark) (string, error) {
	var outcomes []busyOutcome
	for _, stock := range []bool{false, true} {
		o, err := b.fill(ctx, stock)
		if err != nil {
			return renderBusy(b, outcomes), err
		}
		outcomes = append(outcomes, o)
	}
	return renderBusy(b, outcomes), nil
}

// fill creates ReplicaSets all at once, and waits for their pods.
func (b *benchmark) fill(ctx context.Context, stock bool) (o busyOutcome, err error) {
	all, err := b.start(ctx, "busy", b.settings(), stock)
	if err != nil {
		return o, err
	}
	defer all.end()
	s := all[0]
	if err := s.createNamespaces(ctx); err != nil {
		return o, err
	}
	if err := s.addAll(ctx, managers, false); err != nil {
		return o, err
	}
	before, begin := s.now(), time.Now()
	if err := s.createSets(ctx, b.busy); err != nil {
		return o, err
	}
	want := int64(b.busy.sets * b.busy.pods)
	for {
		pods, err := s.pods(ctx)
		if err != nil {
			return o, err
		}
		if pods >= want {
			break
		}
		if time.Since(begin) > 2*soon {
			return o, fmt.Errorf("%s: %d of %d pods exist after %v", s.name, pods, want, 2*soon)
		}
		if err := harness.Sleep(ctx, period); err != nil {
			return o, err
		}
	}
	o = busyOutcome{side: s.name, took: time.Since(begin)}
	if err := s.settle(ctx, managers); err != nil {
		return o, err
	}
	o.counts = s.since(before)
	log.Printf("busy, %s: %+v", s.name, o)
	return o, nil
}
