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

package member

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/ring/fence"
)

func TestARegistrationCreatesTheInstancesRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		term := newInstance(t, r).registered(testContext(t))
		creates := r.got(ofVerb("create"))
		if len(creates) != 1 {
			t.Fatalf("%d records were created, want 1", len(creates))
		}
		created := creates[0].created
		want := shardingv1alpha1.ControllerInstanceSpec{
			Ring: "workloads", HolderIdentity: "host_1", LeaseDurationSeconds: 6,
			Controllers: []string{controllerName},
			Governs:     []shardingv1alpha1.Governs{{Controller: "*", Resource: "pods", By: shardingv1alpha1.GoverningKeyController}},
		}
		if created.GenerateName != "workloads-" || created.Name != "" || !reflect.DeepEqual(created.Spec, want) {
			t.Errorf("created %q with %+v, want %+v", created.GenerateName, created.Spec, want)
		}
		record, ok := r.get(term.self.Name)
		if !ok || record.UID != term.self.UID {
			t.Errorf("the term is of %v, the record has UID %q", term.self, record.UID)
		}
		self, _ := term.cfg.Gate.identity()
		if want := (fence.Identity{Ring: "workloads", Name: record.Name, UID: record.UID}); self != term.self || self != want {
			t.Errorf("the gate sends requests in the name of %v, the term is %v, want %v", self, term.self, want)
		}
		if creates[0].identity != nil {
			t.Errorf("the creation names %v", creates[0].identity)
		}
	})
}

// Whoever is in the list is older, so it must not be newer than the creation.
func TestARegistrationListsTheRingExactlyAsOfItsCreation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		older := newInstance(t, r).registered(testContext(t))
		r.after = func(_ context.Context, q request, created *shardingv1alpha1.ControllerInstance) error {
			if q.verb == "create" {
				younger := *created.DeepCopy()
				younger.Name, younger.UID = "younger", "uid-younger"
				r.edit(younger)
			}
			return nil
		}
		term := newInstance(t, r).registered(testContext(t))
		record, _ := r.get(term.self.Name)
		lists := r.got(ofVerb("list"))
		if got := lists[len(lists)-1].list; got.ResourceVersion != record.ResourceVersion || got.ResourceVersionMatch != metav1.ResourceVersionMatchExact ||
			got.FieldSelector != "spec.ring=workloads" {
			t.Errorf("listed %+v, want exactly as of %s", got, record.ResourceVersion)
		}
		var names []string
		for _, record := range term.machine.View().Records() {
			names = append(names, record.Name)
		}
		if got, want := strings.Join(names, " "), older.self.Name+" "+term.self.Name; got != want {
			t.Errorf("the machine begins with %s, want %s", got, want)
		}
	})
}

func TestARegistrationThatIsNotServedNamesTheFeatureGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		r.intercept(func(context.Context, request) error { return apierrors.NewNotFound(resource, "") })
		_, err := newInstance(t, r).register(testContext(t))
		if err == nil || !strings.Contains(err.Error(), "sharding.k8s.io/v1alpha1") || !strings.Contains(err.Error(), "feature gate ControllerRing") {
			t.Errorf("got %v, want the group and its feature gate", err)
		}
	})
}

func TestARegistrationThatFailsSaysAtWhatAndLeavesTheGateShut(t *testing.T) {
	for verb, want := range map[string]string{"create": "creating a ControllerInstance: ", "list": "listing ControllerInstances: "} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistry(t)
				r.intercept(func(_ context.Context, q request) error {
					if q.verb == verb {
						return apierrors.NewForbidden(resource, "", errors.New("injected"))
					}
					return nil
				})
				i := newInstance(t, r)
				_, err := i.register(testContext(t))
				if err == nil || !strings.HasPrefix(err.Error(), want) || !apierrors.IsForbidden(err) {
					t.Errorf("got %v, want %q and the cause", err, want)
				}
				if !i.gate.Deadline().IsZero() {
					t.Error("the gate has a deadline to believe in")
				}
			})
		})
	}
}

// A list that takes long would otherwise find the record gone.
func TestARecordIsRenewedWhileTheRegistryIsListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		failed := 0
		r.intercept(func(_ context.Context, q request) error {
			if q.verb == "list" {
				time.Sleep(lease - time.Second)
				if failed++; failed == 1 {
					return apierrors.NewInternalError(errors.New("injected"))
				}
			}
			return nil
		})
		term := newInstance(t, r).registered(testContext(t))
		if _, ok := r.get(term.self.Name); !ok {
			t.Error("the record has expired")
		}
		if got := len(r.got(ofPatch(partRenewal))); got < 9 {
			t.Errorf("%d renewals were sent in two leases, want one each second", got)
		}
	})
}

// The lease begins when the record is stored, which is after the request was sent.
func TestTheFirstDeadlineCountsFromBeforeTheRequestWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry(t)
		r.intercept(func(_ context.Context, q request) error {
			time.Sleep(400 * time.Millisecond)
			return nil
		})
		i := newInstance(t, r)
		time.Sleep(time.Second)
		sent := time.Now()
		i.registered(testContext(t))
		if took := time.Since(sent); took != 800*time.Millisecond {
			t.Fatalf("the registration took %v", took)
		}
		if got := i.gate.Deadline().Sub(sent); got != 5*time.Second {
			t.Errorf("the deadline is %v after the request, want 5s", got)
		}
	})
}
