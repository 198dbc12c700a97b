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

package pvcprotection

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	ringtesting "k8s.io/kubernetes/pkg/controller/ring/testing"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// The controller takes all claims from its queue at once. Only those that it works on may keep a
// range from changing hands. What the events of the time before would have told, it finds out by
// itself.
func TestClaimsPassTheGateWhenTheyAreWorkedOn(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: "1"}
	}
	deleted := &v1.PersistentVolumeClaim{ObjectMeta: meta("deleted")}
	deleted.DeletionTimestamp, deleted.Finalizers = &metav1.Time{Time: time.Now()}, []string{volumeutil.PVCProtectionFinalizer, "other"}
	claim := func(name string, unused v1.ConditionStatus) *v1.PersistentVolumeClaim {
		c := &v1.PersistentVolumeClaim{ObjectMeta: meta(name), Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound}}
		c.Finalizers = []string{volumeutil.PVCProtectionFinalizer}
		c.Status.Conditions = []v1.PersistentVolumeClaimCondition{{Type: v1.PersistentVolumeClaimUnused, Status: unused}}
		return c
	}
	pod := &v1.Pod{ObjectMeta: meta("pod"), Spec: v1.PodSpec{NodeName: "node", Volumes: []v1.Volume{{
		VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "used"}},
	}}}}
	client := ringtesting.NewClient(deleted, claim("used", v1.ConditionTrue), claim("unused", v1.ConditionFalse), pod)
	gate := &ringtesting.Gate{}
	env, informers := ringtesting.NewEnv(t, ctx, catalogue.PersistentVolumeClaimProtectionController, gate, client)
	c, err := OnRing(ctx, env)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { informers.Run(ctx) })
	for _, source := range informers.Sources {
		source.SetRanges(hashkey.All())
		if err := source.WaitFor(ctx, hashkey.All()); err != nil {
			t.Fatal(err)
		}
	}
	wg.Go(func() { c.Run(ctx) })
	eventually := func(what string, is func() bool) {
		t.Helper()
		if err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return is(), nil }); err != nil {
			t.Fatalf("waiting until %s: %v", what, err)
		}
	}
	got := func(name string) *v1.PersistentVolumeClaim {
		t.Helper()
		c, err := client.CoreV1().PersistentVolumeClaims("ns").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	mine := ringtesting.Around(hashkey.OfNamespace("ns"))

	// Without a worker, all are taken, and none is worked on.
	gate.Set(mine)
	c.Prepare(mine)
	c.Acquired(t.Context(), mine)
	gate.Set(nil)
	c.SetWorkers(ctx, 1)
	eventually("they are turned away", func() bool { _, _, turnedAway := gate.Count(); return turnedAway == 3 })
	if inside, entered, _ := gate.Count(); inside != 0 || entered != 0 {
		t.Errorf("%d are in the gate, %d have entered, want none", inside, entered)
	}
	if finalizers := got("deleted").Finalizers; len(finalizers) != 2 {
		t.Errorf("behind a shut gate the finalizers became %v", finalizers)
	}

	gate.Set(mine)
	c.Acquired(t.Context(), mine)
	eventually("the finalizer is gone", func() bool { return slices.Equal(got("deleted").Finalizers, []string{"other"}) })
	for name, want := range map[string]v1.ConditionStatus{"used": v1.ConditionFalse, "unused": v1.ConditionTrue} {
		eventually("the condition of "+name+" is right", func() bool { return got(name).Status.Conditions[0].Status == want })
	}
	eventually("all work has ended", func() bool { inside, _, _ := gate.Count(); return inside == 0 })
}
