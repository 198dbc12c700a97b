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

package controllerring

import (
	"context"
	"strings"
	"testing"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/controllerring"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/kubernetes/pkg/apis/sharding"
	"k8s.io/utils/ptr"
)

// newTestPlugin returns the plugin where "worker" may work on the ring "r" and "steerer" steer it,
// and the registry holds these records.
func newTestPlugin(records ...runtime.Object) *plugin {
	p := newPlugin()
	p.enabled = true
	p.client = fake.NewClientset(records...)
	p.authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		verb, ok := map[string]string{"worker": "work", "steerer": "steer"}[a.GetUser().GetName()]
		if ok && a.GetVerb() == verb && a.GetResource() == "rings" && a.GetName() == "r" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
	return p
}

func record(name string, key, next *int64) *sharding.ControllerInstance {
	return &sharding.ControllerInstance{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       sharding.ControllerInstanceSpec{Ring: "r", HashKey: key, NextHashKey: next},
	}
}

// attributes are those of a creation without before, and of a delete without after.
func attributes(who string, before, after *sharding.ControllerInstance, subresource string) admission.Attributes {
	operation := admission.Update
	var object, old runtime.Object
	if before != nil {
		old = before
	} else {
		operation = admission.Create
	}
	if after != nil {
		object = after
	} else {
		operation = admission.Delete
	}
	resource := schema.GroupVersionResource{Group: "sharding.k8s.io", Version: "v1alpha1", Resource: "controllerinstances"}
	return admission.NewAttributesRecord(object, old, resource.GroupVersion().WithKind("ControllerInstance"), "", "a", resource, subresource, operation, nil, false, &user.DefaultInfo{Name: who})
}

func TestThePluginHearsOfEveryWrite(t *testing.T) {
	for _, operation := range []admission.Operation{admission.Create, admission.Update, admission.Delete} {
		if !newPlugin().Handles(operation) {
			t.Errorf("%s passes it by", operation)
		}
	}
}

func TestWhatMayBeDoneToARecord(t *testing.T) {
	key, other := ptr.To[int64](5), ptr.To[int64](6)
	onAnother := func(key *int64) *sharding.ControllerInstance {
		r := record("a", key, nil)
		r.Spec.Ring = "q"
		return r
	}
	const refused = `controllerinstances.sharding.k8s.io "a" is forbidden: user "stranger" may not write records of ring "r": it needs the verb "work" or "steer" on rings.sharding.k8s.io "r"`
	const steered = `user "steerer" may not write the status of records of ring "r", which is what its instances report: it needs the verb "work" on rings.sharding.k8s.io "r"`
	asking := func(donor string) *sharding.ControllerInstance {
		r := record("a", nil, nil)
		r.Spec.Donor = donor
		return r
	}
	const moved = "spec.hashKey is written by the instances of the ring only; to move the end of the range, set spec.nextHashKey"
	for what, tc := range map[string]struct {
		off           bool
		who           string
		named         string
		before, after *sharding.ControllerInstance
		subresource   string
		is            func(error) bool
		message       string
	}{
		"created":                         {who: "worker", after: record("a", nil, nil)},
		"created with a key":              {who: "worker", after: record("a", key, nil), is: apierrors.IsInvalid, message: "spec.hashKey: Forbidden: a new instance owns nothing"},
		"created with a key, in a name":   {who: "worker", named: "r", after: record("a", key, nil), is: apierrors.IsInvalid},
		"created by a stranger":           {who: "stranger", after: record("a", nil, nil), is: apierrors.IsForbidden, message: `User "stranger" cannot work resource "rings"`},
		"created on a ring not allowed":   {who: "worker", after: onAnother(nil), is: apierrors.IsForbidden, message: `rings.sharding.k8s.io "q" is forbidden`},
		"created, feature gate off":       {off: true, who: "stranger", after: record("a", key, nil)},
		"given a key":                     {who: "worker", before: record("a", nil, nil), after: record("a", key, nil), is: apierrors.IsForbidden, message: moved},
		"given a key, in a name":          {who: "worker", named: "r", before: record("a", nil, nil), after: record("a", key, nil)},
		"given another key":               {who: "worker", before: record("a", key, nil), after: record("a", other, nil), is: apierrors.IsForbidden, message: moved},
		"its key taken":                   {who: "worker", before: record("a", key, nil), after: record("a", nil, nil), is: apierrors.IsForbidden, message: moved},
		"given a key, feature gate off":   {off: true, who: "worker", before: record("a", nil, nil), after: record("a", key, nil)},
		"changed otherwise":               {who: "steerer", before: record("a", key, nil), after: record("a", ptr.To(*key), nil)},
		"given a donor":                   {who: "steerer", before: record("a", nil, nil), after: asking("b"), is: apierrors.IsForbidden, message: "spec.donor is written by the instances of the ring only"},
		"its donor taken":                 {who: "worker", before: asking("b"), after: record("a", nil, nil), is: apierrors.IsForbidden, message: "spec.donor"},
		"given a donor, in a name":        {who: "worker", named: "r", before: record("a", nil, nil), after: asking("b")},
		"status by who steers":            {who: "steerer", before: record("a", nil, nil), after: record("a", nil, nil), subresource: "status", is: apierrors.IsForbidden, message: steered},
		"status, in another ring's name":  {who: "steerer", named: "q", before: record("a", nil, nil), after: record("a", nil, nil), subresource: "status", is: apierrors.IsForbidden, message: steered},
		"moved to between its neighbours": {who: "steerer", before: record("a", key, nil), after: record("a", key, ptr.To[int64](8))},
		"moved past a neighbour":          {who: "steerer", before: record("a", key, nil), after: record("a", key, ptr.To[int64](10)), is: apierrors.IsInvalid, message: "must lie between"},
		"moved as before":                 {who: "steerer", before: record("a", key, ptr.To[int64](10)), after: record("a", key, ptr.To[int64](10))},
		"created by who steers":           {who: "steerer", after: record("a", nil, nil), is: apierrors.IsForbidden, message: `User "steerer" cannot work resource "rings"`},
		"changed by who works":            {who: "worker", before: record("a", key, nil), after: record("a", key, nil)},
		"changed, in a name":              {who: "stranger", named: "r", before: record("a", key, nil), after: record("a", key, nil)},
		"changed by a stranger":           {who: "stranger", before: record("a", key, nil), after: record("a", key, nil), is: apierrors.IsForbidden, message: refused},
		"changed, in another ring's name": {who: "stranger", named: "q", before: record("a", key, nil), after: record("a", key, nil), is: apierrors.IsForbidden, message: refused},
		"changed on a ring not allowed":   {who: "worker", before: onAnother(key), after: onAnother(key), is: apierrors.IsForbidden, message: `it needs the verb "work" or "steer" on rings.sharding.k8s.io "q"`},
		"taken to a ring that is allowed": {who: "worker", before: onAnother(key), after: record("a", key, nil), is: apierrors.IsForbidden, message: `records of ring "q"`},
		"changed, feature gate off":       {off: true, who: "stranger", before: record("a", key, nil), after: record("a", other, nil)},
		"status by who works":             {who: "worker", before: record("a", nil, nil), after: record("a", nil, nil), subresource: "status"},
		"status, in a name":               {who: "stranger", named: "r", before: record("a", nil, nil), after: record("a", nil, nil), subresource: "status"},
		"status by a stranger":            {who: "stranger", before: record("a", nil, nil), after: record("a", nil, nil), subresource: "status", is: apierrors.IsForbidden, message: `user "stranger" may not write the status`},
		"status, feature gate off":        {off: true, who: "stranger", before: record("a", nil, nil), after: record("a", nil, nil), subresource: "status"},
		"deleted by who works":            {who: "worker", before: record("a", key, nil)},
		"deleted by who steers":           {who: "steerer", before: record("a", key, nil)},
		"deleted, in a name":              {who: "stranger", named: "r", before: record("a", key, nil)},
		"deleted by a stranger":           {who: "stranger", before: record("a", key, nil), is: apierrors.IsForbidden, message: refused},
		"deleted, in another ring's name": {who: "stranger", named: "q", before: record("a", key, nil), is: apierrors.IsForbidden, message: refused},
		"deleted on a ring not allowed":   {who: "steerer", before: onAnother(key), is: apierrors.IsForbidden, message: `records of ring "q"`},
		"deleted, what is not known":      {who: "worker", is: apierrors.IsInternalError, message: "is not known"},
		"deleted, feature gate off":       {off: true, who: "stranger", before: record("a", key, nil)},
		"a next key for who owns nothing": {who: "steerer", before: record("a", nil, nil), after: record("a", nil, ptr.To[int64](10))},
	} {
		t.Run(what, func(t *testing.T) {
			stored := func(name string, key int64) *shardingv1alpha1.ControllerInstance {
				return &shardingv1alpha1.ControllerInstance{
					ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"},
					Spec:       shardingv1alpha1.ControllerInstanceSpec{Ring: "r", HashKey: (*shardingv1alpha1.HashKey)(&key)},
				}
			}
			p := newTestPlugin(stored("a", *key), stored("b", 10))
			p.enabled = !tc.off
			ctx := t.Context()
			if tc.named != "" {
				ctx = controllerring.NewContext(ctx, fence.Identity{Ring: tc.named, Name: "a"})
			}
			err := p.Validate(ctx, attributes(tc.who, tc.before, tc.after, tc.subresource), nil)
			if tc.is == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !tc.is(err) || !strings.Contains(err.Error(), tc.message) {
				t.Errorf("got %v, want it refused with %q", err, tc.message)
			}
		})
	}
}
