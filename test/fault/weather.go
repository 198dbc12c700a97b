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
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/proxy"
)

// weatherTime is how long the weather of a round is bad.
const weatherTime = 30 * time.Second

// weather has what every process must outlive go on at random: a proxy before all API servers cuts
// connections, some or all of a process's, and holds requests for 0.5 to 4 s; API servers are
// frozen, drained and restarted, one at a time; processes are starved of CPU. None dies, so no
// record may be removed as that of a dead process, unless its process could not have renewed it.
func weather(ctx context.Context, r *run) ([]time.Duration, error) {
	var targets []string
	for _, name := range r.servers {
		endpoint, err := r.cluster.Endpoint(name)
		if err != nil {
			return nil, err
		}
		targets = append(targets, endpoint)
	}
	processes := r.running()
	for _, p := range processes {
		p.proxy.Aim(targets...)
		defer p.proxy.Aim(p.server)
	}
	ctx, cancel := context.WithTimeout(ctx, weatherTime)
	defer cancel()
	winds := []func(context.Context, *run, []*process, *rand.Rand) error{cutting, holding, starving, stormOfServers}
	errs := make([]error, len(winds))
	var wg sync.WaitGroup
	for i, blow := range winds {
		random := rand.New(rand.NewPCG(r.seed, r.rand.Uint64()))
		wg.Go(func() {
			for ctx.Err() == nil && errs[i] == nil {
				errs[i] = blow(ctx, r, processes, random)
			}
		})
	}
	wg.Wait()
	return nil, errors.Join(errs...)
}

// hindrance is a time in which a process reached API servers hardly, or not at all.
type hindrance struct{ from, to time.Time }

// hinder does what hinders these processes.
func (r *run) hinder(processes []*process, do func() error) error {
	h := hindrance{from: time.Now()}
	err := do()
	h.to = time.Now()
	r.lock.Lock()
	defer r.lock.Unlock()
	for _, p := range processes {
		p.hindrances = append(p.hindrances, h)
	}
	return err
}

// enough is how long nothing may be in a process's way for it to renew its record.
const enough = time.Second

// couldRenew says whether a process could have renewed its record from the end of its presence
// until the record was removed: its connection was cut, and for long enough nothing else was in its
// way.
func couldRenew(hindrances []hindrance, ended, removed time.Time) bool {
	slices.SortFunc(hindrances, func(a, b hindrance) int { return a.from.Compare(b.from) })
	free := ended
	for _, h := range hindrances {
		if h.from.After(removed) {
			break
		}
		if h.from.Sub(free) >= enough {
			return true
		}
		if h.to.After(free) {
			free = h.to
		}
	}
	return removed.Sub(free) >= enough
}

// cutting cuts one connection of a process, or all.
func cutting(ctx context.Context, _ *run, processes []*process, random *rand.Rand) error {
	linger(ctx, random, 200*time.Millisecond, 3*time.Second)
	p := processes[random.IntN(len(processes))].proxy
	if random.IntN(2) == 0 {
		p.Cut()
	} else {
		p.CutOne()
	}
	return nil
}

// holding holds what a process sends and receives.
func holding(ctx context.Context, r *run, processes []*process, random *rand.Rand) error {
	linger(ctx, random, time.Second, 4*time.Second)
	p := processes[random.IntN(len(processes))]
	return r.hinder([]*process{p}, func() error {
		p.proxy.Treat(proxy.Hold, proxy.Hold)
		defer p.proxy.Heal()
		linger(ctx, random, 500*time.Millisecond, 4*time.Second)
		return nil
	})
}

// starving leaves a process a tenth of a core.
func starving(ctx context.Context, r *run, processes []*process, random *rand.Rand) error {
	p := processes[random.IntN(len(processes))]
	return r.hinder([]*process{p}, func() error {
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end) && ctx.Err() == nil; {
			err := r.freeze(ctx, p.name, 90*time.Millisecond)
			if errors.Is(err, os.ErrProcessDone) {
				// A leader that loses its Lease ends. Another process is started in its place.
				return nil
			}
			if err != nil {
				return err
			}
			linger(ctx, random, 10*time.Millisecond, 11*time.Millisecond)
		}
		return nil
	})
}

// stormOfServers freezes, drains or restarts an API server.
func stormOfServers(ctx context.Context, r *run, processes []*process, random *rand.Rand) error {
	linger(ctx, random, 2*time.Second, 6*time.Second)
	name := r.servers[random.IntN(len(r.servers))]
	// What has begun is ended in any case.
	whole := context.WithoutCancel(ctx)
	return r.hinder(processes, func() error {
		switch random.IntN(3) {
		case 0:
			return r.freeze(ctx, name, time.Second+time.Duration(random.Int64N(int64(4*time.Second))))
		case 1:
			return errors.Join(r.cluster.StopProcess(whole, name), r.cluster.StartAgain(whole, name))
		}
		return errors.Join(r.cluster.Kill(name), r.cluster.StartAgain(whole, name))
	})
}

// freeze stops a process for that long.
func (r *run) freeze(ctx context.Context, process string, d time.Duration) error {
	if err := r.cluster.Signal(process, syscall.SIGSTOP); err != nil {
		return err
	}
	_ = harness.Sleep(ctx, d)
	return r.cluster.Signal(process, syscall.SIGCONT)
}

// linger waits for a random time.
func linger(ctx context.Context, random *rand.Rand, least, most time.Duration) {
	_ = harness.Sleep(ctx, least+time.Duration(random.Int64N(int64(most-least))))
}
