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
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/test/harness/audit"
	"k8s.io/kubernetes/test/harness/history"
)

// auditPolicy records the writes of controllers and of the leader's Lease, with the
// resulting objects.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
omitStages: [RequestReceived]
rules:
- level: RequestResponse
  verbs: [create, delete]
  resources: [{group: "", resources: [pods]}]
- level: RequestResponse
  verbs: [create, update, patch]
  resources:
  - {group: apps, resources: [replicasets, replicasets/status, deployments, deployments/status, daemonsets/status]}
  - {group: batch, resources: [jobs, jobs/status]}
  - {group: "", resources: [replicationcontrollers, replicationcontrollers/status]}
  - {group: coordination.k8s.io, resources: [leases], resourceNames: [kube-controller-manager]}
- level: RequestResponse
  verbs: [create]
  namespaces: [kube-system]
  resources: [{group: coordination.k8s.io, resources: [leases]}]
- level: Metadata
  verbs: [create, update, patch, delete]
  resources: [{group: sharding.k8s.io}]
- level: None
`

// The names that --controllers has for the controllers that are judged.
const (
	replicaSetController            = "replicaset-controller"
	replicationControllerController = "replicationcontroller-controller"
	deploymentController            = "deployment-controller"
	jobController                   = "job-controller"
	daemonSetController             = "daemonset-controller"
)

// controllerOf has the controllers by the user that each writes as.
var controllerOf = map[string]string{
	"system:serviceaccount:kube-system:replicaset-controller":  replicaSetController,
	"system:serviceaccount:kube-system:replication-controller": replicationControllerController,
	"system:serviceaccount:kube-system:deployment-controller":  deploymentController,
	"system:serviceaccount:kube-system:job-controller":         jobController,
	"system:serviceaccount:kube-system:daemon-set-controller":  daemonSetController,
}

// auditEvent is an audit event with its objects.
type auditEvent struct {
	audit.Event
	RequestObject, ResponseObject *auditObject
}

// auditObject has the fields of an object in an audit event that are used here.
type auditObject struct {
	Metadata metav1.ObjectMeta
	Spec     struct{ HolderIdentity string }
}

// writeID identifies a write that was stored: an object at a revision, or the one
// deletion of a pod, which has revision 0.
type writeID struct {
	uid      types.UID
	revision int64
}

// writer is who made a write.
type writer struct {
	process, controller string
}

// accounts is what the API servers' audit logs tell.
type accounts struct {
	writers map[writeID]writer
	// unclear has those who may have made a write although the answer says that it failed:
	// of the creation of a pod by "create " and its owner's UID, of its deletion by
	// "delete " and its name.
	unclear map[string][]writer
	// leaders has the process that stands for leader under each identity.
	leaders map[string]string
}

func newAccounts() accounts {
	return accounts{writers: map[writeID]writer{}, unclear: map[string][]writer{}, leaders: map[string]string{}}
}

// readAudit adds an audit log. processAt returns the name of the process that sends from
// an address, or "".
func (a *accounts) readAudit(file string, processAt func(ip string) string) error {
	return audit.ReadAll(file, func(e auditEvent) error { return a.add(e, processAt) })
}

func (a *accounts) add(e auditEvent, processAt func(ip string) string) error {
	if len(e.SourceIPs) == 0 {
		return nil
	}
	process, o := processAt(e.SourceIPs[0]), e.ResponseObject
	stored := e.Done() && o != nil && o.Metadata.UID != ""
	switch {
	case process == "":
		return nil
	case e.ObjectRef.Resource == "leases":
		if stored {
			a.leaders[o.Spec.HolderIdentity] = process
		}
		return nil
	}
	by := writer{process, controllerOf[e.User.Username]}
	switch {
	case by.controller == "":
		return nil
	case !stored:
		a.doubt(e, by)
		return nil
	}
	id := writeID{uid: o.Metadata.UID}
	if e.Verb != "delete" {
		var err error
		if id.revision, err = strconv.ParseInt(o.Metadata.ResourceVersion, 10, 64); err != nil {
			return err
		}
	}
	// An update that changes nothing, and a second delete, name an earlier write.
	if _, again := a.writers[id]; !again {
		a.writers[id] = by
	}
	return nil
}

// doubt notes the write of a pod that may have been done although it failed. The fence may
// refuse a delete halfway: it has marked the object as deleted, and does not remove it.
func (a *accounts) doubt(e auditEvent, by writer) {
	halfway := e.Verb == "delete" && e.ResponseStatus.Code == http.StatusConflict
	if e.ObjectRef.Resource != "pods" || e.ResponseStatus.Code/100 == 4 && !halfway {
		return
	}
	what := "delete " + e.ObjectRef.Name
	if e.Verb == "create" {
		if e.RequestObject == nil {
			return
		}
		ref := metav1.GetControllerOfNoCopy(&e.RequestObject.Metadata)
		if ref == nil {
			return
		}
		what = "create " + string(ref.UID)
	}
	a.unclear[what] = append(a.unclear[what], by)
}

const (
	// endKey is the etcd key of the mark after what is judged.
	endKey = "/registry/end-of-the-run"
	// leaseKey is that of the Lease of the leader.
	leaseKey = "/registry/leases/kube-system/kube-controller-manager"
)

// replay passes all that etcd has stored since its first revision to the judge.
func replay(ctx context.Context, endpoint string, j *judge) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	client, err := history.Connect(endpoint)
	if err != nil {
		return err
	}
	defer client.Close()
	// A write of our own marks the end.
	end, err := client.Put(ctx, endKey, "")
	if err != nil {
		return err
	}
	errEnd := errors.New("the end")
	err = history.Watch(ctx, client, history.Registry, func(events []*clientv3.Event) error {
		for _, event := range events {
			if event.Kv.ModRevision == end.Header.Revision {
				return errEnd
			}
			if err := apply(j, event); err != nil {
				return fmt.Errorf("revision %d of %s: %w", event.Kv.ModRevision, event.Kv.Key, err)
			}
		}
		return nil
	}, clientv3.WithPrevKV())
	if errors.Is(err, errEnd) {
		return nil
	}
	return fmt.Errorf("etcd was read up to revision %d of %d: %w", j.revision, end.Header.Revision, err)
}

func apply(j *judge, event *clientv3.Event) error {
	j.revision = event.Kv.ModRevision
	deleted := event.Type == clientv3.EventTypeDelete
	object, err := history.Object(event)
	if err != nil {
		return err
	}
	written := func(controller string, meta *metav1.ObjectMeta, replicas int32, observed int64) {
		// The load deletes no workload.
		if !deleted {
			j.workloadWritten(controller, meta, replicas, observed)
		}
	}
	switch o := object.(type) {
	case *coordination.Lease:
		if string(event.Kv.Key) != leaseKey {
			return nil
		}
		holder := ""
		if !deleted && o.Spec.HolderIdentity != nil {
			holder = *o.Spec.HolderIdentity
		}
		j.leads(holder)
	case *shardingv1alpha1.ControllerInstance:
		switch {
		case o.Spec.Ring != catalogue.WorkloadsRing:
			// Only the work of that ring is judged.
		case deleted:
			j.instanceGone(o.Name)
		default:
			j.instanceWritten(o)
		}
	case *apps.ReplicaSet:
		written(replicaSetController, &o.ObjectMeta, *o.Spec.Replicas, o.Status.ObservedGeneration)
	case *v1.ReplicationController:
		written(replicationControllerController, &o.ObjectMeta, *o.Spec.Replicas, o.Status.ObservedGeneration)
	case *apps.Deployment:
		written(deploymentController, &o.ObjectMeta, *o.Spec.Replicas, o.Status.ObservedGeneration)
	case *batch.Job:
		// The load does not change it, so all of its status is for this generation.
		written(jobController, &o.ObjectMeta, *o.Spec.Parallelism, o.Generation)
	case *apps.DaemonSet:
		written(daemonSetController, &o.ObjectMeta, nodes, o.Status.ObservedGeneration)
	case *v1.Pod:
		switch {
		case deleted, o.DeletionTimestamp != nil:
			// A deletion may have two steps.
			j.podDeleted(o)
		case event.IsCreate():
			j.podCreated(o)
		case o.Status.Phase == v1.PodSucceeded:
			j.podFinished(o)
		}
	}
	return nil
}
