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

package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

const (
	// retryInterval takes the place of lookInterval until the history is known: nothing is read
	// meanwhile.
	retryInterval = 500 * time.Millisecond
	// checkTimeout bounds a few looks, at an etcd that may be slow.
	checkTimeout = 2 * time.Minute
)

// Tests replace these.
var (
	// lookInterval is how long an API server waits before it looks again. A look writes nothing.
	lookInterval = 10 * time.Second
	// exit ends the process.
	exit = func() { klog.FlushAndExit(klog.ExitFlushTimeout, 1) }
)

// etcd is one that this process reads, under one prefix.
type etcd struct {
	// name tells it from the others in a header.
	name string
	// key is where its record is stored.
	key string
	// client is that of who has named it first, and started says that it is looked at.
	client  *clientv3.Client
	started atomic.Bool

	// known is closed once the history is known, or cannot be.
	known     chan struct{}
	closeOnce sync.Once

	lock sync.Mutex
	// last is the record of the history that has been read since the first look; empty before, and
	// where there is none. revision is the highest that a look has read.
	last     record
	revision int64
}

var (
	etcdsLock sync.Mutex
	etcds     = map[string]*etcd{}
	// looks says that etcds are looked at.
	looks bool
)

func newEtcd(name, prefix string, c *clientv3.Client) *etcd {
	return &etcd{name: name, client: c, key: path.Join("/", prefix, "etcd-history"), known: make(chan struct{})}
}

// start has all etcds looked at, also those that are named later. An API server without rings has
// nobody who asks, and writes nothing into its etcd.
func start() {
	etcdsLock.Lock()
	defer etcdsLock.Unlock()
	looks = true
	for _, e := range etcds {
		e.start()
	}
}

// start looks at the history until the client is closed.
func (e *etcd) start() {
	if !e.started.Swap(true) {
		go e.run(e.client)
	}
}

// follow returns the etcd with these servers and prefix, whose history is looked at after start,
// until the client of the first call is closed.
func follow(c *clientv3.Client, servers []string, prefix string) *etcd {
	h := fnv.New64a()
	for _, s := range append(slices.Sorted(slices.Values(servers)), prefix) {
		fmt.Fprintln(h, s)
	}
	name := fmt.Sprintf("%016x", h.Sum64())
	etcdsLock.Lock()
	defer etcdsLock.Unlock()
	if e, ok := etcds[name]; ok {
		return e
	}
	e := newEtcd(name, prefix, c)
	etcds[name] = e
	context.AfterFunc(c.Ctx(), func() {
		etcdsLock.Lock()
		defer etcdsLock.Unlock()
		if etcds[name] == e {
			delete(etcds, name)
		}
	})
	if looks {
		e.start()
	}
	return e
}

// wait returns once the history is known, or cannot be, or nobody looks. It fails if ctx ends
// first.
func (e *etcd) wait(ctx context.Context) error {
	if !e.started.Load() {
		return nil
	}
	select {
	case <-e.known:
		return nil
	default:
	}
	select {
	case <-e.known:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting until the history of etcd is known: %w", context.Cause(ctx))
	}
}

// run looks at the history until the client is closed.
func (e *etcd) run(c *clientv3.Client) {
	release := func() { e.closeOnce.Do(func() { close(e.known) }) }
	defer release()
	ctx := c.Ctx()
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "servers", c.Endpoints())
	l := newLooker(c, e.key)
	for ctx.Err() == nil {
		pause := lookInterval
		last, err := e.check(ctx, l)
		var diverged *divergedError
		switch known := e.lastRecord().ID != ""; {
		case ctx.Err() != nil:
			return
		case errors.As(err, &diverged):
			logger.Error(err, "This API server has to end: etcd was restored, and what it has read is of another history. Start it again")
			exit()
			return
		case err != nil && isRefused(err) && !known:
			logger.Info("The history of the storage backend has no identity, as an etcd's has: clients are not told if it is restored to an earlier state. Restart them then", "err", err)
			return
		case err != nil && mayRead(err):
			logger.Error(err, "Could not tell the history of etcd by an identity, so clients are not told of it; will try again", "in", pause)
			release()
		case err != nil:
			if !known {
				pause = retryInterval
			}
			logger.Error(err, "Could not look at the history of etcd; will try again", "in", pause)
		default:
			e.setLast(last)
			release()
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait.Jitter(pause, 0.1)):
		}
	}
}

// mayRead says whether what is wrong can last, so that nobody must wait until it is over: etcd has
// no space for another key, or there is a balancer before it.
func mayRead(err error) bool {
	return errors.Is(err, errNoMember) || errors.Is(err, rpctypes.ErrNoSpace)
}

// divergedError says that the history is another than that which this process has read.
type divergedError struct{ reason string }

// Error implements error.
func (e *divergedError) Error() string { return "etcd has another history than before: " + e.reason }

// check looks once, and stores a new identity if the history is another than that of the record, or
// has none. It returns the history's record, and a divergedError if it is another than that which
// this process has read.
func (e *etcd) check(ctx context.Context, l *looker) (record, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	for {
		seen, err := l.look(ctx)
		if err != nil {
			return record{}, err
		}
		if reason := e.divergence(seen); reason != "" {
			return record{}, &divergedError{reason}
		}
		if seen.divergence(seen.stored) == "" {
			return seen.stored, nil
		}
		// What is rare is looked at twice. The second revision is not below that at which the index
		// was that which the first look saw.
		again, err := l.look(ctx)
		if err != nil {
			return record{}, err
		}
		reason := again.divergence(again.stored)
		if reason == "" || e.divergence(again) != "" {
			continue
		}
		next := e.lastRecord()
		if next.ID == "" {
			next = record{ID: string(uuid.NewUUID()), Cluster: again.cluster, Lead: seen.applied - again.revision}
		}
		value, err := json.Marshal(next)
		if err != nil {
			return record{}, err
		}
		stored, err := l.KV.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(e.key), "=", again.modified)).
			Then(clientv3.OpPut(e.key, string(value))).
			Commit()
		if err != nil {
			return record{}, err
		}
		if stored.Succeeded {
			klog.FromContext(ctx).Info("The history of etcd has a new identity", "identity", next.ID, "reason", reason, "servers", l.Endpoints())
			return next, nil
		}
		// Another API server was faster.
	}
}

// divergence returns why what a look has seen is of another history than that which this process
// has read; "" if it may be the same, or nothing was read yet.
func (e *etcd) divergence(seen *looked) string {
	e.lock.Lock()
	defer e.lock.Unlock()
	if e.last.ID == "" {
		return ""
	}
	if reason := seen.divergence(e.last); reason != "" {
		return reason
	}
	if seen.revision < e.revision {
		return fmt.Sprintf("its revision is %d, and was %d", seen.revision, e.revision)
	}
	if stored := seen.stored; stored.ID != "" && stored.ID != e.last.ID {
		return fmt.Sprintf("its identity is %s, and was %s", stored.ID, e.last.ID)
	}
	e.revision = seen.revision
	return ""
}

func (e *etcd) lastRecord() record {
	e.lock.Lock()
	defer e.lock.Unlock()
	return e.last
}

func (e *etcd) setLast(last record) {
	e.lock.Lock()
	defer e.lock.Unlock()
	e.last = last
}

// Identities returns those of the histories of all etcds that this process reads, as far as they
// are known, by the names of these.
func Identities() map[string]string {
	etcdsLock.Lock()
	defer etcdsLock.Unlock()
	told := map[string]string{}
	for name, e := range etcds {
		if last := e.lastRecord(); last.ID != "" {
			told[name] = last.ID
		}
	}
	return told
}
