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

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/ring"
	"k8s.io/utils/ptr"
)

// recordChange is one of a record of the registry. What it was decided on is its own
// precondition: the record's UID and generation. The fence asks two things of the instance
// that makes it: to be alive, and to say in its own record that it gives a hash key that
// changes.
type recordChange struct {
	*write
	// before is an empty object if the change creates the record.
	before *shardingv1alpha1.ControllerInstance
	err    error
}

func (w *write) fromRecord(before runtime.Object) change {
	c := &recordChange{write: w}
	c.before, c.err = w.record(before)
	return c
}

// record returns an empty one if there is no object.
func (w *write) record(object runtime.Object) (*shardingv1alpha1.ControllerInstance, error) {
	if _, ok := existing(object); !ok {
		return &shardingv1alpha1.ControllerInstance{}, nil
	}
	return w.registry.convert(object)
}

func (c *recordChange) to(ctx context.Context, object runtime.Object) error {
	if c.err != nil {
		return c.err
	}
	record, err := c.record(object)
	if err != nil {
		return err
	}
	if record.UID == "" {
		record = c.before
	}
	if record.Spec.Ring != c.identity.Ring {
		return c.refuse(ctx, record.Name, &refusal{reasonUnknown, fmt.Sprintf("ControllerInstance %s is on ring %q, not on ring %q of the instance that writes it", record.Name, record.Spec.Ring, c.identity.Ring)})
	}
	if record.Name == c.identity.Name {
		// The transaction compares this very record anyway.
		c.condition.comparisons = nil
		if refused := c.judgeOwn(record); refused != nil {
			return c.refuse(ctx, record.Name, refused)
		}
		if c.takes(record) {
			return c.ifNobodyOwns(ctx, record)
		}
		return nil
	}
	still := func(i *instance) *refusal {
		refused := alive(c.identity, i)
		if refused == nil && c.moves(record) && (i.Gives == nil || record.Spec.HashKey == nil || *i.Gives != ring.Gift{To: record.Name, Key: int64(*record.Spec.HashKey)}) {
			refused = c.notGiven(record)
		}
		return refused
	}
	return c.allow(ctx, record.Name, still, func(*rings) *refusal { return nil })
}

// judgeOwn judges a change of the instance's own record by the two records alone. Whether it may
// take its first key depends on the others.
func (c *recordChange) judgeOwn(record *shardingv1alpha1.ControllerInstance) *refusal {
	if record.UID != c.identity.UID {
		return replaced(c.identity, record.UID)
	}
	if !c.moves(record) {
		return nil
	}
	before, key := c.before, record.Spec.HashKey
	switch {
	case key == nil:
	case c.takes(record):
		return nil
	case before.Spec.HashKey != nil && before.Status.Gives != nil && *before.Status.Gives == shardingv1alpha1.Gift{To: record.Name, HashKey: *key}:
		return nil
	}
	return c.notGiven(record)
}

// moves says whether the change gives the record, which is as it is to be, another hash key.
func (c *recordChange) moves(record *shardingv1alpha1.ControllerInstance) bool {
	return !ptr.Equal(c.before.Spec.HashKey, record.Spec.HashKey)
}

func (c *recordChange) notGiven(record *shardingv1alpha1.ControllerInstance) *refusal {
	return &refusal{reasonNotGiven, fmt.Sprintf("the record of ControllerInstance %s does not say in status.gives that it gives hash key %s to %s",
		c.identity.Name, hashkey.FormatOptional((*int64)(record.Spec.HashKey)), record.Name)}
}
