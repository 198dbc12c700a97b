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
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	policy "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kubernetes/test/harness/audit"
	"k8s.io/utils/ptr"
)

// stored returns an object as etcd has it.
func stored(t *testing.T, object runtime.Object) *mvccpb.KeyValue {
	t.Helper()
	encoder := scheme.Codecs.LegacyCodec(v1.SchemeGroupVersion, discovery.SchemeGroupVersion, policy.SchemeGroupVersion)
	value, err := runtime.Encode(encoder, object)
	if err != nil {
		t.Fatal(err)
	}
	return &mvccpb.KeyValue{Value: value}
}

func TestAStockWriteIsReportedWithWhatItChanged(t *testing.T) {
	slice := &discovery.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "service-1", ResourceVersion: "5", OwnerReferences: []metav1.OwnerReference{{Kind: "Service", Name: "service"}}},
		Endpoints:  []discovery.Endpoint{{Addresses: []string{"10.0.0.1"}, Conditions: discovery.EndpointConditions{Ready: ptr.To(true)}}},
	}
	after := slice.DeepCopy()
	after.Endpoints[0].Addresses[0] = "10.0.0.2"
	key := "/registry/endpointslices/a/service-1"
	changes := map[int64][]change{
		6: {{key: key, now: stored(t, slice)}},
		7: {{key: key, before: stored(t, slice), now: stored(t, after)}},
		8: {{key: key, before: stored(t, after), now: &mvccpb.KeyValue{}, deleted: true}},
		// Another kind of object with that name.
		5: {{key: "/registry/pods/a/service-1", before: stored(t, slice), now: &mvccpb.KeyValue{}, deleted: true}},
		// Another object with a name alike.
		9: {{key: "/registry/endpointslices/b/service-1", now: stored(t, slice)}},
	}
	c := &comparison{process: &process{name: "stock"}, ended: make(chan struct{})}
	event := func(verb, revision string) auditEvent {
		e := auditEvent{Event: audit.Event{Verb: verb}}
		e.User.Username = "system:serviceaccount:kube-system:endpointslice-controller"
		e.ObjectRef.Resource, e.ObjectRef.Namespace, e.ObjectRef.Name = "endpointslices", "a", "service-1"
		e.ResponseStatus.Code = 200
		e.ResponseObject = &responseObject{ObjectMeta: metav1.ObjectMeta{Name: "service-1", ResourceVersion: revision}}
		return e
	}
	c.hear(event("create", "6"), c.process)
	c.hear(event("update", "7"), c.process)
	c.hear(event("delete", "7"), c.process)
	// What it reads, and what others write, does not count.
	c.hear(event("get", "8"), c.process)
	c.hear(event("update", "7"), &process{})
	c.hear(event("update", "7"), nil)
	var table strings.Builder
	violations := c.judge(&table, changes)
	want := []string{
		`create endpointslices a/service-1: 200; created {"labels":null,"ownerReferences":[{"apiVersion":"","kind":"Service","name":"service","uid":""}]}`,
		`update endpointslices a/service-1: 200; endpoints: [{"addresses":["10.0.0.1"],"conditions":{"ready":true}}] -> [{"addresses":["10.0.0.2"],"conditions":{"ready":true}}]`,
		`delete endpointslices a/service-1: 200; deleted`,
	}
	var got []string
	for _, v := range violations {
		got = append(got, strings.TrimPrefix(v.text, byStock+": endpointslice-controller: "))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if text := table.String(); strings.Count(text, "NO") != 3 || !strings.Contains(text, "not excused") {
		t.Errorf("the table does not have three writes that are not excused:\n%s", text)
	}
}

func TestARefusedStockWriteIsReported(t *testing.T) {
	c := &comparison{writes: []stockWrite{{controller: "job-controller", verb: "update", resource: "jobs/status", namespace: "a", name: "j", code: 409}}}
	violations := c.judge(&strings.Builder{}, nil)
	if len(violations) != 1 || !strings.HasSuffix(violations[0].text, "update jobs/status a/j: 409; nothing was stored") {
		t.Errorf("got %v", violations)
	}
}

func TestStockWritesAreExcusedForTimeAlone(t *testing.T) {
	budget := stockWrite{controller: "disruption-controller", verb: "update", resource: "poddisruptionbudgets/status", namespace: "a", name: "b"}
	scaler := stockWrite{controller: "horizontal-pod-autoscaler", verb: "update", resource: "horizontalpodautoscalers/status", namespace: "a", name: "s"}
	for _, test := range []struct {
		write   stockWrite
		diff    []string
		excused bool
	}{
		{stockWrite{verb: "patch", resource: "persistentvolumeclaims/status", namespace: "a", name: "c", code: 200}, nil, true},
		{stockWrite{verb: "patch", resource: "persistentvolumeclaims/status", namespace: "a", name: "c", code: 409}, nil, false},
		{stockWrite{verb: "create", resource: "pods", namespace: "a", name: "c", code: 201}, nil, false},
		{budget, []string{"status.disruptedPods: {} -> null", "status.disruptionsAllowed: 0 -> 1"}, true},
		{budget, []string{"status.disruptionsAllowed: 0 -> 1"}, false},
		{scaler, []string{"status.conditions: [] -> []"}, true},
		{scaler, []string{"status.conditions: [] -> []", "status.desiredReplicas: 1 -> 2"}, false},
		{scaler, nil, false},
		{stockWrite{verb: "create", resource: "pods", namespace: canaryNamespace, name: "p"}, nil, true},
		{stockWrite{verb: "create", resource: "pods", namespace: "a", name: canaryNamespace}, nil, false},
		{stockWrite{verb: "update", resource: "persistentvolumes", name: canaryNamespace}, nil, true},
		{stockWrite{verb: "update", resource: "persistentvolumes", name: "other"}, nil, false},
	} {
		if excuse := test.write.excuse(test.diff); (excuse != "") != test.excused {
			t.Errorf("%v with %v: excused by %q, want excused: %t", test.write, test.diff, excuse, test.excused)
		}
	}
}

func TestTheAuditLogOfAComparisonEndsWithTheMarker(t *testing.T) {
	c := &comparison{process: &process{}, ended: make(chan struct{})}
	e := auditEvent{Event: audit.Event{Verb: "create"}}
	e.ObjectRef.Resource, e.ObjectRef.Namespace, e.ObjectRef.Name = "pods", canaryNamespace, marker
	c.hear(e, nil)
	select {
	case <-c.ended:
	default:
		t.Error("the marker does not end it")
	}
}
