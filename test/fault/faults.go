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
	"maps"
	"os"
	"regexp"
	"slices"
	"syscall"
	"time"

	apps "k8s.io/api/apps/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/proxy"
)

// fault is a fault that can be injected into the cluster.
type fault struct {
	name string
	// do injects the fault and then removes it, so the cluster can settle. It returns how
	// long ranges had no worker, if the fault measures that.
	do func(context.Context, *run) ([]time.Duration, error)
	// outage means that no record can be renewed during the fault, and that writes under
	// way may be missing from the audit log.
	outage bool
	// unanswered means that answers to writes are lost all the time, so that a ReplicaSet may lose
	// more pods than it should, as with an outage and as in stock.
	unanswered bool
	// stock means that the fault applies to stock controller managers, too.
	stock bool
	// named means that it is injected only where -only names it.
	named bool
}

var faults = []fault{
	{name: "kill", do: kill, stock: true},
	{name: "panic", do: crash, stock: true},
	{name: "out-of-memory", do: outOfMemory, stock: true, named: true},
	{name: "kill-in-turn", do: killInTurn, named: true},
	{name: "kill-half", do: killHalf, named: true},
	{name: "terminate", do: terminate, stock: true},
	{name: "pause", do: pauseInBatch, stock: true},
	{name: "cut-both", do: cutOff(proxy.Drop, proxy.Drop), stock: true},
	{name: "cut-requests", do: cutOff(proxy.Drop, proxy.Pass), stock: true},
	{name: "cut-answers", do: cutOff(proxy.Pass, proxy.Drop), stock: true},
	{name: "late-requests", do: cutOff(proxy.Hold, proxy.Hold), stock: true},
	{name: "cut-briefly", do: cutBriefly, stock: true},
	{name: "restart-apiserver", do: restartAPIServer, outage: true, stock: true},
	{name: "restart-etcd", do: restartEtcd, outage: true, stock: true},
	{name: "watch-gone", do: watchGone, outage: true},
	{name: "join", do: join},
	{name: "join-all", do: joinAll},
	{name: "leave-beside-join", do: whileJoining(leaveDonor)},
	{name: "kill-donor", do: whileJoining(killDonor)},
	{name: "kill-receiver", do: whileJoining(killReceiver)},
	{name: "move", do: move},
	{name: "rolling-restart", do: rollingRestart, stock: true},
	{name: "weather", do: weather, outage: true, unanswered: true, stock: true, named: true},
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

// inBatch scales all ReplicaSets up at once, and returns a process that is creating
// pods, with its ReplicaSets. The load does not scale ReplicaSets until unlock.
func (r *run) inBatch(ctx context.Context) (victim *process, sets []*apps.ReplicaSet, unlock func(), err error) {
	r.loading.Lock()
	defer func() {
		if err != nil {
			r.loading.Unlock()
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
	err = r.history.Await(ctx, "a batch of creations to begin", func(c *checker) bool {
		n := 0
		for _, rs := range sets {
			n += len(c.sets[rs.UID].live)
		}
		return n >= len(sets)*r.batch/8
	})
	return victim, sets, r.loading.Unlock, err
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

func cutOff(requests, answers proxy.Treatment) func(context.Context, *run) ([]time.Duration, error) {
	return func(ctx context.Context, r *run) ([]time.Duration, error) {
		victim, sets, unlock, err := r.inBatch(ctx)
		if err != nil {
			return nil, err
		}
		defer unlock()
		victim.faulty = true
		begin := time.Now()
		victim.proxy.Treat(requests, answers)
		took, err := r.takeover(ctx, victim, sets, begin, r.batch)
		victim.proxy.Heal()
		return took, err
	}
}

// cutBriefly cuts an instance off for less than its lease, which it must not lose.
func cutBriefly(ctx context.Context, r *run) ([]time.Duration, error) {
	victim, _, unlock, err := r.inBatch(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	victim.proxy.Treat(proxy.Drop, proxy.Drop)
	defer victim.proxy.Heal()
	_ = harness.Sleep(ctx, lease/4)
	return nil, nil
}

func restartEtcd(ctx context.Context, r *run) ([]time.Duration, error) {
	return nil, r.restart(ctx, etcdName)
}

// restartAPIServer restarts one of the API servers, while the others go on.
func restartAPIServer(ctx context.Context, r *run) ([]time.Duration, error) {
	return nil, r.restart(ctx, r.servers[r.rand.IntN(len(r.servers))])
}

func (r *run) restart(ctx context.Context, component string) error {
	_, _, unlock, err := r.inBatch(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return errors.Join(r.cluster.Kill(component), r.cluster.StartAgain(ctx, component))
}

// watchGone restarts all API servers and compacts etcd, so every watch ends with 410.
// With long leases the instances survive this.
func watchGone(ctx context.Context, r *run) ([]time.Duration, error) {
	if err := r.rejoin(ctx, longLeases); err != nil {
		return nil, err
	}
	if err := r.settleWithoutLoad(ctx); err != nil {
		return nil, err
	}
	before, err := r.logged("The watch of the registry has ended")
	if err != nil {
		return nil, err
	}
	for _, name := range r.servers {
		if err := r.cluster.Kill(name); err != nil {
			return nil, err
		}
	}
	var revision int64
	r.history.See(func(c *checker) { revision = c.revision })
	if _, err := r.history.Client.Compact(ctx, revision); err != nil {
		return nil, err
	}
	for _, name := range r.servers {
		if err := r.cluster.StartAgain(ctx, name); err != nil {
			return nil, err
		}
	}
	if err := r.settleWithoutLoad(ctx); err != nil {
		return nil, err
	}
	after, err := r.logged("The watch of the registry has ended")
	if err != nil {
		return nil, err
	}
	if after == before {
		return nil, errors.New("no instance has logged that its watch expired")
	}
	return nil, r.rejoin(ctx, onRing)
}

func joinAll(ctx context.Context, r *run) ([]time.Duration, error) {
	return nil, r.rejoin(ctx, onRing)
}

// rejoin makes all instances leave at once and then, when all have left, join at once.
func (r *run) rejoin(ctx context.Context, settings string) error {
	for _, p := range r.running() {
		if err := p.set(offRing); err != nil {
			return err
		}
	}
	bounded, cancel := context.WithTimeoutCause(ctx, soon, errors.New("not within 3 minutes"))
	defer cancel()
	err := r.history.Await(bounded, "all instances to leave", func(c *checker) bool { return len(c.instances) == 0 })
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

// logged counts a message in the logs of the running controller managers.
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

// join adds an instance, and returns how long nobody worked on the range that it
// received, by its donor's log and its own. No other range may pause. Then another
// instance leaves.
func join(ctx context.Context, r *run) (_ []time.Duration, err error) {
	if err := r.balance(ctx, shardingv1alpha1.BalanceDisabled); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.balance(ctx, "")) }()
	others := r.running()
	begin := time.Now()
	receiver, err := r.add(ctx, onRing)
	if err != nil {
		return nil, err
	}
	if err := r.settleWithoutLoad(ctx); err != nil {
		return nil, err
	}
	gaps, err := r.checkPauses(begin)
	if err != nil {
		return nil, err
	}
	if len(gaps) == 0 {
		return nil, fmt.Errorf("no log has the handover to %s", receiver.name)
	}
	leaver := others[r.rand.IntN(len(others))]
	return []time.Duration{slices.Max(gaps)}, r.cluster.StopProcess(ctx, leaver.name)
}

// moves is how often a boundary is moved in one fault.
const moves = 4

// move moves the boundary between two instances, up and down, as an administrator would. It
// returns how long nobody worked on each of the ranges. No other range may pause: the load is not
// evened out meanwhile.
func move(ctx context.Context, r *run) (gaps []time.Duration, err error) {
	if err := r.balance(ctx, shardingv1alpha1.BalanceDisabled); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.balance(ctx, "")) }()
	begin := time.Now()
	for n := range moves {
		if err := r.moveBoundary(ctx); err != nil {
			return nil, err
		}
		// The receiver opens its gate later than that.
		if err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, soon, true, func(context.Context) (bool, error) {
			gaps, _, err = r.pausesSince(begin)
			return len(gaps) > n, err
		}); err != nil {
			return nil, fmt.Errorf("waiting for a boundary's receiver to open its gate: %w", err)
		}
	}
	if err := r.settleWithoutLoad(ctx); err != nil {
		return nil, err
	}
	return r.checkPauses(begin)
}

// balance says in all records whether the load is to be evened out, and that no boundary is pinned.
// It waits until no handover is open, and nobody joins.
func (r *run) balance(ctx context.Context, balance shardingv1alpha1.Balance) error {
	var names []string
	r.history.See(func(c *checker) { names = slices.Collect(maps.Keys(c.instances)) })
	r.still = balance == shardingv1alpha1.BalanceDisabled
	for _, name := range names {
		patch := fmt.Appendf(nil, `{"spec":{"balance":%q,"pinnedHashKey":null}}`, balance)
		if _, err := r.client.ShardingV1alpha1().ControllerInstances().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	bounded, cancel := context.WithTimeoutCause(ctx, soon, errors.New("not within 3 minutes"))
	defer cancel()
	return r.history.Await(bounded, "all handovers to end", func(c *checker) bool {
		for _, i := range c.instances {
			// What one that joins is given would be taken for what a fault hands over.
			if i.Spec.HashKey == nil || i.Spec.NextHashKey != nil {
				return false
			}
		}
		return true
	})
}

// moveBoundary moves the boundary above an instance to some place between its neighbours', and
// waits until the handover is closed.
func (r *run) moveBoundary(ctx context.Context) error {
	var name string
	var next int64
	rings := catalogue.Rings()
	ring := rings[r.rand.IntN(len(rings))].Name
	bounded, cancel := context.WithTimeoutCause(ctx, soon, errors.New("not within 3 minutes"))
	defer cancel()
	// The process that has come after the last fault may still join.
	for name == "" {
		if err := r.replace(ctx); err != nil {
			return err
		}
		if err := r.history.Await(bounded, "all instances to own a range", func(c *checker) bool {
			view := c.instances.View(ring)
			if len(view) < 3 || len(view) < len(c.instances.Ring(ring)) {
				return len(r.running()) < r.instances
			}
			// The lowest and the highest have keys on the other side, too.
			i := 1 + r.rand.IntN(len(view)-2)
			low, high := uint64(view[i-1].Key), uint64(view[i+1].Key)
			name, next = view[i].Name, int64(low+1+r.rand.Uint64N(high-low-1))
			return true
		}); err != nil {
			return err
		}
	}
	patch := fmt.Appendf(nil, `{"spec":{"nextHashKey":%q}}`, hashkey.Format(next))
	if _, err := r.client.ShardingV1alpha1().ControllerInstances().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	return r.history.Await(bounded, "a boundary to be moved", func(c *checker) bool {
		i := c.instances[name]
		return i != nil && i.Spec.NextHashKey == nil && int64(*i.Spec.HashKey) == next
	})
}

// checkPauses returns how long each range that was handed over since begin was without a worker. A
// range that an instance has shut, and no other has opened, did not need to pause.
func (r *run) checkPauses(begin time.Time) ([]time.Duration, error) {
	gaps, kept, err := r.pausesSince(begin)
	r.history.See(func(c *checker) {
		for _, what := range kept {
			c.violate(needlessPause, "%s, which no other has opened", what)
		}
	})
	return gaps, err
}

// pausesSince returns by the logs how long each range that was shut since begin was without a
// worker, and which no other instance has opened.
func (r *run) pausesSince(begin time.Time) (gaps []time.Duration, kept []string, err error) {
	begin, err = time.Parse(gateTime, begin.Format(gateTime))
	if err != nil {
		return nil, nil, err
	}
	all := r.running()
	opened := make([]map[string]time.Time, len(all))
	for i, p := range all {
		if opened[i], err = r.gateTimes(p, "Opened the gate"); err != nil {
			return nil, nil, err
		}
	}
	for i, p := range all {
		shut, err := r.gateTimes(p, "Shut the gate")
		if err != nil {
			return nil, nil, err
		}
		for keys, since := range shut {
			if since.Before(begin) {
				continue
			}
			taken := slices.IndexFunc(opened, func(by map[string]time.Time) bool { at, ok := by[keys]; return ok && !at.Before(since) })
			if taken >= 0 && taken != i {
				gaps = append(gaps, opened[taken][keys].Sub(since))
			} else {
				kept = append(kept, fmt.Sprintf("%s shut its gate for %s", p.name, keys))
			}
		}
	}
	return gaps, kept, nil
}

var gateLine = regexp.MustCompile(`(?m)^I(\d{4} \d\d:\d\d:\d\d\.\d{6}) .*"(Opened the gate|Shut the gate)" .*ring="([^"]*)" .*ranges="([^"]*)"`)

// gateTime is the format of times in the logs, which lacks the year.
const gateTime = "0102 15:04:05.000000"

// gateTimes returns the time of the process's last such message, by ring and range.
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
		times[string(match[3])+" "+string(match[4])] = at
	}
	return times, nil
}

// whileJoining makes an instance join, and calls happens while the donor hands over to
// it.
func whileJoining(happens func(ctx context.Context, r *run, donor, receiver *process) error) func(context.Context, *run) ([]time.Duration, error) {
	return func(ctx context.Context, r *run) ([]time.Duration, error) {
		receiver, err := r.add(ctx, offRing)
		if err != nil {
			return nil, err
		}
		if err := receiver.set(onRing); err != nil {
			return nil, err
		}
		var holder string
		bounded, cancel := context.WithTimeoutCause(ctx, soon, errors.New("not within 3 minutes"))
		defer cancel()
		err = r.history.Await(bounded, "a donor to name a key", func(c *checker) bool {
			for _, i := range c.instances {
				if donor := c.instances[i.Spec.Donor]; i.Spec.HashKey == nil && i.Spec.NextHashKey != nil && donor != nil {
					holder = donor.Spec.HolderIdentity
				}
			}
			return holder != ""
		})
		if err != nil {
			return nil, err
		}
		for _, p := range r.running() {
			if p.name == r.processOf(holder) {
				return nil, happens(ctx, r, p, receiver)
			}
		}
		return nil, fmt.Errorf("the donor %s is not a running process", holder)
	}
}

func leaveDonor(ctx context.Context, r *run, donor, _ *process) error {
	return r.cluster.StopProcess(ctx, donor.name)
}

func killDonor(ctx context.Context, r *run, donor, _ *process) error {
	donor.faulty = true
	return r.cluster.Kill(donor.name)
}

func killReceiver(ctx context.Context, r *run, _, receiver *process) error {
	receiver.faulty = true
	return r.cluster.Kill(receiver.name)
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
