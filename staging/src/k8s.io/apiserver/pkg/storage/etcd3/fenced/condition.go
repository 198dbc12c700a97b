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
)

// comparison is one that a transaction makes: the key in etcd has that mod revision. With
// prefix it speaks of all keys that begin so, and the revision is 0: there is none. With newest,
// too, none of those that there are has a mod revision above that.
type comparison struct {
	key            string
	prefix, newest bool
	revision       int64
}

func (c comparison) cmp() clientv3.Cmp {
	cmp := clientv3.Compare(clientv3.ModRevision(c.key), "=", c.revision)
	if c.newest {
		cmp = clientv3.Compare(clientv3.ModRevision(c.key), "<", c.revision+1)
	}
	if c.prefix {
		cmp = cmp.WithPrefix()
	}
	return cmp
}

// find reads what the comparison looks at.
func (c comparison) find() clientv3.Op {
	opts := []clientv3.OpOption{clientv3.WithKeysOnly()}
	if c.prefix {
		opts = append(opts, clientv3.WithPrefix(), clientv3.WithLimit(1))
	}
	if c.newest {
		opts = append(opts, clientv3.WithMinModRev(c.revision+1))
	}
	return clientv3.OpGet(c.key, opts...)
}

// stored is a key of etcd with its mod revision, 0 if it is not there.
type stored struct {
	key      string
	revision int64
}

// failed returns what find has found, and whether the comparison does not hold for it. kv is
// nil if nothing was found.
func (c comparison) failed(kv *mvccpb.KeyValue) (stored, bool) {
	found := stored{c.key, 0}
	if kv != nil {
		found = stored{string(kv.Key), kv.ModRevision}
	}
	if c.newest {
		return found, found.revision > c.revision
	}
	return found, found.revision != c.revision
}

// condition is what else must hold for a write to be stored. Without comparisons there is
// none.
type condition struct {
	comparisons []comparison
	// judge reads the registry with quorum. It brings the comparisons up to date, or says why
	// the write must not be stored.
	judge func(ctx context.Context) error
	// apart says that the transaction cannot compare the registry.
	apart bool
}

type conditionsKey struct{}

// withConditions returns the context of a write that is stored only if all of them hold then.
func withConditions(ctx context.Context, conditions []*condition) context.Context {
	return context.WithValue(ctx, conditionsKey{}, conditions)
}

// conditionsFrom returns those conditions of a write that its transaction has to compare. One
// that it cannot compare is judged now, as late as it can be.
func conditionsFrom(ctx context.Context) ([]*condition, error) {
	all, _ := ctx.Value(conditionsKey{}).([]*condition)
	var compared []*condition
	for _, c := range all {
		switch {
		case len(c.comparisons) == 0:
		case c.apart:
			if err := c.judge(ctx); err != nil {
				return nil, err
			}
		default:
			compared = append(compared, c)
		}
	}
	return compared, nil
}
