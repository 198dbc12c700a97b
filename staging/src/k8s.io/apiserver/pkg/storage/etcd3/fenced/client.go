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

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// WrapClient returns what stands in for c.Kubernetes: it does the same, and adds to a write
// what the context asks for, a lease or a condition.
func WrapClient(c *kubernetes.Client) kubernetes.Interface {
	if !utilfeature.DefaultFeatureGate.Enabled(features.ControllerRing) {
		return c.Kubernetes
	}
	return client{Interface: c.Kubernetes, client: c}
}

type client struct {
	kubernetes.Interface
	// client has the KV of the moment: it is replaced after it was made, to track latency.
	client *kubernetes.Client
}

func (c client) Get(ctx context.Context, key string, opts kubernetes.GetOptions) (kubernetes.GetResponse, error) {
	resp, err := c.Interface.Get(ctx, key, opts)
	if lease := leaseFrom(ctx); lease != nil && err == nil {
		lease.found(resp.KV, c.client.Lease)
	}
	return resp, err
}

func (c client) OptimisticPut(ctx context.Context, key string, value []byte, expectedRevision int64, opts kubernetes.PutOptions) (kubernetes.PutResponse, error) {
	lease := leaseFrom(ctx)
	conditions, err := conditionsFrom(ctx)
	if err != nil {
		return kubernetes.PutResponse{}, err
	}
	if lease == nil && conditions == nil {
		return c.Interface.OptimisticPut(ctx, key, value, expectedRevision, opts)
	}
	under := clientv3.WithLease(opts.LeaseID)
	switch {
	case lease == nil:
	case expectedRevision == 0:
		if err := lease.grant(ctx, c.client.Lease); err != nil {
			return kubernetes.PutResponse{}, err
		}
		under = clientv3.WithLease(lease.id)
	default:
		// A put without a lease would take the key off the one it has.
		under = clientv3.WithIgnoreLease()
	}
	done, err := c.commit(ctx, lease, conditions, key, expectedRevision, clientv3.OpPut(key, string(value), under))
	return kubernetes.PutResponse{Succeeded: done.succeeded, Revision: done.revision, KV: done.found}, err
}

func (c client) OptimisticDelete(ctx context.Context, key string, expectedRevision int64, opts kubernetes.DeleteOptions) (kubernetes.DeleteResponse, error) {
	lease := leaseFrom(ctx)
	conditions, err := conditionsFrom(ctx)
	if err != nil {
		return kubernetes.DeleteResponse{}, err
	}
	if lease == nil && conditions == nil {
		return c.Interface.OptimisticDelete(ctx, key, expectedRevision, opts)
	}
	done, err := c.commit(ctx, lease, conditions, key, expectedRevision, clientv3.OpDelete(key))
	return kubernetes.DeleteResponse{Succeeded: done.succeeded, Revision: done.revision, KV: done.found}, err
}

// outcome is that of a write. One that did not succeed has found the key at another revision
// than it expected; found is nil if there is no such key.
type outcome struct {
	succeeded bool
	revision  int64
	found     *mvccpb.KeyValue
}

// commit makes the write if the key has the expected revision and the conditions hold at that
// moment. It fails if a condition does not: an outcome without success is a conflict to the
// store, which would just try again. Where the key has another revision it is such a conflict,
// whatever the conditions: they are those of a write that will be judged again.
func (c client) commit(ctx context.Context, lease *Lease, conditions []*condition, key string, expectedRevision int64, write clientv3.Op) (outcome, error) {
	var before stored
	for {
		comparisons := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", expectedRevision)}
		otherwise := []clientv3.Op{clientv3.OpGet(key)}
		for _, condition := range conditions {
			for _, comparison := range condition.comparisons {
				comparisons = append(comparisons, comparison.cmp())
				otherwise = append(otherwise, comparison.find())
			}
		}
		resp, err := c.client.KV.Txn(ctx).If(comparisons...).Then(write).Else(otherwise...).Commit()
		if err != nil {
			return outcome{}, err
		}
		done := outcome{succeeded: resp.Succeeded, revision: resp.Header.Revision}
		if done.succeeded {
			return done, nil
		}
		done.found = only(resp.Responses[0].GetResponseRange().Kvs)
		if lease != nil {
			lease.found(done.found, c.client.Lease)
		}
		condition, found := firstFailed(conditions, resp.Responses[1:])
		if condition == nil || done.found.GetModRevision() != expectedRevision {
			return done, nil
		}
		if found == before {
			// Trying again would go on for ever.
			return outcome{}, apierrors.NewInternalError(fmt.Errorf("the etcd of %s has %s at revision %d, the registry does not", key, found.key, found.revision))
		}
		before = found
		judgedAnew.WithContext(ctx).Inc()
		if err := condition.judge(ctx); err != nil {
			return outcome{}, err
		}
	}
}

// firstFailed returns the first condition that does not hold for what its comparisons have
// found, and what that was; nil if all hold.
func firstFailed(conditions []*condition, responses []*etcdserverpb.ResponseOp) (*condition, stored) {
	for _, condition := range conditions {
		for _, comparison := range condition.comparisons {
			found, failed := comparison.failed(only(responses[0].GetResponseRange().Kvs))
			if failed {
				return condition, found
			}
			responses = responses[1:]
		}
	}
	return nil, stored{}
}

func only(kvs []*mvccpb.KeyValue) *mvccpb.KeyValue {
	if len(kvs) == 0 {
		return nil
	}
	return kvs[0]
}
