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
	"strings"
	"time"

	rbac "k8s.io/api/rbac/v1"
	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	shardingclient "k8s.io/client-go/kubernetes/typed/sharding/v1alpha1"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
)

// operatorRing is a ring of somebody's own operator, which the bootstrap roles know nothing of.
const operatorRing = "virtualmachines"

// allow gives the user a role with these rules.
func (s *fenceServer) allow(user string, rules ...rbac.PolicyRule) {
	s.t.Helper()
	role, err := s.client.RbacV1().ClusterRoles().Create(s.t.Context(), &rbac.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, Rules: rules}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	_, err = s.client.RbacV1().ClusterRoleBindings().Create(s.t.Context(), &rbac.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		RoleRef:    rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbac.Subject{{APIGroup: rbac.GroupName, Kind: rbac.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
}

// testRightsByRing: who may write ControllerInstances may write those of a ring only if they may
// work on that ring or steer it.
func (s *fenceServer) testRightsByRing() {
	t, ctx := s.t, s.t.Context()
	const operator, person, anybody, collector = "system:serviceaccount:vms:operator", "person", "anybody", "system:serviceaccount:kube-system:generic-garbage-collector"
	records := rbac.PolicyRule{
		Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}, APIGroups: []string{shardingv1alpha1.GroupName},
		Resources: []string{"controllerinstances", "controllerinstances/status"},
	}
	right := func(verb, ring string) rbac.PolicyRule {
		return rbac.PolicyRule{Verbs: []string{verb}, APIGroups: []string{shardingv1alpha1.GroupName}, Resources: []string{"rings"}, ResourceNames: []string{ring}}
	}
	s.allow(operator, records, right("work", operatorRing))
	s.allow(person, records, right("steer", operatorRing))
	s.allow(anybody, records)

	of := func(ring, name string) *shardingv1alpha1.ControllerInstance {
		record := newRecord(ring + "-" + name)
		record.Spec.Ring = ring
		return record
	}
	as := func(user string) shardingclient.ControllerInstanceInterface {
		return s.with(t, user, nil).ShardingV1alpha1().ControllerInstances()
	}
	// The API server has to have read the roles first.
	for _, user := range []string{operator, person, anybody} {
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, wait.ForeverTestTimeout, true, func(ctx context.Context) (bool, error) {
			_, err := as(user).List(ctx, metav1.ListOptions{})
			return err == nil, nil
		})
		if err != nil {
			t.Fatalf("%s may not list records: %v", user, err)
		}
	}

	patch := func(client shardingclient.ControllerInstanceInterface, name, change string, subresources ...string) error {
		_, err := client.Patch(ctx, name, types.MergePatchType, []byte(change), metav1.PatchOptions{}, subresources...)
		return err
	}
	type client = shardingclient.ControllerInstanceInterface
	writes := []struct {
		what  string
		write func(client, *shardingv1alpha1.ControllerInstance) error
	}{
		{"label", func(c client, r *shardingv1alpha1.ControllerInstance) error {
			return patch(c, r.Name, `{"metadata":{"labels":{"x":"y"}}}`)
		}},
		{"finalizer", func(c client, r *shardingv1alpha1.ControllerInstance) error {
			return patch(c, r.Name, `{"metadata":{"finalizers":[]}}`)
		}},
		{"drain", func(c client, r *shardingv1alpha1.ControllerInstance) error {
			return patch(c, r.Name, `{"spec":{"drained":true}}`)
		}},
		{"move", func(c client, r *shardingv1alpha1.ControllerInstance) error {
			return patch(c, r.Name, `{"spec":{"nextHashKey":5}}`)
		}},
		{"update", func(c client, r *shardingv1alpha1.ControllerInstance) error {
			now, err := s.instances().Get(ctx, r.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			now.Spec.Balance = shardingv1alpha1.BalanceDisabled
			_, err = c.Update(ctx, now, metav1.UpdateOptions{})
			return err
		}},
		{"status", func(c client, r *shardingv1alpha1.ControllerInstance) error {
			return patch(c, r.Name, `{"status":{"weight":7}}`, "status")
		}},
		{"renewal", func(c client, r *shardingv1alpha1.ControllerInstance) error {
			return patch(c, r.Name, fmt.Sprintf(`{"metadata":{"uid":%q}}`, r.UID), "status")
		}},
		{"trial of a delete", func(c client, r *shardingv1alpha1.ControllerInstance) error {
			return c.Delete(ctx, r.Name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		}},
		{"delete of all", func(c client, r *shardingv1alpha1.ControllerInstance) error {
			return c.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "spec.ring=" + r.Spec.Ring})
		}},
		{"delete", func(c client, r *shardingv1alpha1.ControllerInstance) error {
			return c.Delete(ctx, r.Name, metav1.DeleteOptions{})
		}},
		{"delete by force", func(c client, r *shardingv1alpha1.ControllerInstance) error {
			return c.Delete(ctx, r.Name, *metav1.NewDeleteOptions(0))
		}},
	}
	want := func(what string, err error, message string) {
		t.Helper()
		switch {
		case message == "" && err != nil:
			t.Errorf("%s: %v", what, err)
		case message != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), message)):
			t.Errorf("%s: got %v, want 403 with %q", what, err, message)
		}
	}
	for _, who := range []struct {
		user string
		// named says that the requests name the instance that they write the record of.
		named bool
		ring  string
		may   bool
		// reports says that they may write the status.
		reports bool
	}{
		{operator, false, operatorRing, true, true},
		{operator, true, operatorRing, true, true},
		{operator, false, catalogue.WorkloadsRing, false, false},
		{person, false, operatorRing, true, false},
		{person, false, catalogue.WorkloadsRing, false, false},
		{anybody, false, operatorRing, false, false},
		{collector, false, operatorRing, true, false},
		{collector, false, catalogue.WorkloadsRing, true, false},
		{"system:kube-controller-manager", false, catalogue.WorkloadsRing, true, true},
		{"system:kube-controller-manager", false, operatorRing, false, false},
		{"", false, catalogue.WorkloadsRing, true, true},
	} {
		message := ""
		if !who.may {
			message = fmt.Sprintf(`user %q may not write records of ring %q: it needs the verb "work" or "steer" on rings.sharding.k8s.io %q`, who.user, who.ring, who.ring)
		}
		for _, w := range writes {
			message := message
			if w.what == "status" || w.what == "renewal" {
				message = ""
				if !who.reports {
					message = fmt.Sprintf(`user %q may not write the status of records of ring %q, which is what its instances report: it needs the verb "work" on rings.sharding.k8s.io %q`, who.user, who.ring, who.ring)
				}
			}
			if w.what == "delete of all" && (who.user == collector || who.user == "system:kube-controller-manager") {
				continue // No role of theirs has the verb.
			}
			name := who.ring + "-a"
			self := s.register(t, of(who.ring, "a"))
			c := as(who.user)
			if who.named {
				c = s.with(t, who.user, self.identity.String).ShardingV1alpha1().ControllerInstances()
			}
			record, err := s.instances().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want(fmt.Sprintf("%s of a record of %s by %q", w.what, who.ring, who.user), w.write(c, record), message)
			// It is there if nobody was allowed to delete it.
			_, err = s.instances().Get(ctx, name, metav1.GetOptions{})
			if gone := who.may && strings.HasPrefix(w.what, "delete"); gone != apierrors.IsNotFound(err) || !gone && err != nil {
				t.Errorf("after %s by %q: %v, want it gone: %t", w.what, who.user, err, gone)
			}
			if err := s.instances().Delete(ctx, name, *metav1.NewDeleteOptions(0)); err != nil && !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
		}
	}

	// A record is created by who may work on its ring alone.
	const cannot = `cannot work resource "rings"`
	for user, rings := range map[string]map[string]string{
		operator: {operatorRing: "", catalogue.WorkloadsRing: cannot},
		person:   {operatorRing: cannot, catalogue.WorkloadsRing: cannot},
		anybody:  {operatorRing: cannot},
	} {
		for ring, message := range rings {
			_, err := as(user).Create(ctx, of(ring, "b"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			want(fmt.Sprintf("creation of a record of %s by %q", ring, user), err, message)
		}
	}

	// An instance of one ring has no rights on another, and who steers may not name an instance.
	own, other := s.register(t, of(operatorRing, "own")), s.register(t, of(catalogue.WorkloadsRing, "other"))
	named := func(user string, identity fence.Identity) client {
		return s.with(t, user, identity.String).ShardingV1alpha1().ControllerInstances()
	}
	const noRight = "may not write records of ring"
	want("an instance, its own ring", patch(named(operator, own.identity), own.identity.Name, `{"spec":{"drained":true}}`), "")
	want("an instance, another ring", patch(named(operator, own.identity), other.identity.Name, `{"spec":{"drained":true}}`), noRight)
	want("an instance, another ring's status", patch(named(operator, own.identity), other.identity.Name, `{"status":{"weight":7}}`, "status"), "may not write the status of records of ring")
	want("an instance, delete on another ring", named(operator, own.identity).Delete(ctx, other.identity.Name, metav1.DeleteOptions{}), noRight)
	want("another ring's instance", patch(named(operator, other.identity), other.identity.Name, `{"spec":{"drained":true}}`), cannot)
	want("who steers, as an instance", patch(named(person, own.identity), own.identity.Name, `{"spec":{"drained":true}}`), cannot)

	// Of a collection of several rings, the others' records stay.
	want("delete of all rings", as(operator).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}), noRight)
	if _, err := s.instances().Get(ctx, other.identity.Name, metav1.GetOptions{}); err != nil {
		t.Errorf("a record of another ring, after a delete of all: %v", err)
	}
}
