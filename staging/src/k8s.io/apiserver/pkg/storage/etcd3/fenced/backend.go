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
	"path"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
)

// probeTimeout bounds a probe, in whole seconds.
const probeTimeout = 10 * time.Second

// backend is an etcd, or what takes its place, and one way to connect to it. What it can do is
// found out once.
type backend struct {
	// key begins those that only probes use.
	key  string
	lock sync.Mutex
	// found and apart are nil until they are known. apart says that this is not the etcd of
	// the registry.
	found atomic.Pointer[abilities]
	apart atomic.Pointer[bool]
}

// abilities are what was found out about a backend.
type abilities struct {
	// transactions says that a transaction can compare two keys, and all with a prefix.
	transactions bool
	// keepAlive says why leases cannot be renewed; nil if they can.
	keepAlive error
}

func newBackend(prefix string) *backend { return &backend{key: path.Join("/", prefix, "fence-probe")} }

// once returns what p holds; if that is nothing yet, what find finds.
func once[T any](b *backend, p *atomic.Pointer[T], find func() (T, error)) (T, error) {
	if found := p.Load(); found != nil {
		return *found, nil
	}
	b.lock.Lock()
	defer b.lock.Unlock()
	if found := p.Load(); found != nil {
		return *found, nil
	}
	found, err := find()
	if err != nil {
		return found, fmt.Errorf("the storage backend does not say what it can do: %w", err)
	}
	p.Store(&found)
	return found, nil
}

// abilities returns what the backend of the client can do.
func (b *backend) abilities(ctx context.Context, c *kubernetes.Client) (abilities, error) {
	return once(b, &b.found, func() (abilities, error) {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		return probe(ctx, c, b.key)
	})
}

// apart says whether no transaction of this storage can compare a record of the registry.
func (s *store) apart(ctx context.Context, r *registry) (bool, error) {
	can, err := s.backend.abilities(ctx, s.client)
	if err != nil || !can.transactions {
		return true, err
	}
	if s.backend == r.backend {
		return false, nil
	}
	return once(s.backend, &s.backend.apart, func() (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		return elsewhere(ctx, s.client, r.client, r.backend.key)
	})
}

// probe makes a transaction as commit does, which must not succeed, and renews a lease that
// does not exist.
func probe(ctx context.Context, c *kubernetes.Client, key string) (can abilities, err error) {
	revision := clientv3.ModRevision(key)
	resp, err := c.KV.Txn(ctx).
		If(clientv3.Compare(revision, "=", 0), clientv3.Compare(revision, "=", 1).WithPrefix()).
		Then(clientv3.OpDelete(key)).
		Else(clientv3.OpGet(key), clientv3.OpGet(key, clientv3.WithKeysOnly(), clientv3.WithPrefix(), clientv3.WithLimit(1))).
		Commit()
	if silent(err) {
		return can, err
	}
	can.transactions = err == nil && !resp.Succeeded && len(resp.Responses) == 2
	const nobodys = 1
	if _, err := c.Lease.KeepAliveOnce(ctx, nobodys); silent(err) {
		return can, err
	} else if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		can.keepAlive = err
	}
	return can, nil
}

// elsewhere says whether the two clients have different etcds: what one writes the other does
// not read. The IDs in the answers do not tell: two etcds that were set up alike have the same.
func elsewhere(ctx context.Context, reader, writer *kubernetes.Client, key string) (bool, error) {
	lease, err := writer.Grant(ctx, int64(probeTimeout/time.Second))
	if err != nil {
		return false, err
	}
	key = path.Join(key, string(uuid.NewUUID()))
	if _, err := writer.KV.Put(ctx, key, "", clientv3.WithLease(lease.ID)); err != nil {
		return false, err
	}
	read, err := reader.KV.Get(ctx, key)
	if err != nil {
		return false, err
	}
	// That it has expired would look the same.
	_, err = writer.Revoke(ctx, lease.ID)
	return len(read.Kvs) == 0, err
}

// silent says whether the error tells nothing of what the backend can do: it has not answered,
// or it is an etcd that could not do it at that moment.
func silent(err error) bool {
	if err == nil {
		return false
	}
	if known := (rpctypes.EtcdError{}); errors.As(err, &known) {
		return known.Code() != codes.NotFound && known.Code() != codes.InvalidArgument
	}
	switch status.Code(err) {
	case codes.Unimplemented, codes.InvalidArgument, codes.NotFound:
		return false
	case codes.Unknown:
		return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	}
	return true
}

// leaderApart says what it means for the leader's Lease.
const leaderApart = "Before a kube-controller-manager without rings gets the leader's Lease, the registry is read. If the write is held up after that, it may lead beside others with rings"

// announce logs what the registry's backend cannot do, once that answers.
func (r *registry) announce(ctx context.Context) {
	var can abilities
	if !eventually(ctx, func() (err error) { can, err = r.backend.abilities(ctx, r.client); return err }) {
		return
	}
	logger := klog.FromContext(ctx)
	if !can.transactions {
		logger.Info("The storage backend does not compare two keys, or all with a prefix, in a transaction, as etcd does. Before a write of a controller instance is stored, its record is read. A write that is held up between the two is stored though its instance has lost the object. " + leaderApart)
	}
	if can.keepAlive != nil {
		logger.Info("The storage backend does not renew leases, as etcd does. No ControllerInstance can live longer than one lease, so controllers cannot work on rings", "err", can.keepAlive)
	}
}

// announce logs that a write to this storage is not compared with the registry in the
// transaction, if that is so, once both backends answer.
func (s *store) announce(ctx context.Context, r *registry) {
	var apart bool
	if eventually(ctx, func() (err error) { apart, err = s.apart(ctx, r); return err }) && apart {
		if s.resource == leases {
			klog.FromContext(ctx).Info("Leases do not lie in the etcd of the registry of controller instances. "+leaderApart, "servers", s.servers)
		}
		klog.FromContext(ctx).Info("This resource does not lie in the etcd of the registry of controller instances. Before a write of an instance is stored, its record is read. A write that is held up between the two is stored though its instance has lost the object",
			"resource", s.resource, "servers", s.servers)
	}
}

// eventually calls f until it does not fail. It returns false if ctx ends first.
func eventually(ctx context.Context, f func() error) bool {
	return wait.PollUntilContextCancel(ctx, time.Second, true, func(context.Context) (bool, error) { return f() == nil, nil }) == nil
}
