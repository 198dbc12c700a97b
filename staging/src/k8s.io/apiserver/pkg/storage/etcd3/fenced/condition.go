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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// condition is what else must hold for a write to be stored: the record of its instance, at
// key in etcd, has that revision. Without a key there is none.
type condition struct {
	key      string
	revision int64
	// judge reads the record with quorum, and returns its revision, or why the write must
	// not be stored.
	judge func(ctx context.Context) (int64, error)
	// apart says that the transaction cannot compare the record.
	apart bool
}

type conditionKey struct{}

// conditionFrom returns the condition of a write, nil if there is none. One that cannot be
// compared in the transaction is judged now, as late as it can be.
func conditionFrom(ctx context.Context) (*condition, error) {
	c, _ := ctx.Value(conditionKey{}).(*condition)
	switch {
	case c == nil || c.key == "":
		return nil, nil
	case c.apart:
		_, err := c.judge(ctx)
		return nil, err
	default:
		return c, nil
	}
}

// judgeAnew judges a condition that did not hold.
func (c *condition) judgeAnew(ctx context.Context) error {
	judgedAnew.WithContext(ctx).Inc()
	revision, err := c.judge(ctx)
	if err == nil && revision == c.revision {
		// Trying again would go on for ever.
		err = apierrors.NewInternalError(fmt.Errorf("the registry has %s at revision %d, the etcd of the object does not", c.key, revision))
	}
	c.revision = revision
	return err
}
