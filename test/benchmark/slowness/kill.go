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
	"log"
	"math/rand/v2"
	"time"

	"k8s.io/kubernetes/test/harness"
)

// settled is the longest pause before a kill: it comes at any moment between two renewals.
const settled = 3 * time.Second

// deaths are how long it took after each death of a process.
type deaths struct {
	// gone is until its records were gone, of ours, and worked until all keys had a worker again.
	gone, worked []time.Duration
}

func measureKills(ctx context.Context, b *benchmark) (string, error) {
	return b.measureDeaths(ctx, "kill", false, false)
}

func measureKillsUnderLoad(ctx context.Context, b *benchmark) (string, error) {
	return b.measureDeaths(ctx, "kill-load", true, false)
}

func measureVanished(ctx context.Context, b *benchmark) (string, error) {
	return b.measureDeaths(ctx, "vanish", false, true)
}

// measureDeaths kills one process after another: of ours any, of stock's the leader. With vanish,
// nothing of that reaches the API server: no more bytes come, and the connections stay open.
func (b *benchmark) measureDeaths(ctx context.Context, section string, load, vanish bool) (string, error) {
	all, err := b.start(ctx, section, b.settings(), false, true)
	if err != nil {
		return "", err
	}
	defer all.end()
	var ours, stock deaths
	err = all.each(ctx, func(ctx context.Context, s *side) error {
		if err := s.createAll(ctx, b.workload); err != nil {
			return err
		}
		if err := s.addAll(ctx, managers, vanish); err != nil {
			return err
		}
		loading, unload := context.WithCancel(ctx)
		defer unload()
		if load {
			go s.load(loading, b.workload)
		}
		into, times := &ours, b.kills
		if s.stock {
			into, times = &stock, b.stockKills
		}
		for i := range times {
			if err := s.death(ctx, b, i+1, vanish, into); err != nil {
				return err
			}
			log.Printf("%s, %s: %d of %d: %v", section, s.name, i+1, times, into.worked[i].Round(time.Millisecond))
		}
		return nil
	})
	return renderDeaths(b, section, ours, stock), err
}

// death kills a process, waits until all keys have a worker again, and starts another.
func (s *side) death(ctx context.Context, b *benchmark, number int, vanish bool, into *deaths) error {
	if err := harness.Sleep(ctx, rand.N(settled)); err != nil {
		return err
	}
	victim := s.leader()
	if !s.stock {
		running := s.running()
		victim = running[rand.IntN(len(running))]
	}
	pid, err := s.cluster.PID(victim.name)
	if err != nil {
		return err
	}
	begin := time.Now()
	if vanish {
		victim.proxy.silence()
	}
	if err := s.kill(victim); err != nil {
		return err
	}
	if err := s.touch(ctx, b.workload.sets, number); err != nil {
		return err
	}
	last, err := s.seen(ctx)
	if err != nil {
		return err
	}
	into.worked = append(into.worked, last.Sub(begin))
	s.registry.See(func(l *ledger) {
		if at, ok := l.goneOf(pid); ok {
			into.gone = append(into.gone, at.Sub(begin))
		}
	})
	// Another port: one that dies young on the same port again and again is made to wait.
	if err := s.add(ctx, vanish); err != nil {
		return err
	}
	return s.settle(ctx, managers)
}
