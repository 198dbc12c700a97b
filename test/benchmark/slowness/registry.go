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
	"path"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	apps "k8s.io/api/apps/v1"
	coordination "k8s.io/api/coordination/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kubernetes/test/harness/ownership"
	"k8s.io/utils/ptr"
)

// The etcd prefixes of what is followed.
const (
	instancesPrefix = "/registry/controllerinstances/"
	leaseKey        = "/registry/leases/kube-system/kube-controller-manager"
	setsPrefix      = "/registry/replicasets/"
	podsPrefix      = "/registry/pods/"
)

// registry follows, in etcd, what tells which process may work. So it goes on while the API server
// is slow or away.
type registry struct {
	client *clientv3.Client

	lock sync.Mutex
	ledger
	failed error
	// moved is closed and replaced after each change.
	moved chan struct{}
}

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

func newLedger() ledger {
	return ledger{registrations: map[registrant]int{}, gone: map[string]time.Time{}, seen: map[string]sight{}, wanted: map[string]*sight{}}
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

// follow follows the etcd at that endpoint from its first revision until ctx ends.
func follow(ctx context.Context, endpoint string) (*registry, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	r := &registry{client: client, ledger: newLedger(), moved: make(chan struct{})}
	for _, prefix := range []string{instancesPrefix, leaseKey, setsPrefix} {
		go func() {
			for response := range client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(1), clientv3.WithPrevKV()) {
				r.take(response)
			}
			if ctx.Err() == nil {
				r.fail(errors.New("a watch of etcd has ended"))
			}
		}()
	}
	return r, nil
}

func (r *registry) fail(err error) {
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.failed == nil {
		r.failed = err
	}
}

func (r *registry) take(response clientv3.WatchResponse) {
	if err := response.Err(); err != nil {
		r.fail(err)
		return
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	for _, event := range response.Events {
		if err := r.apply(time.Now(), event); err != nil && r.failed == nil {
			r.failed = fmt.Errorf("revision %d of %s: %w", event.Kv.ModRevision, event.Kv.Key, err)
		}
	}
	close(r.moved)
	r.moved = make(chan struct{})
}

func (l *ledger) apply(at time.Time, event *clientv3.Event) error {
	key, value := string(event.Kv.Key), event.Kv.Value
	deleted := event.Type == clientv3.EventTypeDelete
	if deleted {
		if event.PrevKv == nil {
			return nil
		}
		value = event.PrevKv.Value
	}
	switch {
	case strings.HasPrefix(key, instancesPrefix):
		var instance shardingv1alpha1.ControllerInstance
		if err := decode(value, &instance); err != nil {
			return err
		}
		if deleted {
			l.gone[instance.Spec.HolderIdentity] = at
		} else if event.IsCreate() {
			l.registered(instance.Spec.HolderIdentity, instance.Spec.Ring)
		}
	case key == leaseKey && !deleted:
		var lease coordination.Lease
		if err := decode(value, &lease); err != nil {
			return err
		}
		l.leads(ptr.Deref(lease.Spec.HolderIdentity, ""))
	case strings.HasPrefix(key, setsPrefix) && !deleted:
		var set apps.ReplicaSet
		if err := decode(value, &set); err != nil {
			return err
		}
		l.setWritten(at, path.Join(set.Namespace, set.Name), set.Status.ObservedGeneration)
	}
	return nil
}

func decode(value []byte, into runtime.Object) error {
	_, _, err := scheme.Codecs.UniversalDeserializer().Decode(value, nil, into)
	return err
}

// see calls f with the ledger locked. f must not block.
func (r *registry) see(f func(*ledger)) {
	r.lock.Lock()
	defer r.lock.Unlock()
	f(&r.ledger)
}

// await waits until f returns true. It calls f after each change; f must not block.
func (r *registry) await(ctx context.Context, what string, f func(*ledger) bool) error {
	for {
		r.lock.Lock()
		ok, failed, moved := f(&r.ledger), r.failed, r.moved
		r.lock.Unlock()
		if failed != nil || ok {
			return failed
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		}
	}
}

// pods returns how many pods there are.
func (r *registry) pods(ctx context.Context) (int64, error) {
	response, err := r.client.Get(ctx, podsPrefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return response.Count, nil
}
