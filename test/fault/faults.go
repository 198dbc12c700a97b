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
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"syscall"
	"time"

	apps "k8s.io/api/apps/v1"
)

// fault is something that befalls the cluster.
type fault struct {
	name string
	// do lets it happen and puts things right again, so that the cluster can settle.
	// It returns how long ranges were without a worker where that says something.
	do func(context.Context, *run) ([]time.Duration, error)
	// outage says that no record can be renewed meanwhile, and that the audit log may
	// lose what was under way.
	outage bool
	// stock says that the fault is one for stock controller managers, too.
	stock bool
}

var faults = []fault{
	{name: "kill", do: kill, stock: true},
	{name: "terminate", do: terminate, stock: true},
	{name: "pause", do: pauseInBatch, stock: true},
	{name: "cut-both", do: cutOff(drop, drop), stock: true},
	{name: "cut-requests", do: cutOff(drop, pass), stock: true},
	{name: "cut-answers", do: cutOff(pass, drop), stock: true},
	{name: "late-requests", do: cutOff(hold, hold), stock: true},
	{name: "cut-briefly", do: cutBriefly, stock: true},
	{name: "restart-apiserver", do: restart(apiServerName), outage: true, stock: true},
	{name: "restart-etcd", do: restart(etcdName), outage: true, stock: true},
	{name: "watch-gone", do: watchGone, outage: true},
	{name: "join", do: join},
	{name: "join-all", do: joinAll},
	{name: "leave-beside-join", do: whileJoining(leaveDonor)},
	{name: "kill-donor", do: whileJoining(killDonor)},
	{name: "kill-newcomer", do: whileJoining(killNewcomer)},
	{name: "rolling-restart", do: rollingRestart, stock: true},
}

func kill(ctx context.Context, r *run) ([]time.Duration, error) {
	victim, err := r.victim()
	if err != nil {
		return nil, err
	}
	sets := r.owned(victim)
	victim.faulty = true
	begin := time.Now()
	if err := r.cluster.Kill(victim.name); err != nil {
		return nil, err
	}
	took, err := r.takeover(ctx, victim, sets, begin, r.maxReplicas/2)
	if err != nil {
		return nil, err
	}
	_, err = r.add(ctx, onRing)
	return took, err
}

func terminate(ctx context.Context, r *run) ([]time.Duration, error) {
	victim, err := r.victim()
	if err != nil {
		return nil, err
	}
	took, err := r.terminate(ctx, victim)
	if err != nil {
		return nil, err
	}
	_, err = r.add(ctx, onRing)
	return took, err
}

func (r *run) terminate(ctx context.Context, p *process) ([]time.Duration, error) {
	sets := r.owned(p)
	begin := time.Now()
	stopped := make(chan error, 1)
	go func() { stopped <- r.cluster.StopProcess(ctx, p.name) }()
	took, err := r.takeover(ctx, p, sets, begin, r.maxReplicas/2)
	return took, errors.Join(err, <-stopped)
}

// inBatch lets all ReplicaSets want many pods at once, and returns a process in the
// midst of creating them, with its ReplicaSets. They are left alone until unlock.
func (r *run) inBatch(ctx context.Context) (victim *process, sets []*apps.ReplicaSet, unlock func(), err error) {
	r.loading.Lock()
	unlock = r.loading.Unlock
	defer func() {
		if err != nil {
			unlock()
		}
	}()
	for _, rs := range r.sets {
		if err := r.scale(ctx, rs, 0); err != nil {
			return nil, nil, nil, err
		}
	}
	if err := r.settle(ctx); err != nil {
		return nil, nil, nil, err
	}
	if victim, err = r.victim(); err != nil {
		return nil, nil, nil, err
	}
	sets = r.owned(victim)
	for _, rs := range r.sets {
		if err := r.scale(ctx, rs, r.batch); err != nil {
			return nil, nil, nil, err
		}
	}
	err = r.history.await(ctx, "a batch of creations to begin", func(c *checker) bool {
		n := 0
		for _, rs := range sets {
			n += len(c.sets[rs.UID].live)
		}
		return n >= len(sets)*r.batch/8
	})
	return victim, sets, unlock, err
}

func pauseInBatch(ctx context.Context, r *run) ([]time.Duration, error) {
	victim, sets, unlock, err := r.inBatch(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	victim.faulty = true
	begin := time.Now()
	if err := r.cluster.Signal(victim.name, syscall.SIGSTOP); err != nil {
		return nil, err
	}
	took, err := r.takeover(ctx, victim, sets, begin, r.batch)
	return took, errors.Join(err, r.cluster.Signal(victim.name, syscall.SIGCONT))
}

func cutOff(requests, answers treatment) func(context.Context, *run) ([]time.Duration, error) {
	return func(ctx context.Context, r *run) ([]time.Duration, error) {
		victim, sets, unlock, err := r.inBatch(ctx)
		if err != nil {
			return nil, err
		}
		defer unlock()
		victim.faulty = true
		begin := time.Now()
		victim.proxy.cut(requests, answers)
		took, err := r.takeover(ctx, victim, sets, begin, r.batch)
		victim.proxy.heal()
		return took, err
	}
}

// cutBriefly cuts an instance off for less than its lease: it must not lose it.
func cutBriefly(ctx context.Context, r *run) ([]time.Duration, error) {
	victim, _, unlock, err := r.inBatch(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	victim.proxy.cut(drop, drop)
	defer victim.proxy.heal()
	select {
	case <-time.After(lease / 4):
	case <-ctx.Done():
	}
	return nil, nil
}

func restart(component string) func(context.Context, *run) ([]time.Duration, error) {
	return func(ctx context.Context, r *run) ([]time.Duration, error) {
		_, _, unlock, err := r.inBatch(ctx)
		if err != nil {
			return nil, err
		}
		defer unlock()
		return nil, errors.Join(r.cluster.Kill(component), r.cluster.StartAgain(ctx, component))
	}
}

// watchGone restarts the API server and forgets all older revisions: every watch is
// told 410. With leases this long the instances live through it.
func watchGone(ctx context.Context, r *run) ([]time.Duration, error) {
	if err := r.rejoin(ctx, longLeases); err != nil {
		return nil, err
	}
	if err := r.settle(ctx); err != nil {
		return nil, err
	}
	before, err := r.logged("The registry's watch has ended")
	if err != nil {
		return nil, err
	}
	if err := r.cluster.Kill(apiServerName); err != nil {
		return nil, err
	}
	if err := r.history.compact(ctx); err != nil {
		return nil, err
	}
	if err := r.cluster.StartAgain(ctx, apiServerName); err != nil {
		return nil, err
	}
	if err := r.settle(ctx); err != nil {
		return nil, err
	}
	after, err := r.logged("The registry's watch has ended")
	if err != nil {
		return nil, err
	}
	if after == before {
		return nil, errors.New("no instance was told that its watch cannot go on")
	}
	return nil, r.rejoin(ctx, onRing)
}

func joinAll(ctx context.Context, r *run) ([]time.Duration, error) {
	return nil, r.rejoin(ctx, onRing)
}

// rejoin lets all instances leave at once, and, when all have gone, join at once.
func (r *run) rejoin(ctx context.Context, settings string) error {
	for _, p := range r.running() {
		if err := p.set(offRing); err != nil {
			return err
		}
	}
	bounded, cancel := context.WithTimeoutCause(ctx, soon, errors.New("not within 3 minutes"))
	defer cancel()
	err := r.history.await(bounded, "all instances to leave", func(c *checker) bool { return len(c.instances) == 0 })
	if err != nil {
		return err
	}
	for _, p := range r.running() {
		if err := p.set(settings); err != nil {
			return err
		}
	}
	return nil
}

// logged counts a message in the logs of the controller managers.
func (r *run) logged(message string) (int, error) {
	n := 0
	for _, p := range r.running() {
		content, err := os.ReadFile(r.cluster.LogFile(p.name))
		if err != nil {
			return 0, err
		}
		n += bytes.Count(content, []byte(message))
	}
	return n, nil
}

// join adds an instance, and tells how long the range that it gets was in nobody's
// work: from its donor's log to its own. No other range may pause. Then another
// instance leaves.
func join(ctx context.Context, r *run) ([]time.Duration, error) {
	others := r.running()
	begin, err := time.Parse(gateTime, time.Now().Format(gateTime))
	if err != nil {
		return nil, err
	}
	newcomer, err := r.add(ctx, onRing)
	if err != nil {
		return nil, err
	}
	r.loading.Lock()
	err = r.settle(ctx)
	r.loading.Unlock()
	if err != nil {
		return nil, err
	}
	opened, err := r.gateTimes(newcomer, "Opened the gate")
	if err != nil {
		return nil, err
	}
	var gap time.Duration
	for _, p := range others {
		shut, err := r.gateTimes(p, "Shut the gate")
		if err != nil {
			return nil, err
		}
		for keys, since := range shut {
			if at, ok := opened[keys]; ok {
				gap = max(gap, at.Sub(since))
			} else if !since.Before(begin) {
				r.history.see(func(c *checker) {
					c.violate(needlessPause, "%s shut its gate for %s while %s joined, which did not get that", p.name, keys, newcomer.name)
				})
			}
		}
	}
	if gap == 0 {
		return nil, fmt.Errorf("no log tells of the handover to %s", newcomer.name)
	}
	leaver := others[r.rand.IntN(len(others))]
	return []time.Duration{gap}, r.cluster.StopProcess(ctx, leaver.name)
}

var gateLine = regexp.MustCompile(`(?m)^I(\d{4} \d\d:\d\d:\d\d\.\d{6}) .*"(Opened the gate|Shut the gate)" .*ranges="([^"]*)"`)

// gateTime is how logs tell the time: without the year.
const gateTime = "0102 15:04:05.000000"

// gateTimes returns when the process last said so, by range.
func (r *run) gateTimes(p *process, message string) (map[string]time.Time, error) {
	content, err := os.ReadFile(r.cluster.LogFile(p.name))
	if err != nil {
		return nil, err
	}
	times := map[string]time.Time{}
	for _, match := range gateLine.FindAllSubmatch(content, -1) {
		if string(match[2]) != message {
			continue
		}
		at, err := time.Parse(gateTime, string(match[1]))
		if err != nil {
			return nil, err
		}
		times[string(match[3])] = at
	}
	return times, nil
}

// whileJoining lets an instance join, and something happen while its donor hands
// over to it.
func whileJoining(happens func(ctx context.Context, r *run, donor, newcomer *process) error) func(context.Context, *run) ([]time.Duration, error) {
	return func(ctx context.Context, r *run) ([]time.Duration, error) {
		newcomer, err := r.add(ctx, offRing)
		if err != nil {
			return nil, err
		}
		if err := newcomer.set(onRing); err != nil {
			return nil, err
		}
		var holder string
		bounded, cancel := context.WithTimeoutCause(ctx, soon, errors.New("not within 3 minutes"))
		defer cancel()
		err = r.history.await(bounded, "a donor to name a key", func(c *checker) bool {
			for _, i := range c.instances {
				if i.key == nil && i.next != nil && c.instances[i.donor] != nil {
					holder = c.instances[i.donor].holder
				}
			}
			return holder != ""
		})
		if err != nil {
			return nil, err
		}
		for _, p := range r.running() {
			if p.name == r.processOf(holder) {
				return nil, happens(ctx, r, p, newcomer)
			}
		}
		return nil, fmt.Errorf("the donor's holder %s is no process that runs", holder)
	}
}

func leaveDonor(ctx context.Context, r *run, donor, _ *process) error {
	return r.cluster.StopProcess(ctx, donor.name)
}

func killDonor(ctx context.Context, r *run, donor, _ *process) error {
	donor.faulty = true
	return r.cluster.Kill(donor.name)
}

func killNewcomer(ctx context.Context, r *run, _, newcomer *process) error {
	newcomer.faulty = true
	return r.cluster.Kill(newcomer.name)
}

func rollingRestart(ctx context.Context, r *run) ([]time.Duration, error) {
	var took []time.Duration
	for _, p := range r.running() {
		if r.stock {
			if err := errors.Join(r.cluster.StopProcess(ctx, p.name)); err != nil {
				return nil, err
			}
		} else {
			d, err := r.terminate(ctx, p)
			if err != nil {
				return nil, err
			}
			took = append(took, d...)
		}
		if _, err := r.add(ctx, onRing); err != nil {
			return nil, err
		}
	}
	return took, nil
}
