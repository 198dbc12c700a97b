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

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
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
	condition, err := conditionFrom(ctx)
	if err != nil {
		return kubernetes.PutResponse{}, err
	}
	if lease == nil && condition == nil {
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
	done, err := c.commit(ctx, lease, condition, key, expectedRevision, clientv3.OpPut(key, string(value), under))
	return kubernetes.PutResponse{Succeeded: done.succeeded, Revision: done.revision, KV: done.found}, err
}

func (c client) OptimisticDelete(ctx context.Context, key string, expectedRevision int64, opts kubernetes.DeleteOptions) (kubernetes.DeleteResponse, error) {
	lease := leaseFrom(ctx)
	condition, err := conditionFrom(ctx)
	if err != nil {
		return kubernetes.DeleteResponse{}, err
	}
	if lease == nil && condition == nil {
		return c.Interface.OptimisticDelete(ctx, key, expectedRevision, opts)
	}
	done, err := c.commit(ctx, lease, condition, key, expectedRevision, clientv3.OpDelete(key))
	return kubernetes.DeleteResponse{Succeeded: done.succeeded, Revision: done.revision, KV: done.found}, err
}

// outcome is that of a write. One that did not succeed has found the key at another revision
// than it expected; found is nil if there is no such key.
type outcome struct {
	succeeded bool
	revision  int64
	found     *mvccpb.KeyValue
}

// commit makes the write if the key has the expected revision and the condition, if there is
// one, holds at that moment. It fails if the condition does not: an outcome without success is
// a conflict to the store, which would just try again.
func (c client) commit(ctx context.Context, lease *Lease, condition *condition, key string, expectedRevision int64, write clientv3.Op) (outcome, error) {
	for {
		comparisons := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", expectedRevision)}
		otherwise := []clientv3.Op{clientv3.OpGet(key)}
		if condition != nil {
			comparisons = append(comparisons, clientv3.Compare(clientv3.ModRevision(condition.key), "=", condition.revision))
			otherwise = append(otherwise, clientv3.OpGet(condition.key, clientv3.WithKeysOnly()))
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
		if condition == nil || only(resp.Responses[1].GetResponseRange().Kvs).GetModRevision() == condition.revision {
			return done, nil
		}
		if err := condition.judgeAnew(ctx); err != nil {
			return outcome{}, err
		}
	}
}

func only(kvs []*mvccpb.KeyValue) *mvccpb.KeyValue {
	if len(kvs) == 0 {
		return nil
	}
	return kvs[0]
}
