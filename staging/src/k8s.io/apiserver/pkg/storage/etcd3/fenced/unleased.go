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

package fenced

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// # Records without a lease
//
// A record is created and put under its lease by one transaction, and no write takes it off. But
// who copies keys from one etcd to another, as a mirror or a backup by key does, copies no leases.
// Such a record would never end: its instance cannot renew it and registers anew, while the record
// owns its range for ever. So each API server looks for them, and removes them.
//
// Only a transaction says for certain which keys have a lease: a range of keys alone does not tell
// (etcd answers it from its index, as if none had one).

const (
	// lookInterval is how long an API server waits before it looks again, jittered by lookJitter.
	// Each look is one request that stores nothing, and has a short answer unless there is a record
	// without a lease.
	lookInterval = time.Minute
	lookJitter   = 0.2
	// lookTimeout bounds a look.
	lookTimeout = 10 * time.Second
)

// unleased is a record without a lease that an API server has seen.
type unleased struct {
	// created tells it from another of its name: the revision of etcd that created its key.
	created int64
	// until is when it has been seen for as long as it would have lived under a lease. Its
	// instance has not renewed it since, so by then it has stopped, as where a lease ends.
	until time.Time
}

// endUnleased looks for records without a lease until ctx ends, and removes each when it has been
// seen for as long as its lease would have lasted.
func (r *registry) endUnleased(ctx context.Context) {
	var can abilities
	if !eventually(ctx, func() (err error) { can, err = r.backend.abilities(ctx, r.client); return err }) {
		return
	}
	if !can.transactions || can.keepAlive != nil {
		// No record lives longer than one lease there, and none can be removed for certain.
		return
	}
	seen := map[string]unleased{}
	for ctx.Err() == nil {
		now, next := time.Now(), wait.Jitter(lookInterval, lookJitter)
		err := r.lookForUnleased(ctx, seen, now)
		for _, record := range seen {
			next = min(next, max(record.until.Sub(now), time.Second))
		}
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Could not look for ControllerInstances without an etcd lease, or remove them; will try again", "in", next)
		}
		select {
		case <-ctx.Done():
		case <-time.After(next):
		}
	}
}

// lookForUnleased brings seen up to date, which has records by name, and removes those whose time
// has come.
func (r *registry) lookForUnleased(ctx context.Context, seen map[string]unleased, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	prefix := r.etcdPrefix + "/"
	// Where there is no key the comparison fails, too.
	resp, err := r.client.KV.Txn(ctx).
		If(clientv3.Compare(clientv3.LeaseValue(prefix), "!=", clientv3.NoLease).WithPrefix()).
		Else(clientv3.OpGet(prefix, clientv3.WithPrefix())).
		Commit()
	if err != nil {
		return err
	}
	var kvs []*mvccpb.KeyValue
	if !resp.Succeeded {
		kvs = resp.Responses[0].GetResponseRange().Kvs
	}
	there := map[string]unleased{}
	var errs []error
	for _, kv := range kvs {
		if clientv3.LeaseID(kv.Lease) != clientv3.NoLease {
			continue
		}
		name := r.nameOf(kv.Key)
		record, known := seen[name]
		var err error
		switch {
		case !known || record.created != kv.CreateRevision:
			if record, err = r.seeUnleased(ctx, name, kv.CreateRevision, now); err == nil {
				there[name] = record
			}
		default:
			there[name] = record
			if !now.Before(record.until) {
				err = r.removeUnleased(ctx, name, kv.ModRevision)
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	clear(seen)
	maps.Copy(seen, there)
	return errors.Join(errs...)
}

// seeUnleased notes a record without a lease, and how long it would have lived under one. One that
// has gone meanwhile has no time left.
func (r *registry) seeUnleased(ctx context.Context, name string, created int64, now time.Time) (unleased, error) {
	record, err := r.record(ctx, name)
	if record == nil || err != nil {
		return unleased{created: created, until: now}, err
	}
	lease := time.Duration(record.Spec.LeaseDurationSeconds) * time.Second
	klog.FromContext(ctx).Info("A ControllerInstance has no etcd lease, so it would never end: its key was written by somebody else than an API server, such as a mirror of etcd or a restore by key. It will be removed",
		"record", name, "ring", record.Spec.Ring, "holder", record.Spec.HolderIdentity, "uid", record.UID, "in", lease)
	return unleased{created: created, until: now.Add(lease)}, nil
}

// removeUnleased removes a record without a lease if its key has that mod revision still, and no
// lease. All who watch the registry see that.
func (r *registry) removeUnleased(ctx context.Context, name string, revision int64) error {
	record, err := r.record(ctx, name)
	if record == nil || err != nil {
		return err
	}
	key := r.etcdKey(name)
	done, err := r.client.KV.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", revision), clientv3.Compare(clientv3.LeaseValue(key), "=", clientv3.NoLease)).
		Then(clientv3.OpDelete(key)).
		Commit()
	if err != nil || !done.Succeeded {
		return err
	}
	unleasedRemoved.WithContext(ctx).Inc()
	klog.FromContext(ctx).Info("Removed a ControllerInstance that had no etcd lease. Its instance registers anew, and its range is another's now",
		"record", name, "ring", record.Spec.Ring, "holder", record.Spec.HolderIdentity, "uid", record.UID)
	return nil
}
