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
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/ring"
)

// # The first key of a ring
//
// An instance takes a key for itself where nobody on its ring owns one, and then owns the whole
// line, whichever key that is. Of the instances of a ring only the oldest does so: each reads the
// registry as of its own creation, so the others wait until the oldest owns something or is gone.
// That alone keeps two of them apart. The fence does not take their word for it: a second one would
// cut the range of the first in two, as a grant that nobody gives.
//
//	list, as of revision R:   nobody owns a key
//	transaction:              no record has changed since R
//
// So none owns a key in the transaction either: a record that is there was there at R, as it is
// now. Deletions do not matter. News of another record lets the transaction fail, too. Then only
// what has changed is read before it is tried again, and not the whole registry: so the time in
// which others have to be silent is short, even while a whole ring registers.

// takes says whether the change gives the instance's own record its first key.
func (c *recordChange) takes(record *shardingv1alpha1.ControllerInstance) bool {
	return c.before.Spec.HashKey == nil && record.Spec.HashKey != nil
}

// ifNobodyOwns allows the change if nobody on the ring owns a key when it is stored.
func (c *recordChange) ifNobodyOwns(ctx context.Context, record *shardingv1alpha1.ControllerInstance) error {
	r, name := c.registry, record.Name
	unread := func(err error) error {
		return apierrors.NewInternalError(fmt.Errorf("the registry cannot be read, so ControllerInstance %s is not given its first hash key: %w", name, err))
	}
	all, err := r.list(ctx)
	if err != nil {
		return unread(err)
	}
	owners := all.view(c.identity.Ring).Ring()
	if len(owners) > 0 {
		return c.refuse(ctx, name, owned(name, owners[0]))
	}
	prefix := r.etcdPrefixOf(c.identity.Ring)
	c.condition.comparisons = []comparison{{key: prefix, prefix: true, newest: true, revision: all.revision}}
	c.condition.judge = func(ctx context.Context) error {
		changed, revision, err := r.changedSince(ctx, prefix, c.condition.comparisons[0].revision)
		if err != nil {
			return unread(err)
		}
		for _, i := range changed {
			if i.Name != name && i.Ring == c.identity.Ring && i.Key != nil {
				return c.refuse(ctx, name, owned(name, &i.Record))
			}
		}
		c.condition.comparisons[0].revision = revision
		return nil
	}
	return nil
}

func owned(name string, owner *ring.Record) *refusal {
	return &refusal{reasonNotGiven, fmt.Sprintf("ControllerInstance %s owns hash keys of ring %q, so ControllerInstance %s cannot take one for itself; ask an owner for a part of its range, with spec.donor", owner.Name, owner.Ring, name)}
}

// etcdPrefixOf returns a prefix of the keys in etcd of all records of the ring. Only for the rings
// of kube-controller-manager are the keys of others left out: their names say the ring.
func (r *registry) etcdPrefixOf(name string) string {
	if slices.Contains(ring.ManagerRings, name) {
		return r.etcdKey(name + "-")
	}
	return r.etcdPrefix + "/"
}

// changedSince reads, with quorum, the records with that prefix in etcd that have changed since
// that revision and are there still. No other has changed up to the revision that it returns.
func (r *registry) changedSince(ctx context.Context, prefix string, revision int64) ([]*instance, int64, error) {
	quorumReads.WithContext(ctx).Inc()
	changed, err := r.client.KV.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithMinModRev(revision+1))
	if err != nil {
		return nil, 0, err
	}
	var instances []*instance
	for _, kv := range changed.Kvs {
		i, err := r.get(ctx, r.nameOf(kv.Key))
		if err != nil {
			return nil, 0, err
		}
		if i != nil {
			instances = append(instances, i)
		}
	}
	return instances, changed.Header.Revision, nil
}
