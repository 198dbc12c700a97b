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
	"path"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	apps "k8s.io/api/apps/v1"
	coordination "k8s.io/api/coordination/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/kubernetes/test/harness/history"
	"k8s.io/kubernetes/test/harness/ownership"
	"k8s.io/utils/ptr"
)

// leaseKey is the key in etcd of the Lease of the leader.
const leaseKey = "/registry/leases/kube-system/kube-controller-manager"

// ledger is what the changes in etcd tell.
type ledger struct {
	// registrations counts those of each process on each ring.
	registrations map[registrant]int
	// again counts registrations of a process that was registered on that ring before: it has lost
	// its record.
	again int
	// gone has when the last record of a process went.
	gone map[string]time.Time
	// leader is who holds the Lease, and leaders counts how often that has changed.
	leader  string
	leaders int
	// seen has up to which generation the controllers of ReplicaSets have seen their changes, and
	// wanted when they saw the last change that somebody waits for.
	seen   map[string]sight
	wanted map[string]*sight
}

// sight is that a controller has seen a generation.
type sight struct {
	generation int64
	// at is when it saw that or a later one; zero: it has not.
	at time.Time
}

// registrant is a process on a ring.
type registrant struct{ holder, ring string }

func newLedger() *ledger {
	return &ledger{registrations: map[registrant]int{}, gone: map[string]time.Time{}, seen: map[string]sight{}, wanted: map[string]*sight{}}
}

func (l *ledger) registered(holder, ring string) {
	r := registrant{holder, ring}
	if l.registrations[r] > 0 {
		l.again++
	}
	l.registrations[r]++
}

func (l *ledger) leads(holder string) {
	if holder != l.leader && holder != "" {
		l.leader = holder
		l.leaders++
	}
}

// want begins to wait until the controller of a ReplicaSet sees that generation.
func (l *ledger) want(name string, generation int64) {
	w := &sight{generation: generation}
	if seen := l.seen[name]; seen.generation >= generation {
		w.at = seen.at
	}
	l.wanted[name] = w
}

// setWritten says up to which generation the controller of a ReplicaSet has seen its changes.
func (l *ledger) setWritten(at time.Time, name string, observed int64) {
	if l.seen[name].generation < observed {
		l.seen[name] = sight{observed, at}
	}
	if w := l.wanted[name]; w != nil && w.at.IsZero() && observed >= w.generation {
		w.at = at
	}
}

// last returns when the last of what is waited for was seen, and whether all of it was.
func (l *ledger) last() (last time.Time, all bool) {
	for _, w := range l.wanted {
		if w.at.IsZero() {
			return time.Time{}, false
		}
		if w.at.After(last) {
			last = w.at
		}
	}
	return last, true
}

// goneOf returns when the last record of the process with that pid went.
func (l *ledger) goneOf(pid int) (at time.Time, ok bool) {
	for holder, at := range l.gone {
		if of, _ := ownership.PID(holder); of == pid {
			return at, true
		}
	}
	return time.Time{}, false
}

// follow follows, in the etcd at that endpoint, what tells which process may work, until ctx ends.
// So it goes on while the API server is slow or away.
func follow(ctx context.Context, endpoint string) (*history.History[*ledger], error) {
	prefixes := []string{"/registry/controllerinstances/", leaseKey, "/registry/replicasets/"}
	return history.Follow(ctx, endpoint, newLedger(), (*ledger).apply, prefixes, clientv3.WithPrevKV())
}

func (l *ledger) apply(event *clientv3.Event) error {
	at, deleted := time.Now(), event.Type == clientv3.EventTypeDelete
	object, err := history.Object(event)
	switch o := object.(type) {
	case *shardingv1alpha1.ControllerInstance:
		if deleted {
			l.gone[o.Spec.HolderIdentity] = at
		} else if event.IsCreate() {
			l.registered(o.Spec.HolderIdentity, o.Spec.Ring)
		}
	case *coordination.Lease:
		if !deleted && string(event.Kv.Key) == leaseKey {
			l.leads(ptr.Deref(o.Spec.HolderIdentity, ""))
		}
	case *apps.ReplicaSet:
		if !deleted {
			l.setWritten(at, path.Join(o.Namespace, o.Name), o.Status.ObservedGeneration)
		}
	}
	return err
}

// pods returns how many pods there are.
func (s *side) pods(ctx context.Context) (int64, error) {
	response, err := s.registry.Client.Get(ctx, "/registry/pods/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return response.Count, nil
}
