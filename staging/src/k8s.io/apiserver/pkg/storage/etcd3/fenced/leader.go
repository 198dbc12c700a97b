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
	"maps"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/utils/ptr"
)

// The Lease that kube-controller-managers elect their leader by.
const (
	leaderNamespace = "kube-system"
	leaderName      = "kube-controller-manager"
)

var (
	leases = schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}

	leaderKeySuffix = "/" + leaderNamespace + "/" + leaderName
)

// storesLeader says whether the leader's Lease is stored at that key.
func (s *store) storesLeader(key string) bool {
	return s.resource == leases && strings.HasSuffix(key, leaderKeySuffix)
}

// leaderWrite is a write of the leader's Lease. A holder that is not signed knows no rings: it
// may run each of their controllers, and it renews without asking anybody. So it gets the Lease
// only while no ring of kube-controller-manager has an instance. An instance creates its record
// first and then reads the Lease with quorum, so one of the two sees the other. Nor is the
// Lease taken from it meanwhile but by a signed holder: a leader that loses its Lease goes on
// until it notices, and the rings begin once nobody holds it. The names of those instances,
// and only those, begin with the ring and "-".
type leaderWrite struct {
	store     *store
	registry  *registry
	condition condition
}

func (w *leaderWrite) from(before runtime.Object) change {
	c := &leaderChange{leaderWrite: w}
	c.before, c.err = w.leader(before)
	return c
}

// leader returns who holds the Lease; nobody if there is no object.
func (w *leaderWrite) leader(object runtime.Object) (ring.Leader, error) {
	if object == nil {
		return ring.Leader{}, nil
	}
	lease := &coordinationv1.Lease{}
	err := convert(w.store.codec, object, lease)
	return ring.Leader{Holder: ptr.Deref(lease.Spec.HolderIdentity, "")}, err
}

// leaderChange is a change of the leader's Lease.
type leaderChange struct {
	*leaderWrite
	before ring.Leader
	err    error
}

func (c *leaderChange) to(ctx context.Context, object runtime.Object) error {
	if c.err != nil {
		return c.err
	}
	after, err := c.leader(object)
	if err != nil {
		return err
	}
	c.condition.comparisons = nil
	fromUnsigned := c.before.Holder != "" && !c.before.Signed()
	if after == c.before || after.Signed() || after.Holder == "" && !fromUnsigned {
		return nil
	}
	advice := "Stop them, or wait until their records are gone, before one without rings can lead"
	if after.Holder == "" {
		advice = fmt.Sprintf("They would begin at once where nobody holds the Lease, and %s, which knows no rings, may be at work. Stop that: one of them takes the Lease when it has expired", c.before.Holder)
	}
	if c.condition.apart, err = c.store.apart(ctx, c.registry); err != nil {
		return apierrors.NewInternalError(err)
	}
	for _, name := range ring.ManagerRings {
		c.condition.comparisons = append(c.condition.comparisons, comparison{key: c.registry.etcdKey(name + "-"), prefix: true})
	}
	c.condition.judge = func(ctx context.Context) error { return c.judge(ctx, advice) }
	return nil
}

// judge refuses the write while a ring of kube-controller-manager has an instance.
func (w *leaderWrite) judge(ctx context.Context, advice string) error {
	all, err := w.registry.list(ctx)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("the registry cannot be read, so the leader's Lease is kept from a holder without rings: %w", err))
	}
	for _, name := range slices.Sorted(maps.Keys(all.instances)) {
		if slices.ContainsFunc(ring.ManagerRings, func(ring string) bool { return strings.HasPrefix(name, ring+"-") }) {
			return w.store.refuse(ctx, leaderName, fence.CauseRingsRunning, &refusal{reasonUnsignedLeader, fmt.Sprintf("ControllerInstance %s is registered: kube-controller-managers with rings are running. %s", name, advice)})
		}
	}
	return nil
}
