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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/kubernetes/test/harness/audit"
)

// auditPolicy records all requests that change something, with what they ask for and what came of
// it. Of the registry it leaves the renewals out.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
omitStages: [RequestReceived, ResponseStarted, Panic]
rules:
- level: None
  resources:
  - group: ""
    resources: [events]
  - group: events.k8s.io
  - group: coordination.k8s.io
  - group: authentication.k8s.io
  - group: authorization.k8s.io
- level: RequestResponse
  verbs: [create, delete]
  resources: [{group: sharding.k8s.io}]
- level: None
  resources: [{group: sharding.k8s.io}]
- level: RequestResponse
  verbs: [create, update, patch, delete, deletecollection]
- level: None
`

// instanceAnnotation is the annotation of an audit event with the instance in whose name the
// request was sent, as fence.Identity writes it.
const instanceAnnotation = "sharding.k8s.io/controller-instance"

// auditEvent is an audit event with its objects.
type auditEvent struct {
	audit.Event
	RequestObject  map[string]any
	ResponseObject *struct {
		Metadata struct {
			Name, ResourceVersion string
			UID                   types.UID
		}
		// Details is that of a Status: the answer to a deletion may be one.
		Details metav1.StatusDetails
	}
}

// request returns the request that the event records, and false if it was one that changes nothing.
// processOf returns the process with that client certificate.
func (e *auditEvent) request(processOf func(credential string) string) (*request, bool) {
	if strings.Contains(e.RequestURI, "dryRun=All") {
		return nil, false
	}
	r := &request{
		verb: e.Verb, user: e.User.Username, resource: schema.GroupResource{Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource},
		subresource: e.ObjectRef.Subresource, namespace: e.ObjectRef.Namespace, name: e.ObjectRef.Name,
		code: e.ResponseStatus.Code, message: e.ResponseStatus.Message, answered: e.StageTimestamp, fenced: e.Fenced(),
	}
	for _, credential := range e.User.Extra[user.CredentialIDKey] {
		r.process = processOf(credential)
	}
	if instance, err := fence.Parse(e.Annotations[instanceAnnotation]); err == nil {
		r.instance, r.named = instance, true
	}
	if o := e.ResponseObject; o != nil {
		r.uid = cmp.Or(o.Metadata.UID, o.Details.UID)
		r.name = cmp.Or(r.name, o.Metadata.Name)
		// What has no number has no revision.
		r.revision, _ = strconv.ParseInt(o.Metadata.ResourceVersion, 10, 64)
	}
	if r.verb == "create" && r.subresource == "" && e.RequestObject != nil {
		r.created = &unstructured.Unstructured{Object: e.RequestObject}
	}
	return r, true
}
