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

package main

import (
	"context"
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	policy "k8s.io/api/policy/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/test/harness/history"
	"k8s.io/utils/ptr"
)

// entry is a line of history.jsonl.
type entry struct {
	Revision int64     `json:"revision"`
	Seen     time.Time `json:"seen"`
	Key      string    `json:"key"`
	Deleted  bool      `json:"deleted,omitempty"`
	// The fields of a ControllerInstance, a Deployment or a ReplicaSet that the checker uses.
	Spec     any    `json:"spec,omitempty"`
	Phase    string `json:"phase,omitempty"`
	Replicas *int32 `json:"replicas,omitempty"`
	Observed int64  `json:"observedGeneration,omitempty"`
}

// leaderLease is the key of the Lease by which one kube-controller-manager leads.
const leaderLease = "/registry/leases/kube-system/kube-controller-manager"

// follow has a checker take what etcd stores, and writes history.jsonl to dir.
func follow(ctx context.Context, endpoint, dir string, processOf func(holder string) string) (*history.History[*checker], error) {
	file, err := os.Create(filepath.Join(dir, "history.jsonl"))
	if err != nil {
		return nil, err
	}
	lines := json.NewEncoder(file)
	return history.Follow(ctx, endpoint, newChecker(processOf), func(c *checker, event *clientv3.Event) error {
		line, err := c.apply(event)
		if line == nil || err != nil {
			return err
		}
		return lines.Encode(line)
	}, []string{history.Registry}, clientv3.WithPrevKV())
}

// apply takes a change. It returns nil for what is not checked.
func (c *checker) apply(event *clientv3.Event) (*entry, error) {
	c.revision, c.seen = event.Kv.ModRevision, time.Now()
	key := string(event.Kv.Key)
	deleted := event.Type == clientv3.EventTypeDelete
	// before is the last revision of an object that is deleted. The answer to an update that ends an
	// object names that.
	var before int64
	if deleted {
		if event.PrevKv == nil {
			return nil, nil
		}
		before = event.PrevKv.ModRevision
	}
	if c.changes != nil {
		c.changes[c.revision] = append(c.changes[c.revision], change{key: key, before: event.PrevKv, now: event.Kv, deleted: deleted})
	}
	namespace := path.Base(path.Dir(key))
	if judgedAtRest(namespace) {
		return nil, nil
	}
	object, err := history.Object(event)
	if err != nil {
		return nil, err
	}
	line := &entry{Revision: c.revision, Seen: c.seen, Key: key, Deleted: deleted}
	var known bool
	if t := c.team(namespace); t != nil {
		known = c.applyInTeam(t, object, event.IsCreate(), deleted, before)
	} else {
		known, err = c.applyOutside(line, object, event.IsCreate(), before)
	}
	if !known {
		return nil, err
	}
	return line, err
}

// applyOutside handles what is in no namespace of a team. It returns false for what is not checked.
func (c *checker) applyOutside(line *entry, object runtime.Object, created bool, before int64) (known bool, err error) {
	deleted := line.Deleted
	switch o := object.(type) {
	case *shardingv1alpha1.ControllerInstance:
		line.Spec, line.Phase = o.Spec, string(o.Status.Phase)
		if deleted {
			c.instanceGone(o.Name)
		} else {
			c.instanceWritten(o)
		}
	case *coordination.Lease:
		if line.Key == leaderLease {
			c.leaderWritten(ptr.Deref(o.Spec.HolderIdentity, ""))
		}
		return false, nil
	case *apps.ReplicaSet:
		line.Replicas, line.Observed = o.Spec.Replicas, o.Status.ObservedGeneration
		if deleted {
			c.setDeleted(o)
		} else {
			c.setWritten(o, c.revision)
		}
	case *v1.ReplicationController:
		line.Replicas, line.Observed = o.Spec.Replicas, o.Status.ObservedGeneration
		c.setWritten(asReplicaSet(o), c.revision)
	case *apps.Deployment:
		line.Replicas, line.Observed = o.Spec.Replicas, o.Status.ObservedGeneration
		err = c.deploymentWritten(o, c.revision)
	case *v1.Pod:
		revision := c.revision
		if deleted {
			revision = before
		}
		known, err := c.podWritten(o, created, deleted, revision)
		switch {
		case err != nil:
			return false, err
		case known:
		case deleted, o.DeletionTimestamp != nil:
			// A deletion has two steps. If the client ends between them, the garbage collector
			// of pods takes the second.
			c.podDeleted(o)
		case created:
			c.podCreated(o)
		default:
			return false, nil
		}
	case *batch.Job:
		if deleted {
			c.jobGone(o)
		} else {
			c.jobWritten(o, c.revision)
		}
	case *batch.CronJob:
		if !created {
			c.allow(writeID{"write", o.UID, c.revision}, o.Name, o.Name, o.UID)
		}
	case *apps.DaemonSet:
		c.daemonSetWritten(o, c.revision)
	case *apps.ControllerRevision:
		if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
			c.allow(c.writeOf(o, created, deleted), o.Name, owner.Name, owner.UID)
		}
	case *v1.Node:
		c.nodeWritten(o, deleted)
	case *v1.PersistentVolume:
		c.volumeWritten(o, deleted, before)
	default:
		return false, nil
	}
	return true, err
}

// applyInTeam handles what is in a namespace of its own. It returns false for what is not checked.
func (c *checker) applyInTeam(t *team, object runtime.Object, created, deleted bool, before int64) (known bool) {
	switch o := object.(type) {
	case *v1.Pod:
		c.teamPodWritten(t, o, created, deleted)
	case *apps.StatefulSet:
		c.statefulSetWritten(t, o)
	case *v1.PersistentVolumeClaim:
		c.claimWritten(t, o, created, deleted, before)
	case *policy.PodDisruptionBudget:
		c.budgetWritten(t, o)
	case *autoscaling.HorizontalPodAutoscaler:
		c.scalerWritten(t, o)
	case *discovery.EndpointSlice:
		c.sliceWritten(t, o, created, deleted)
	case *v1.Endpoints:
		c.endpointsWritten(t, o, created, deleted)
	case *apps.ControllerRevision:
		c.wroteIn(o, created, deleted)
	default:
		return false
	}
	return true
}
