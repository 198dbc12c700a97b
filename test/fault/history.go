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
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
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
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kubernetes/test/utils/ringaudit"
	"k8s.io/utils/ptr"
)

// history follows etcd from its first revision, so it sees all changes in order even
// while the API server is down.
type history struct {
	client *clientv3.Client
	file   *os.File

	lock sync.Mutex
	*checker
	failed error
	// changes has what was changed while a stock controller manager is compared with, by revision.
	changes map[int64][]change
	// moved is closed and replaced after each change.
	moved chan struct{}
}

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

// The etcd prefixes of the resources that are checked.
const (
	instancesPrefix   = "/registry/controllerinstances/"
	setsPrefix        = "/registry/replicasets/"
	deploymentsPrefix = "/registry/deployments/"
	podsPrefix        = "/registry/pods/"
	jobsPrefix        = "/registry/jobs/"
	cronJobsPrefix    = "/registry/cronjobs/"
	daemonSetsPrefix  = "/registry/daemonsets/"
	revisionsPrefix   = "/registry/controllerrevisions/"
	// ReplicationControllers and Nodes have older names there.
	controllersPrefix = "/registry/controllers/"
	nodesPrefix       = "/registry/minions/"
	endpointsPrefix   = "/registry/services/endpoints/"

	statefulSetsPrefix = "/registry/statefulsets/"
	volumesPrefix      = "/registry/persistentvolumes/"
	claimsPrefix       = "/registry/persistentvolumeclaims/"
	budgetsPrefix      = "/registry/poddisruptionbudgets/"
	scalersPrefix      = "/registry/horizontalpodautoscalers/"
	slicesPrefix       = "/registry/endpointslices/"

	// leaderLease is the key of the Lease by which one kube-controller-manager leads.
	leaderLease = "/registry/leases/kube-system/kube-controller-manager"
)

func follow(ctx context.Context, endpoint, dir string, processOf func(holder string) string) (*history, error) {
	file, err := os.Create(filepath.Join(dir, "history.jsonl"))
	if err != nil {
		return nil, err
	}
	h := &history{file: file, checker: newChecker(processOf), moved: make(chan struct{})}
	h.client, err = ringaudit.Follow(ctx, endpoint, h.take, h.fail)
	return h, err
}

func (h *history) fail(err error) {
	h.lock.Lock()
	defer h.lock.Unlock()
	if h.failed == nil {
		h.failed = err
	}
}

func (h *history) take(response clientv3.WatchResponse) {
	if err := response.Err(); err != nil {
		h.fail(err)
		return
	}
	h.lock.Lock()
	defer h.lock.Unlock()
	for _, event := range response.Events {
		if err := h.apply(event); err != nil && h.failed == nil {
			h.failed = fmt.Errorf("revision %d of %s: %w", event.Kv.ModRevision, event.Kv.Key, err)
		}
	}
	close(h.moved)
	h.moved = make(chan struct{})
}

func (h *history) apply(event *clientv3.Event) error {
	h.revision, h.seen = event.Kv.ModRevision, time.Now()
	key := string(event.Kv.Key)
	deleted := event.Type == clientv3.EventTypeDelete
	value := event.Kv.Value
	if deleted {
		if event.PrevKv == nil {
			return nil
		}
		value = event.PrevKv.Value
	}
	if h.changes != nil {
		h.changes[h.revision] = append(h.changes[h.revision], change{key: key, before: event.PrevKv, now: event.Kv, deleted: deleted})
	}
	if judgedAtRest(path.Base(path.Dir(key))) {
		return nil
	}
	line := entry{Revision: h.revision, Seen: h.seen, Key: key, Deleted: deleted}
	if t := h.team(path.Base(path.Dir(key))); t != nil {
		if known, err := h.applyInTeam(t, event, value, deleted); !known || err != nil {
			return err
		}
		return json.NewEncoder(h.file).Encode(line)
	}
	switch {
	case strings.HasPrefix(key, instancesPrefix):
		var instance shardingv1alpha1.ControllerInstance
		if err := decode(value, &instance); err != nil {
			return err
		}
		line.Spec, line.Phase = instance.Spec, string(instance.Status.Phase)
		if deleted {
			h.instanceGone(instance.Name)
		} else {
			h.instanceWritten(&instance)
		}
	case key == leaderLease:
		var lease coordination.Lease
		if err := decode(value, &lease); err != nil {
			return err
		}
		h.leaderWritten(ptr.Deref(lease.Spec.HolderIdentity, ""))
		return nil
	case strings.HasPrefix(key, setsPrefix):
		var rs apps.ReplicaSet
		if err := decode(value, &rs); err != nil {
			return err
		}
		line.Replicas, line.Observed = rs.Spec.Replicas, rs.Status.ObservedGeneration
		if deleted {
			h.setDeleted(&rs)
		} else {
			h.setWritten(&rs, h.revision)
		}
	case strings.HasPrefix(key, controllersPrefix):
		var rc v1.ReplicationController
		if err := decode(value, &rc); err != nil {
			return err
		}
		line.Replicas, line.Observed = rc.Spec.Replicas, rc.Status.ObservedGeneration
		h.setWritten(asReplicaSet(&rc), h.revision)
	case strings.HasPrefix(key, deploymentsPrefix):
		var d apps.Deployment
		if err := decode(value, &d); err != nil {
			return err
		}
		line.Replicas, line.Observed = d.Spec.Replicas, d.Status.ObservedGeneration
		if err := h.deploymentWritten(&d, h.revision); err != nil {
			return err
		}
	case strings.HasPrefix(key, podsPrefix):
		var pod v1.Pod
		if err := decode(value, &pod); err != nil {
			return err
		}
		revision := h.revision
		if deleted {
			revision = revisionBefore(event)
		}
		known, err := h.podWritten(&pod, event.IsCreate(), deleted, revision)
		switch {
		case err != nil:
			return err
		case known:
		case deleted, pod.DeletionTimestamp != nil:
			// A deletion has two steps. If the client ends between them, the garbage collector
			// of pods takes the second.
			h.podDeleted(&pod)
		case event.IsCreate():
			h.podCreated(&pod)
		default:
			return nil
		}
	default:
		known, err := h.applyOther(event, value, deleted)
		if !known || err != nil {
			return err
		}
	}
	return json.NewEncoder(h.file).Encode(line)
}

// applyOther handles the kinds of which the history has no more than that they were written. It
// returns false for what is not checked.
func (h *history) applyOther(event *clientv3.Event, value []byte, deleted bool) (known bool, err error) {
	key, created := string(event.Kv.Key), event.IsCreate()
	switch {
	case strings.HasPrefix(key, jobsPrefix):
		var j batch.Job
		if err := decode(value, &j); err != nil {
			return false, err
		}
		if deleted {
			h.jobGone(&j)
		} else {
			h.jobWritten(&j, h.revision)
		}
	case strings.HasPrefix(key, cronJobsPrefix):
		var cj batch.CronJob
		if err := decode(value, &cj); err != nil {
			return false, err
		}
		if !created {
			h.allow(writeID{"write", cj.UID, h.revision}, cj.Name, cj.Name, cj.UID)
		}
	case strings.HasPrefix(key, daemonSetsPrefix):
		var d apps.DaemonSet
		if err := decode(value, &d); err != nil {
			return false, err
		}
		h.daemonSetWritten(&d, h.revision)
	case strings.HasPrefix(key, revisionsPrefix):
		var r apps.ControllerRevision
		if err := decode(value, &r); err != nil {
			return false, err
		}
		id := writeID{"write", r.UID, h.revision}
		if created {
			id = writeID{verb: "create", uid: r.UID}
		} else if deleted {
			id = writeID{verb: "delete", uid: r.UID}
		}
		if owner := metav1.GetControllerOfNoCopy(&r); owner != nil {
			h.allow(id, r.Name, owner.Name, owner.UID)
		}
	case strings.HasPrefix(key, nodesPrefix):
		var n v1.Node
		if err := decode(value, &n); err != nil {
			return false, err
		}
		h.nodeWritten(&n, deleted)
	case strings.HasPrefix(key, volumesPrefix):
		var volume v1.PersistentVolume
		if err := decode(value, &volume); err != nil {
			return false, err
		}
		h.volumeWritten(&volume, deleted, revisionBefore(event))
	default:
		return false, nil
	}
	return true, nil
}

// applyInTeam handles what is in a namespace of its own. It returns false for what is not checked.
func (h *history) applyInTeam(t *team, event *clientv3.Event, value []byte, deleted bool) (known bool, err error) {
	key, created := string(event.Kv.Key), event.IsCreate()
	switch {
	case strings.HasPrefix(key, podsPrefix):
		var pod v1.Pod
		if err := decode(value, &pod); err != nil {
			return false, err
		}
		h.teamPodWritten(t, &pod, created, deleted)
	case strings.HasPrefix(key, statefulSetsPrefix):
		var set apps.StatefulSet
		if err := decode(value, &set); err != nil {
			return false, err
		}
		h.statefulSetWritten(t, &set)
	case strings.HasPrefix(key, claimsPrefix):
		var claim v1.PersistentVolumeClaim
		if err := decode(value, &claim); err != nil {
			return false, err
		}
		h.claimWritten(t, &claim, created, deleted, revisionBefore(event))
	case strings.HasPrefix(key, budgetsPrefix):
		var budget policy.PodDisruptionBudget
		if err := decode(value, &budget); err != nil {
			return false, err
		}
		h.budgetWritten(t, &budget)
	case strings.HasPrefix(key, scalersPrefix):
		var scaler autoscaling.HorizontalPodAutoscaler
		if err := decode(value, &scaler); err != nil {
			return false, err
		}
		h.scalerWritten(t, &scaler)
	case strings.HasPrefix(key, slicesPrefix):
		var slice discovery.EndpointSlice
		if err := decode(value, &slice); err != nil {
			return false, err
		}
		h.sliceWritten(t, &slice, created, deleted)
	case strings.HasPrefix(key, endpointsPrefix):
		var endpoints v1.Endpoints
		if err := decode(value, &endpoints); err != nil {
			return false, err
		}
		h.endpointsWritten(t, &endpoints, created, deleted)
	case strings.HasPrefix(key, revisionsPrefix):
		var revision apps.ControllerRevision
		if err := decode(value, &revision); err != nil {
			return false, err
		}
		h.wroteIn(&revision, created, deleted)
	default:
		return false, nil
	}
	return true, nil
}

// revisionBefore returns the last revision of an object that is deleted, 0 if the event is no
// deletion. The answer to an update that ends an object names that.
func revisionBefore(event *clientv3.Event) int64 {
	if event.Type != clientv3.EventTypeDelete {
		return 0
	}
	return event.PrevKv.ModRevision
}

func decode(value []byte, into runtime.Object) error {
	_, _, err := scheme.Codecs.UniversalDeserializer().Decode(value, nil, into)
	return err
}

// see calls f with the checker locked. f must not block.
func (h *history) see(f func(*checker)) {
	h.lock.Lock()
	defer h.lock.Unlock()
	f(h.checker)
}

// await waits until f returns true. It calls f after each change; f must not block.
func (h *history) await(ctx context.Context, what string, f func(*checker) bool) error {
	for {
		h.lock.Lock()
		ok, failed, moved := f(h.checker), h.failed, h.moved
		h.lock.Unlock()
		switch {
		case failed != nil:
			return failed
		case ok:
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		}
	}
}

// hear passes a write of the audit log to the checker.
func (h *history) hear(w auditWrite) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.written(w)
	close(h.moved)
	h.moved = make(chan struct{})
}

// doubt records a write that may have been done although the audit log says it failed.
func (h *history) doubt(verb, object, process string) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.unclear[verb+" "+object] = append(h.unclear[verb+" "+object], process)
}

// leaves records that an instance has deleted its own record.
func (h *history) leaves(instance string) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.left[instance] = true
}

// compact compacts etcd up to the last revision seen.
func (h *history) compact(ctx context.Context) error {
	var revision int64
	h.see(func(c *checker) { revision = c.revision })
	_, err := h.client.Compact(ctx, revision)
	return err
}
