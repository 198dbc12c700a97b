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

package app

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/ring"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

func testLease(holder, version string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-controller-manager", ResourceVersion: version},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To(holder)},
	}
}

func TestTheNewestThatWasSeenOfTheLeaseSaysWhoLeads(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	client := fake.NewClientset()
	var answer coordinationv1.LeaseList
	var refusal error
	client.PrependReactor("list", "leases", func(core.Action) (bool, runtime.Object, error) { return true, &answer, refusal })
	l := newRingLeadership(client, "kube-system", "kube-controller-manager")
	expect := func(when, holder string) {
		t.Helper()
		if leader, ok := l.Leader(); !ok || leader.Holder != holder {
			t.Errorf("%s: leader %q, known %t; want %q", when, leader.Holder, ok, holder)
		}
	}
	try := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	if _, ok := l.Leader(); ok {
		t.Error("a leader is known before anything was seen")
	}
	try(l.Replace(nil, "9"))
	expect("listed without a Lease", "")
	try(l.Add(testLease("a", "10")))
	expect("created", "a")
	try(l.Update(testLease("b", "12")))
	expect("taken over", "b")
	try(l.Update(testLease("a", "11")))
	expect("a late event", "b")

	answer = coordinationv1.LeaseList{ListMeta: metav1.ListMeta{ResourceVersion: "100"}, Items: []coordinationv1.Lease{*testLease("c", "99")}}
	leader, err := l.Read(ctx)
	try(err)
	if leader != (ring.Leader{Holder: "c"}) {
		t.Errorf("read %q, want c", leader.Holder)
	}
	expect("read", "c")
	try(l.Update(testLease("b", "98")))
	expect("an event from before the reading", "c")

	answer = coordinationv1.LeaseList{ListMeta: metav1.ListMeta{ResourceVersion: "120"}}
	if leader, err = l.Read(ctx); err != nil || leader != (ring.Leader{}) {
		t.Errorf("read %q, %v of a Lease that is gone", leader.Holder, err)
	}
	try(l.Update(testLease("c", "110")))
	expect("the watch is behind the deletion", "")
	try(l.Add(testLease("d", "130")))
	try(l.Delete(testLease("d", "131")))
	expect("deleted", "")

	refusal = errors.New("no quorum")
	if _, err = l.Read(ctx); !errors.Is(err, refusal) {
		t.Errorf("error %v, want %v", err, refusal)
	}
	if err := l.Update(testLease("e", "none")); err == nil {
		t.Error("a Lease without a valid resource version was taken")
	}
	expect("an answer that says nothing", "")
}

// Until it is, no controller works.
func TestWhoLeadsIsKnownSoonAfterAnOutage(t *testing.T) {
	// One of them sleeps until the time of its last error, outside.
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		answer := coordinationv1.LeaseList{ListMeta: metav1.ListMeta{ResourceVersion: "100"}, Items: []coordinationv1.Lease{*testLease("a", "99")}}
		const outage = time.Minute
		begun := time.Now()
		client.PrependReactor("list", "leases", func(core.Action) (bool, runtime.Object, error) {
			if time.Since(begun) < outage {
				return true, nil, errors.New("refused")
			}
			return true, &answer, nil
		})
		l := newRingLeadership(client, "kube-system", "kube-controller-manager")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			l.run(ctx)
		}()
		time.Sleep(outage + 5*time.Second)
		if leader, ok := l.Leader(); !ok || leader.Holder != "a" {
			t.Errorf("5 s after an outage leader %q, known %t", leader.Holder, ok)
		}
		cancel()
		<-ended
	})
}

func TestChangesOfTheLeaderAreToldAndRenewalsAreNot(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	l := newRingLeadership(fake.NewClientset(), "kube-system", "kube-controller-manager")
	ctx, cancel := context.WithCancel(ctx)
	told, returned := make(chan struct{}, 10), make(chan struct{})
	go func() {
		defer close(returned)
		l.Notify(ctx, func() { told <- struct{}{} })
	}()
	<-told // of what was before
	if err := l.Add(testLease("a", "1")); err != nil {
		t.Fatal(err)
	}
	<-told
	if err := l.Update(testLease("a", "2")); err != nil {
		t.Fatal(err)
	}
	if err := l.Update(testLease("b", "3")); err != nil {
		t.Fatal(err)
	}
	<-told
	cancel()
	<-returned
	if err := l.Update(testLease("c", "4")); err != nil {
		t.Fatal(err)
	}
	if n := len(told); n != 0 {
		t.Errorf("told %d times of a renewal, or after the end", n)
	}
}

// The informer's part: the watch has but one Lease.
func TestTheLeaseIsWatchedByItsName(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	client := fake.NewClientset()
	selectors := make(chan string, 10)
	watched := watch.NewFake()
	client.PrependWatchReactor("leases", func(action core.Action) (bool, watch.Interface, error) {
		selectors <- action.(core.WatchAction).GetWatchRestrictions().Fields.String()
		return true, watched, nil
	})
	client.PrependReactor("list", "leases", func(core.Action) (bool, runtime.Object, error) {
		return true, &coordinationv1.LeaseList{ListMeta: metav1.ListMeta{ResourceVersion: "5"}}, nil
	})
	l := newRingLeadership(client, "kube-system", "kube-controller-manager")
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); l.run(ctx) }()
	defer func() { cancel(); <-ended }()
	if got, want := <-selectors, "metadata.name=kube-controller-manager"; got != want {
		t.Errorf("watches %q, want %q", got, want)
	}
	watched.Add(testLease("a", "6"))
	told := make(chan struct{}, 10)
	go l.Notify(ctx, func() { told <- struct{}{} })
	for {
		select {
		case <-told:
		case <-time.After(time.Minute):
			t.Fatal("the watch told nothing")
		}
		if leader, ok := l.Leader(); ok && leader.Holder == "a" {
			return
		}
	}
}
