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
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

const (
	// retryInterval takes the place of lookInterval until the history is known: nothing is read
	// meanwhile.
	retryInterval = 500 * time.Millisecond
	// lookTimeout bounds a look, which is three requests, one after the other, of an etcd that may
	// be slow.
	lookTimeout = time.Minute
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

	// known is closed once the history is known, or cannot be.
	known     chan struct{}
	closeOnce sync.Once

	lock sync.Mutex
	// last is the record of the history that has been read since the first look; nil before, and
	// where there is none.
	last *record
}

var (
	etcdsLock sync.Mutex
	etcds     = map[string]*etcd{}
)

func newEtcd(name, prefix string) *etcd {
	return &etcd{name: name, key: path.Join("/", prefix, "etcd-history"), known: make(chan struct{})}
}

// follow returns the etcd with these servers and prefix, whose history is looked at until the client
// of the first call is closed.
func follow(c *clientv3.Client, servers []string, prefix string) *etcd {
	h := fnv.New64a()
	for _, s := range append(slices.Clone(servers), prefix) {
		fmt.Fprintln(h, s)
	}
	name := fmt.Sprintf("%016x", h.Sum64())
	etcdsLock.Lock()
	defer etcdsLock.Unlock()
	if e, ok := etcds[name]; ok {
		return e
	}
	e := newEtcd(name, prefix)
	etcds[name] = e
	context.AfterFunc(c.Ctx(), func() {
		etcdsLock.Lock()
		defer etcdsLock.Unlock()
		if etcds[name] == e {
			delete(etcds, name)
		}
	})
	go e.run(c)
	return e
}

// wait returns once the history is known, or cannot be. It fails if ctx ends first.
func (e *etcd) wait(ctx context.Context) error {
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
	for ctx.Err() == nil {
		pause := lookInterval
		last, err := e.check(ctx, c)
		var diverged *divergedError
		var unstored *unstoredError
		switch {
		case ctx.Err() != nil:
			return
		case errors.As(err, &diverged):
			logger.Error(err, "This API server has to end: etcd was restored, and what it has read is of another history. Start it again")
			exit()
			return
		case cannotTell(err) && e.lastRecord() == nil:
			logger.Info("The history of the storage backend has no identity, as an etcd's has: clients are not told if it is restored to an earlier state. Restart them then", "err", err)
			return
		case errors.As(err, &unstored):
			logger.Error(err, "Could not store an identity of etcd's history, so clients are not told of it; will try again", "in", pause)
			release()
		case err != nil:
			if e.lastRecord() == nil {
				pause = retryInterval
			}
			logger.Error(err, "Could not look at the history of etcd; will try again", "in", pause)
		default:
			e.lock.Lock()
			e.last = last
			e.lock.Unlock()
			release()
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait.Jitter(pause, 0.1)):
		}
	}
}

// unstoredError says that the identity of a history could not be stored.
type unstoredError struct{ error }

// divergedError says that the history is another than that which this process has read.
type divergedError struct{ reason string }

// Error implements error.
func (e *divergedError) Error() string { return "etcd has another history than before: " + e.reason }

// check looks once, and stores a new identity if the history is another than that of the record, or
// has none. It returns the history's record, and a divergedError if it is another than that which this
// process has read.
func (e *etcd) check(ctx context.Context, c *clientv3.Client) (*record, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	for {
		l, err := look(ctx, c, e.key)
		if err != nil {
			return nil, err
		}
		current, reason := l.stored, ""
		if l.stored == nil {
			reason = "it has no identity"
		} else {
			reason = l.divergence(l.stored)
		}
		if reason != "" {
			current = e.renew(l)
			value, err := json.Marshal(current)
			if err != nil {
				return nil, err
			}
			stored, err := c.KV.Txn(ctx).
				If(clientv3.Compare(clientv3.ModRevision(e.key), "=", l.revision)).
				Then(clientv3.OpPut(e.key, string(value))).
				Commit()
			if err != nil {
				return nil, &unstoredError{err}
			}
			if !stored.Succeeded {
				// Another API server was faster.
				continue
			}
			klog.FromContext(ctx).Info("The history of etcd has a new identity", "identity", current.ID, "reason", reason, "servers", c.Endpoints())
		}
		last := e.lastRecord()
		if last == nil || last.ID == current.ID {
			return current, nil
		}
		if reason = l.divergence(last); reason == "" {
			reason = fmt.Sprintf("its identity is %s, and was %s", current.ID, last.ID)
		}
		return nil, &divergedError{reason}
	}
}

// renew returns the record that is to be stored. Where somebody has deleted that of the same history it
// has the same identity.
func (e *etcd) renew(l *looked) *record {
	if last := e.lastRecord(); last != nil && l.stored == nil && l.divergence(last) == "" {
		return last
	}
	return &record{ID: string(uuid.NewUUID()), Cluster: l.cluster, Lead: l.min}
}

func (e *etcd) lastRecord() *record {
	e.lock.Lock()
	defer e.lock.Unlock()
	return e.last
}

// cannotTell says whether an error shows that the backend has no history that can be told.
func cannotTell(err error) bool {
	if err == nil {
		return false
	}
	if errors.Is(err, errNoIndex) {
		return true
	}
	code := status.Code(err)
	if known := (rpctypes.EtcdError{}); errors.As(err, &known) {
		code = known.Code()
	}
	return code == codes.Unimplemented || code == codes.PermissionDenied
}

// Identities returns those of the histories of all etcds that this process reads, as far as they are
// known, by the names of these.
func Identities() map[string]string {
	etcdsLock.Lock()
	defer etcdsLock.Unlock()
	told := map[string]string{}
	for name, e := range etcds {
		if last := e.lastRecord(); last != nil {
			told[name] = last.ID
		}
	}
	return told
}
