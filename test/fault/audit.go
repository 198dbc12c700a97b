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
	"cmp"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/test/harness/audit"
)

// auditPolicy records the writes of controllers, with the resulting objects.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
omitStages: [RequestReceived]
rules:
- level: RequestResponse
  verbs: [create, update, patch, delete]
  resources: [{group: "", resources: [pods, persistentvolumeclaims, persistentvolumes, endpoints]}]
- level: RequestResponse
  verbs: [create, update, patch, delete]
  resources:
  - {group: "", resources: [replicationcontrollers/status, pods/status, persistentvolumeclaims/status]}
  - {group: apps, resources: [replicasets, replicasets/status, deployments/status, daemonsets/status, controllerrevisions]}
  - {group: apps, resources: [statefulsets/status, statefulsets/scale]}
  - {group: autoscaling, resources: [horizontalpodautoscalers/status]}
  - {group: batch, resources: [jobs, jobs/status, cronjobs/status]}
  - {group: discovery.k8s.io, resources: [endpointslices]}
  - {group: policy, resources: [poddisruptionbudgets/status]}
- level: Metadata
  verbs: [create, update, patch, delete]
  resources: [{group: sharding.k8s.io}]
# Of all else, what controllers write is compared with a stock controller manager.
- level: None
  resources: [{group: "", resources: [events]}, {group: events.k8s.io}, {group: coordination.k8s.io}]
- level: RequestResponse
  verbs: [create, update, patch, delete, deletecollection]
  userGroups: ["system:serviceaccounts:kube-system"]
- level: None
`

// auditEvent is an audit event with the object in its answer.
type auditEvent struct {
	audit.Event
	ResponseObject *responseObject
}

// responseObject has the fields of the object in an answer that are used here.
type responseObject struct {
	metav1.ObjectMeta `json:"metadata"`
	// Details is that of a Status: the answer to a deletion may be one.
	Details metav1.StatusDetails
}

// verb returns the checker's name of the write, or "" if the checker does not judge it.
func (e *auditEvent) verb() string {
	switch e.ObjectRef.Resource {
	case "replicasets", "replicationcontrollers", "deployments":
		switch {
		case e.ObjectRef.Subresource == "status":
			return "status"
		case e.ObjectRef.Resource != "replicasets":
			return ""
		case e.Verb == "patch":
			return "update"
		}
		return e.Verb
	case "pods", "jobs", "cronjobs", "daemonsets", "controllerrevisions",
		"statefulsets", "persistentvolumeclaims", "persistentvolumes", "endpoints", "endpointslices", "poddisruptionbudgets", "horizontalpodautoscalers":
		switch {
		case strings.HasSuffix(e.UserAgent, "generic-garbage-collector"), strings.HasSuffix(e.UserAgent, "pod-garbage-collector"):
			// The leader's: they are on no ring.
			return ""
		case strings.HasSuffix(e.UserAgent, "ttl-after-finished-controller"):
			return "expire"
		case strings.HasSuffix(e.UserAgent, "expand-controller"):
			return "expand"
		case e.Verb == "create", e.Verb == "delete":
			return e.Verb
		}
		return "write"
	}
	return ""
}

// failed reports whether the response leaves open whether the write was done. The fence may
// refuse a delete halfway: it has marked the object as deleted, and does not remove it.
func (e *auditEvent) failed() bool {
	switch e.ResponseStatus.Code / 100 {
	case 2:
		return e.ResponseObject == nil
	case 4:
		return e.Verb == "delete" && e.Fenced()
	default:
		return true
	}
}

// write returns the successful write that the event records, if it does.
func (e *auditEvent) write() (auditWrite, bool) {
	o := e.ResponseObject
	if !e.Done() || o == nil || e.verb() == "" {
		return auditWrite{}, false
	}
	w := auditWrite{writeID: writeID{verb: e.verb(), uid: cmp.Or(o.UID, o.Details.UID)}, at: e.RequestReceivedTimestamp}
	if w.uid == "" {
		return auditWrite{}, false
	}
	if w.verb == "status" || w.verb == "update" || w.verb == "write" || w.verb == "expand" {
		revision, err := strconv.ParseInt(o.ResourceVersion, 10, 64)
		if err != nil {
			return auditWrite{}, false
		}
		w.revision = revision
	} else if ref := metav1.GetControllerOfNoCopy(o); ref != nil && e.ObjectRef.Resource == "pods" {
		w.set = ref.UID
	}
	return w, true
}
