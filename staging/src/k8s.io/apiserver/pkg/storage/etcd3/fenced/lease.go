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

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ErrLeaseNotFound says that the key has no etcd lease any more: it is about to disappear, or
// has disappeared.
var ErrLeaseNotFound = errors.New("the etcd lease is not found")

// Lease asks that an object be stored under an etcd lease of its own for all its life, and
// notes which that is. It serves one request, and is not safe for concurrent use.
type Lease struct {
	// TTL is how long the object lives after it was created or last renewed, in seconds. It
	// counts in a creation only.
	TTL int64

	id     clientv3.LeaseID
	lessor clientv3.Lease
}

type leaseKey struct{}

// WithLease returns ctx with lease. A creation under it grants an etcd lease and stores the
// object under that; any other write leaves the object on the lease that it has.
func WithLease(ctx context.Context, lease *Lease) context.Context {
	return context.WithValue(ctx, leaseKey{}, lease)
}

func leaseFrom(ctx context.Context) *Lease {
	lease, _ := ctx.Value(leaseKey{}).(*Lease)
	return lease
}

// KeepAlive renews the etcd lease of the object that the request has read; etcd stores
// nothing for that. It fails with ErrLeaseNotFound if the object has none any more, and with
// another error if etcd does not answer while ctx lasts: who renews knows how long an answer is of
// use.
func (l *Lease) KeepAlive(ctx context.Context) error {
	if l.id == clientv3.NoLease {
		return ErrLeaseNotFound
	}
	if _, err := l.lessor.KeepAliveOnce(ctx, l.id); errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return ErrLeaseNotFound
	} else if err != nil {
		return fmt.Errorf("the etcd lease %x could not be renewed: %w", int64(l.id), err)
	}
	return nil
}

// grant has etcd grant the lease of an object that is to be created. If the object is not
// stored then, the lease is left to expire: a creation whose answer was lost may have put the
// object under it, and revoking would delete it.
func (l *Lease) grant(ctx context.Context, lessor clientv3.Lease) error {
	granted, err := lessor.Grant(ctx, l.TTL)
	if err != nil {
		return fmt.Errorf("no etcd lease of %d seconds was granted: %w", l.TTL, err)
	}
	l.id, l.lessor = granted.ID, lessor
	return nil
}

// found notes the lease of the key that was read; nil: there is no such key.
func (l *Lease) found(kv *mvccpb.KeyValue, lessor clientv3.Lease) {
	l.id, l.lessor = clientv3.NoLease, lessor
	if kv != nil {
		l.id = clientv3.LeaseID(kv.Lease)
	}
}
