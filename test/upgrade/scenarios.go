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
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/ring"
	"k8s.io/kubernetes/test/harness/audit"
)

// managers is how many controller managers there are, where a scenario says nothing else.
const managers = 3

// scenario is a change that a cluster has to survive.
type scenario struct {
	name string
	// do makes the change under load.
	do func(context.Context, *run) error
	// kills means that in every second run one of the managers that end is killed.
	kills bool
	// deposes means that a leader loses its Lease while it works.
	deposes bool
	// stockServer means that the API server is a stock one.
	stockServer bool
}

var scenarios = []scenario{
	{name: "stock-restart", do: restartLeader, kills: true, stockServer: true},
	{name: "stock-to-ours", do: replaceAll(stock, ours), kills: true},
	{name: "ours-to-stock", do: replaceAll(ours, stock), kills: true},
	{name: "older-to-newer", do: replaceAll(older, ours), kills: true},
	{name: "newer-to-older", do: replaceAll(ours, older), kills: true},
	{name: "lists-differ", do: listsDiffer, kills: true},
	{name: "leader-paused", do: pauseLeader, deposes: true},
	{name: "lease-deleted", do: deleteLease, deposes: true},
	{name: "mixed-servers", do: mixServers},
}

// begin starts the managers and, when they are ready, the load.
func (r *run) begin(ctx context.Context, n int, k kind) ([]*seat, error) {
	r.say("starting %d managers of kind %s", n, k)
	var seats []*seat
	for i := range n {
		s, err := r.occupy(ctx, fmt.Sprintf("seat %d", i+1), k)
		if err != nil {
			return nil, err
		}
		seats = append(seats, s)
	}
	if err := r.cluster.AwaitServiceAccount(ctx, namespace); err != nil {
		return nil, err
	}
	r.say("starting the load")
	var err error
	if r.load, err = newLoad(ctx, r.client, rand.New(rand.NewPCG(r.rand.Uint64(), 0))); err != nil {
		return nil, err
	}
	if err := r.settle(ctx); err != nil {
		return nil, err
	}
	if r.probes, err = startProbes(ctx, r.client); err != nil {
		return nil, err
	}
	if !r.quiet {
		r.load.start(ctx)
	}
	return seats, r.answered(ctx)
}

// answered waits until each probe has had an answer from now on.
func (r *run) answered(ctx context.Context) error {
	_, err := r.probes.after(ctx, time.Now())
	return err
}

// restartLeader replaces the leader.
func restartLeader(ctx context.Context, r *run) error {
	seats, err := r.begin(ctx, managers, stock)
	if err != nil {
		return err
	}
	leader, _, err := r.leader(ctx, seats)
	if err != nil {
		return err
	}
	if _, err := r.replace(ctx, leader, r.killed, stock); err != nil {
		return err
	}
	return r.answered(ctx)
}

// replaceAll replaces one manager after another, in random order.
func replaceAll(from, to kind) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) error {
		seats, err := r.begin(ctx, managers, from)
		if err != nil {
			return err
		}
		victim := r.victim(managers)
		for n, i := range r.rand.Perm(managers) {
			if _, err := r.replace(ctx, seats[i], n == victim, to); err != nil {
				return err
			}
		}
		return r.answered(ctx)
	}
}

// victim returns which one of n ends to make a kill, -1 for none.
func (r *run) victim(n int) int {
	if !r.killed {
		return -1
	}
	return r.rand.IntN(n)
}

// listsDiffer lets a manager come that does not run the ReplicationController controller,
// restarts the leader beside it, and lets it go.
func listsDiffer(ctx context.Context, r *run) error {
	seats, err := r.begin(ctx, managers, ours)
	if err != nil {
		return err
	}
	victim := r.victim(3)
	without := "--controllers=*,-" + replicationControllerController
	odd := r.rand.IntN(managers)
	if seats[odd], err = r.replace(ctx, seats[odd], victim == 0, ours, without); err != nil {
		return err
	}
	if err := r.unshared(ctx, seats, seats[odd]); err != nil {
		return err
	}
	leader, _, err := r.leader(ctx, seats)
	if err != nil {
		return err
	}
	var args []string
	if leader == seats[odd] {
		args = append(args, without)
	}
	again, err := r.replace(ctx, leader, victim == 1, ours, args...)
	if err != nil {
		return err
	}
	for i := range seats {
		if seats[i] == leader {
			seats[i] = again
		}
	}
	if err := r.unshared(ctx, seats, seats[odd]); err != nil {
		return err
	}
	if _, err := r.replace(ctx, seats[odd], victim == 2, ours); err != nil {
		return err
	}
	return r.answered(ctx)
}

// unshared waits until the ring has given up the ReplicationControllers: the leader runs
// their controller itself, or is the odd one, which does not run it at all.
func (r *run) unshared(ctx context.Context, seats []*seat, odd *seat) error {
	err := r.await(ctx, func(ctx context.Context) (bool, error) {
		holder, err := r.holder(ctx)
		if err != nil || (ring.Leader{Holder: holder}).Runs(replicationControllerController) {
			return err == nil, err
		}
		leader, _, err := r.leader(ctx, seats)
		return leader == odd, err
	})
	if err != nil {
		return fmt.Errorf("waiting for the ring to give up the ReplicationControllers: %w", err)
	}
	return nil
}

// pauseLeader pauses the only manager of ours until a stock manager works in its place.
func pauseLeader(ctx context.Context, r *run) error {
	seats, err := r.begin(ctx, 1, ours)
	if err != nil {
		return err
	}
	_, paused, err := r.leader(ctx, seats)
	if err != nil {
		return err
	}
	before, err := r.holder(ctx)
	if err != nil {
		return err
	}
	if _, err := r.occupy(ctx, "seat 2", stock); err != nil {
		return err
	}
	r.say("pausing %s", paused.name)
	if err := r.cluster.Signal(paused.name, syscall.SIGSTOP); err != nil {
		return err
	}
	err = r.await(ctx, func(ctx context.Context) (bool, error) {
		now, err := r.holder(ctx)
		return now != "" && now != before, err
	})
	if err != nil {
		return fmt.Errorf("waiting for the stock manager to lead: %w", err)
	}
	if err := r.answered(ctx); err != nil {
		return err
	}
	r.say("the stock manager works; %s goes on", paused.name)
	if err := r.cluster.Signal(paused.name, syscall.SIGCONT); err != nil {
		return err
	}
	if err := r.awaitEnd(ctx, paused); err != nil {
		return err
	}
	if err := r.leavesNothing(ctx, paused); err != nil {
		return err
	}
	if err := r.ready(ctx, seats[0]); err != nil {
		return err
	}
	return r.answered(ctx)
}

// awaitEnd waits until a process has ended by itself.
func (r *run) awaitEnd(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, soon, errSoon)
	defer cancel()
	select {
	case <-r.endOf(p.name):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s to end: %w", p.name, context.Cause(ctx))
	}
}

// leavesNothing checks that the process, which has just ended, has left no record.
func (r *run) leavesNothing(ctx context.Context, p *process) error {
	left, err := r.records(ctx, p)
	for _, record := range left {
		r.note(other, "%s has ended and left its record %s", p.name, record.Name)
	}
	return err
}

// deleteLease deletes the leader's Lease until another process has it, which ends the one
// that led.
func deleteLease(ctx context.Context, r *run) error {
	seats, err := r.begin(ctx, managers, ours)
	if err != nil {
		return err
	}
	leader, process, err := r.leader(ctx, seats)
	if err != nil {
		return err
	}
	before, err := r.holder(ctx)
	if err != nil {
		return err
	}
	r.say("deleting the Lease of %s until another leads", process.name)
	err = r.await(ctx, func(ctx context.Context) (bool, error) {
		select {
		case <-r.endOf(process.name):
			return true, nil
		default:
		}
		now, err := r.holder(ctx)
		switch {
		case apierrors.IsNotFound(err):
			return false, nil
		case err != nil:
			return false, err
		case now != "" && now != before:
			return true, nil
		}
		err = r.client.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(ctx, "kube-controller-manager", metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return false, err
	})
	if err != nil {
		return fmt.Errorf("waiting for another leader: %w", err)
	}
	if err := r.awaitEnd(ctx, process); err != nil {
		return err
	}
	end := time.Now()
	if err := r.leavesNothing(ctx, process); err != nil {
		return err
	}
	if r.back, err = r.probes.after(ctx, end); err != nil {
		return err
	}
	r.say("every key is worked on again %v after the end of %s", r.back.Round(time.Millisecond), process.name)
	return r.ready(ctx, leader)
}

const (
	// mixing is how long a stock API server serves beside ours.
	mixing = 15 * time.Second
	// longestConnection is the longest time between two cuts of all connections.
	longestConnection = 4 * time.Second
)

// mixServers adds a stock API server behind the same address, cuts all connections from
// time to time, and removes it.
func mixServers(ctx context.Context, r *run) error {
	seats, err := r.begin(ctx, managers, ours)
	if err != nil {
		return err
	}
	r.say("adding a stock API server")
	added, err := r.addStockServer(ctx)
	if err != nil {
		return err
	}
	before := r.servers
	r.serve(append(before, added)...)
	over := time.After(mixing)
	for mixed := true; mixed; {
		select {
		case <-over:
			mixed = false
		case <-time.After(time.Duration(r.rand.Int64N(int64(longestConnection)))):
			r.lock.Lock()
			for _, p := range r.processes {
				p.proxy.Cut()
			}
			r.lock.Unlock()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	r.say("removing the stock API server")
	r.serve(before...)
	// It ends in good order, so its audit log has every write.
	if err := r.cluster.StopProcess(ctx, r.stockServer); err != nil {
		return err
	}
	for _, s := range seats {
		if err := r.ready(ctx, s); err != nil {
			return err
		}
	}
	return r.answered(ctx)
}

// addStockServer starts a stock API server beside the cluster's own, and returns its URL.
func (r *run) addStockServer(ctx context.Context) (url string, err error) {
	// The cluster starts each API server from here.
	link := filepath.Join(r.dir, "bin", "kube-apiserver")
	if err := errors.Join(os.Remove(link), os.Symlink(filepath.Join(r.stock, "kube-apiserver"), link)); err != nil {
		return "", err
	}
	if r.stockServer, err = r.cluster.AddAPIServer(ctx, audit.LogTo(r.auditLog("2"))); err != nil {
		return "", err
	}
	return r.cluster.Endpoint(r.stockServer)
}
