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
	"cmp"
	"context"
	"fmt"
	"slices"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/fence"
)

// The reasons of a refusal.
const (
	reasonGone     = "gone"
	reasonReplaced = "replaced"
	reasonOutdated = "outdated"
	reasonNotOwner = "not_owner"
	reasonNotGiven = "not_given"
	reasonUnknown  = "unknown"
	// The one of a write that is nobody's on a ring.
	reasonUnsignedLeader = "unsigned_leader"
)

// refusal says why a write must not be stored.
type refusal struct{ reason, message string }

func (r *refusal) Error() string { return r.message }

// final says that a newer look at the registry would not change it: an epoch never falls, and
// the rest is immutable.
func (r *refusal) final() bool { return r.reason == reasonOutdated || r.reason == reasonUnknown }

// refuse counts the refusal and returns the answer.
func (w *write) refuse(ctx context.Context, object string, r *refusal) error {
	return w.store.refuse(ctx, object, fence.CauseFenced, r)
}

// refuse counts the refusal of a write of that object and returns the answer.
func (s *store) refuse(ctx context.Context, object string, cause metav1.CauseType, r *refusal) error {
	refusals.WithContext(ctx).WithLabelValues(r.reason).Inc()
	conflict := apierrors.NewConflict(s.resource, object, fmt.Errorf("%w (%s)", r, cause))
	conflict.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: cause, Message: r.message}}
	return conflict
}

// write is one of one object, in the name of a controller instance.
type write struct {
	identity  fence.Identity
	store     *store
	registry  *registry
	condition condition
}

// allow sets the condition under which the write may be stored, or fails. still judges the
// instance's record alone, now and whenever the transaction finds it changed; judge, with a
// record that passed, what else has been seen of the registry. Before a refusal both get a
// second look at what is read with quorum: a new owner must not be refused because its grant
// has not been seen here yet.
func (w *write) allow(ctx context.Context, object string, still func(*instance) *refusal, judge func(*rings) *refusal) error {
	r, name := w.registry, w.identity.Name
	r.follow()
	var revision int64
	var refused *refusal
	decide := func(seen *rings) {
		i := seen.instances[name]
		if refused = still(i); refused == nil {
			refused, revision = judge(seen), i.Revision
		}
	}
	if r.withSeen(decide); refused != nil && !refused.final() {
		read, err := r.list(ctx)
		if err != nil {
			return apierrors.NewInternalError(fmt.Errorf("the registry cannot be read, so the write of ControllerInstance %s is refused: %w", name, err))
		}
		decide(read)
	}
	if refused != nil {
		return w.refuse(ctx, object, refused)
	}
	w.condition.comparisons = []comparison{{key: r.etcdKey(name), revision: revision}}
	w.condition.judge = func(ctx context.Context) error {
		quorumReads.WithContext(ctx).Inc()
		i, err := r.get(ctx, name)
		if err != nil {
			return apierrors.NewInternalError(fmt.Errorf("ControllerInstance %s cannot be read, so its write is refused: %w", name, err))
		}
		if refused := still(i); refused != nil {
			return w.refuse(ctx, object, refused)
		}
		w.condition.comparisons[0].revision = i.Revision
		return nil
	}
	return nil
}

// alive refuses what does not come from the registered instance as it is now. i is the record
// under its name, nil if there is none.
func alive(identity fence.Identity, i *instance) *refusal {
	switch {
	case i == nil:
		return &refusal{reasonGone, fmt.Sprintf("ControllerInstance %s (UID %s) is gone; another instance may work on the object now", identity.Name, identity.UID)}
	case i.UID != identity.UID:
		return replaced(identity, i.UID)
	case i.Ring != identity.Ring:
		return &refusal{reasonUnknown, fmt.Sprintf("ControllerInstance %s is on ring %q; the write names it on ring %q", identity.Name, i.Ring, identity.Ring)}
	case i.Epoch > identity.Epoch:
		return &refusal{reasonOutdated, fmt.Sprintf("ControllerInstance %s is in epoch %d; the write is of epoch %d, from before it gave hash keys away", identity.Name, i.Epoch, identity.Epoch)}
	}
	return nil
}

func replaced(identity fence.Identity, by types.UID) *refusal {
	return &refusal{reasonReplaced, fmt.Sprintf("ControllerInstance %s has UID %s; the write comes from its predecessor with UID %s", identity.Name, by, identity.UID)}
}

func (w *write) from(before runtime.Object) change {
	if w.store.resource == controllerInstances {
		return w.fromRecord(before)
	}
	return &objectChange{write: w, before: subjectOf(before), condemned: condemned(before)}
}

// objectChange is one of an object that a controller works on.
type objectChange struct {
	*write
	before subject
	// condemned says that all that is left for the object is to be removed.
	condemned bool
}

// condemned says whether a delete without grace has been stored, and nothing holds it up. A pod
// that runs nowhere is deleted so, by two writes: between them it must not be left to nobody.
func condemned(object runtime.Object) bool {
	o, ok := existing(object)
	if !ok || o.GetDeletionTimestamp() == nil || len(o.GetFinalizers()) > 0 {
		return false
	}
	grace := o.GetDeletionGracePeriodSeconds()
	return grace != nil && *grace == 0
}

func (c *objectChange) to(ctx context.Context, object runtime.Object) error {
	after := subjectOf(object)
	judge := func(seen *rings) *refusal { return c.judge(seen, after) }
	still := func(i *instance) *refusal {
		refused := alive(c.identity, i)
		if refused != nil && refused.reason == reasonOutdated && c.condemned && !after.exists {
			// The epoch may have been raised between the two writes, to give other keys away: work on
			// those had ended before. Whether the instance owns this one is judged all the same.
			return nil
		}
		return refused
	}
	return c.allow(ctx, cmp.Or(after.name, c.before.name), still, judge)
}

// judge refuses a write that no line of the record covers, and one of an object whose
// governing keys the instance does not all own.
func (c *objectChange) judge(seen *rings, after subject) *refusal {
	i := seen.instances[c.identity.Name]
	by, covered := i.governing(c.identity.Controller, c.store.resource)
	if !covered {
		return &refusal{reasonUnknown, fmt.Sprintf("ControllerInstance %s does not say which hash key governs what controller %q writes to %s: its spec.controllers and a line of spec.governs have to cover it", i.Name, c.identity.Controller, c.store.resource)}
	}
	view := seen.view(i.Ring)
	keys, n := sharding.Governing(string(by), c.before.keys, after.keys)
	for _, key := range keys[:n] {
		owner, ok := view.Owner(key)
		if ok && owner.Name == i.Name {
			continue
		}
		if !ok {
			owner.Name = "nobody"
		}
		return &refusal{reasonNotOwner, fmt.Sprintf("hash key %s, which governs the object, belongs to %s; ControllerInstance %s owns %s", hashkey.Format(key), owner.Name, i.Name, view.Owned(i.Name))}
	}
	return nil
}

// governing returns whose key governs what the controller writes to the resource, and whether
// the record says so.
func (i *instance) governing(controller string, resource schema.GroupResource) (shardingv1alpha1.GoverningKey, bool) {
	if !slices.Contains(i.controllers, controller) {
		return "", false
	}
	return ring.Governing(i.governs, controller, resource.Group, resource.Resource)
}

// subject is what of an object says whose key governs it. The zero value is no object.
type subject struct {
	exists bool
	name   string
	keys   sharding.Keys
}

// existing returns the metadata of an object, if there is one. One without a UID does not
// exist yet: an update that may create gets such a one to begin with.
func existing(object runtime.Object) (metav1.Object, bool) {
	if object == nil {
		return nil, false
	}
	accessor, err := meta.Accessor(object)
	if err != nil || accessor.GetUID() == "" {
		return nil, false
	}
	return accessor, true
}

// subjectOf takes a subject from an object.
func subjectOf(object runtime.Object) subject {
	accessor, ok := existing(object)
	if !ok {
		return subject{}
	}
	keys, _ := sharding.KeysOf(object) // it has metadata
	return subject{exists: true, name: accessor.GetName(), keys: keys}
}
