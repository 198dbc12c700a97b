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

package ring

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	rbac "k8s.io/api/rbac/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	shardingclient "k8s.io/client-go/kubernetes/typed/sharding/v1alpha1"
)

// What becomes of a write of a field by who may steer the ring, and nothing else.
const (
	isStored    = "stored"
	isKept      = "kept as it was"
	isForbidden = "forbidden"
	isInvalid   = "invalid"
	isRefused   = "refused otherwise"
)

// steered says of each field of a record what becomes of that merge patch.
// docs/guides/operations.md ("Rights") has the same for people.
var steered = map[string]struct{ patch, becomes string }{
	// The server alone says what a record is and was.
	"metadata.name":                       {`"other"`, isRefused},
	"metadata.namespace":                  {`"default"`, isKept},
	"metadata.selfLink":                   {`"/other"`, isKept},
	"metadata.uid":                        {`"other"`, isRefused},
	"metadata.resourceVersion":            {`"1"`, isRefused},
	"metadata.generation":                 {`77`, isKept},
	"metadata.creationTimestamp":          {`"2020-01-01T00:00:00Z"`, isKept},
	"metadata.deletionTimestamp":          {`"2020-01-01T00:00:00Z"`, isRefused},
	"metadata.deletionGracePeriodSeconds": {`5`, isRefused},
	"metadata.hashKey":                    {`77`, isKept},
	// No decision and no fence reads these. Their size is bounded.
	"metadata.generateName":    {`"other-"`, isStored},
	"metadata.labels":          {`{"a":"b"}`, isStored},
	"metadata.annotations":     {`{"a":"b"}`, isStored},
	"metadata.ownerReferences": {`[{"apiVersion":"v1","kind":"Namespace","name":"default","uid":"a"}]`, isStored},
	"metadata.finalizers":      {`["example.com/hold"]`, isStored},
	"metadata.managedFields":   {`[{}]`, isStored},
	// Said once, as the instance registers.
	"spec.ring":                 {`"other"`, isInvalid},
	"spec.holderIdentity":       {`"other"`, isInvalid},
	"spec.leaseDurationSeconds": {`60`, isInvalid},
	"spec.controllers":          {`["other"]`, isInvalid},
	"spec.governs":              {`[{"controller":"*","group":"*","resource":"*","by":"Own"}]`, isInvalid},
	"spec.held":                 {`[{"first":0,"last":9}]`, isInvalid},
	// What the instances agree on.
	"spec.hashKey": {`5`, isForbidden},
	"spec.donor":   {`"other"`, isForbidden},
	// For people.
	"spec.nextHashKey":   {`5`, isStored},
	"spec.pinnedHashKey": {`5`, isStored},
	"spec.drained":       {`true`, isStored},
	"spec.balance":       {`"Disabled"`, isStored},
	// What the instance reports: the fence and the others believe it.
	"status.phase":          {`"Locked"`, isForbidden},
	"status.cached":         {`[{"first":0,"last":9}]`, isForbidden},
	"status.weight":         {`7`, isForbidden},
	"status.busy":           {`7`, isForbidden},
	"status.epoch":          {`2`, isForbidden},
	"status.gives":          {`{"to":"other","hashKey":5}`, isForbidden},
	"status.controllers":    {`[{"name":"replicaset-controller","working":true,"reason":"none"}]`, isForbidden},
	"status.heaviest":       {`1`, isForbidden},
	"status.heap":           {`{"liveBytes":7,"objects":7}`, isForbidden},
	"status.work":           {`7`, isForbidden},
	"status.phaseSince":     {`"2020-01-01T00:00:00Z"`, isForbidden},
	"status.beforeHeaviest": {`1`, isForbidden},
	"status.presenceEnded":  {`"2020-01-01T00:00:00.000000Z"`, isForbidden},
}

// fieldsOf returns the fields of a record by their paths in JSON, one level below metadata, spec
// and status.
func fieldsOf() []string {
	var paths []string
	record := reflect.TypeFor[shardingv1alpha1.ControllerInstance]()
	for part := range record.Fields() {
		name, _, _ := strings.Cut(part.Tag.Get("json"), ",")
		if name == "" {
			continue // apiVersion and kind say what is sent, and are not stored.
		}
		for field := range part.Type.Fields() {
			below, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			paths = append(paths, name+"."+below)
		}
	}
	return paths
}

// testFieldsBySteering: who may steer a ring, and write ControllerInstances with their status,
// writes what is for people, and nothing that the instances agree on or report. A field that this
// test does not know fails it.
func (s *fenceServer) testFieldsBySteering() {
	t, ctx := s.t, s.t.Context()
	const person = "steers"
	s.allow(person,
		rbac.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{shardingv1alpha1.GroupName}, Resources: []string{"controllerinstances", "controllerinstances/status"}},
		rbac.PolicyRule{Verbs: []string{"steer"}, APIGroups: []string{shardingv1alpha1.GroupName}, Resources: []string{"rings"}, ResourceNames: []string{operatorRing}})
	client := s.with(t, person, nil).ShardingV1alpha1().ControllerInstances()
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, wait.ForeverTestTimeout, true, func(ctx context.Context) (bool, error) {
		_, err := client.List(ctx, metav1.ListOptions{})
		return err == nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	fields := fieldsOf()
	for path := range steered {
		if !strings.Contains(" "+strings.Join(fields, " ")+" ", " "+path+" ") {
			t.Errorf("a record has no %s", path)
		}
	}
	for _, path := range fields {
		t.Run(path, func(t *testing.T) {
			want, known := steered[path]
			if !known {
				t.Fatal("say what becomes of this field where who may only steer the ring writes it: here, and in docs/guides/operations.md")
			}
			part, field, _ := strings.Cut(path, ".")
			patch := fmt.Appendf(nil, `{%q:{%q:%s}}`, part, field, want.patch)
			if part != "status" {
				s.steer(t, client, patch, path, want.becomes)
				return
			}
			s.steer(t, client, patch, path, want.becomes, part)
			// A write of the rest leaves it as it is.
			s.steer(t, client, patch, path, isKept)
		})
	}
}

// steer sends the patch of a record of two that share their ring, and checks what becomes of the
// field.
func (s *fenceServer) steer(t *testing.T, client shardingclient.ControllerInstanceInterface, patch []byte, path, want string, subresources ...string) {
	t.Helper()
	ctx := t.Context()
	part := s.on(t)
	record := func(name string) *shardingv1alpha1.ControllerInstance {
		r := newRecord(name)
		r.Spec.Ring = operatorRing
		return r
	}
	// Weight, epoch and phase leave room for every report.
	owner := part.ownsAs(t, record("steered"), highEnd)
	part.ownsAs(t, record("neighbour"), 1)
	_, err := owner.registry.Patch(ctx, "steered", types.MergePatchType, []byte(`{"status":{"phase":"Active","weight":9}}`), metav1.PatchOptions{}, "status")
	owner.must(err)
	before, err := s.instances().Get(ctx, "steered", metav1.GetOptions{})
	owner.must(err)

	_, err = client.Patch(ctx, "steered", types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "steering"}, subresources...)
	after, getErr := s.instances().Get(ctx, "steered", metav1.GetOptions{})
	owner.must(getErr)
	changed := !reflect.DeepEqual(valueAt(t, before, path), valueAt(t, after, path))
	got := isRefused
	switch {
	case err == nil && changed:
		got = isStored
	case err == nil:
		got = isKept
	case apierrors.IsForbidden(err):
		got = isForbidden
	case apierrors.IsInvalid(err) && strings.HasPrefix(path, "spec."):
		got = isInvalid
	}
	if got != want || err != nil && changed {
		t.Errorf("%s is %s (%v), want it %s", patch, got, err, want)
	}
	// Whatever it was, the instance goes on.
	if _, err := owner.registry.Patch(ctx, "steered", types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"uid":%q}}`, owner.identity.UID), metav1.PatchOptions{}, "status"); err != nil {
		t.Errorf("a renewal then: %v", err)
	}
	owner.report("null")
	if err := s.instances().Delete(ctx, "steered", *metav1.NewDeleteOptions(0)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.instances().Patch(ctx, "steered", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// valueAt returns what the record has at that path in JSON; nil: nothing.
func valueAt(t *testing.T, record *shardingv1alpha1.ControllerInstance, path string) any {
	t.Helper()
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(record)
	if err != nil {
		t.Fatal(err)
	}
	value, _, err := unstructured.NestedFieldNoCopy(object, strings.Split(path, ".")...)
	if err != nil {
		t.Fatal(err)
	}
	return value
}
