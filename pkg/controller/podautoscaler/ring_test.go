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

package podautoscaler

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/monitor"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	ringtesting "k8s.io/kubernetes/pkg/controller/ring/testing"
	"k8s.io/kubernetes/pkg/controller/util/selectors"
	"k8s.io/kubernetes/test/utils/ktesting"
	"k8s.io/utils/ptr"
)

func onRing() *HorizontalController {
	return &HorizontalController{inherited: &inherited{period: 15 * time.Second, scaled: map[string]time.Time{}, looked: map[string]bool{}}}
}

// scaledAgo returns an autoscaler that was scaled that long ago, to five replicas.
func scaledAgo(ago time.Duration) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{Status: autoscalingv2.HorizontalPodAutoscalerStatus{
		ObservedGeneration: ptr.To[int64](1), CurrentReplicas: 4, DesiredReplicas: 5, LastScaleTime: &metav1.Time{Time: time.Now().Add(-ago)},
	}}
}

// What the previous owner has scaled within the periods of the policies counts, and nobody knows
// how much it was.
func TestAnAutoscalerKeepsToThePoliciesOfItsPreviousOwner(t *testing.T) {
	const key = "ns/hpa"
	rules := func(selects autoscalingv2.ScalingPolicySelect) *autoscalingv2.HPAScalingRules {
		return &autoscalingv2.HPAScalingRules{SelectPolicy: &selects, Policies: []autoscalingv2.HPAScalingPolicy{
			{Type: autoscalingv2.PodsScalingPolicy, Value: 1, PeriodSeconds: 15},
			{Type: autoscalingv2.PodsScalingPolicy, Value: 3, PeriodSeconds: 600},
		}}
	}
	most, least := rules(autoscalingv2.MaxChangePolicySelect), rules(autoscalingv2.MinChangePolicySelect)
	fresh := scaledAgo(0)
	fresh.Status.LastScaleTime = nil
	silent := scaledAgo(time.Hour)
	silent.Status.CurrentReplicas, silent.Status.DesiredReplicas = 4, 4
	blind := scaledAgo(0)
	blind.Status.LastScaleTime, blind.Status.CurrentReplicas, blind.Status.DesiredReplicas = nil, 5, 0
	created := scaledAgo(0)
	created.Status = autoscalingv2.HorizontalPodAutoscalerStatus{}
	scale := func(a *HorizontalController, hpa *autoscalingv2.HorizontalPodAutoscaler, rules *autoscalingv2.HPAScalingRules, desired int32) int32 {
		args := NormalizationArg{Key: key, ScaleUpBehavior: rules, ScaleDownBehavior: rules, MinReplicas: 0, MaxReplicas: 100, CurrentReplicas: 5, DesiredReplicas: desired}
		a.inherit(hpa, key, args.CurrentReplicas)
		a.afterHandover(&args)
		got, _, _ := a.convertDesiredReplicasWithBehaviorRate(args)
		return got
	}
	for what, tc := range map[string]struct {
		a       *HorizontalController
		hpa     *autoscalingv2.HorizontalPodAutoscaler
		rules   *autoscalingv2.HPAScalingRules
		desired int32
		want    int32
	}{
		"up, within all periods":                        {onRing(), scaledAgo(time.Second), most, 50, 5},
		"up, after the shorter":                         {onRing(), scaledAgo(time.Minute), most, 50, 6},
		"up, after all":                                 {onRing(), scaledAgo(time.Hour), most, 50, 8},
		"down, within all periods":                      {onRing(), scaledAgo(time.Second), most, 0, 5},
		"down, after the shorter":                       {onRing(), scaledAgo(time.Minute), most, 0, 4},
		"down, after all":                               {onRing(), scaledAgo(time.Hour), most, 0, 2},
		"by the least policy, after the shorter":        {onRing(), scaledAgo(time.Minute), least, 50, 5},
		"by the least policy, after all":                {onRing(), scaledAgo(time.Hour), least, 50, 6},
		"by a clock that is ahead":                      {onRing(), scaledAgo(-time.Hour), most, 50, 5},
		"never scaled":                                  {onRing(), fresh, most, 50, 8},
		"scaled by an owner that could not say so":      {onRing(), silent, most, 50, 5},
		"never looked at":                               {onRing(), created, most, 50, 8},
		"without metrics until now":                     {onRing(), blind, most, 50, 8},
		"without a ring, as if nothing had been scaled": {&HorizontalController{}, scaledAgo(0), most, 50, 8},
	} {
		if got := scale(tc.a, tc.hpa, tc.rules, tc.desired); got != tc.want {
			t.Errorf("%s: to %d, want %d", what, got, tc.want)
		}
	}

	a := onRing()
	scale(a, scaledAgo(time.Hour), most, 5)
	if got := scale(a, scaledAgo(0), most, 50); got != 8 {
		t.Errorf("after a scaling of its own: to %d, want 8, as its own events count", got)
	}
	a.forgetScaling(key)
	if got := scale(a, scaledAgo(0), most, 50); got != 5 {
		t.Errorf("when it has lost the autoscaler and got it again: to %d, want 5", got)
	}
}

// Without policies an autoscaler may double its replicas once in a period.
func TestAnAutoscalerWithoutPoliciesWaitsForItsPeriod(t *testing.T) {
	// Time stands still.
	synctest.Test(t, func(t *testing.T) {
		withPolicies := scaledAgo(0)
		withPolicies.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{}
		for what, tc := range map[string]struct {
			a             *HorizontalController
			hpa           *autoscalingv2.HorizontalPodAutoscaler
			desired, want int32
		}{
			"up, within the period": {onRing(), scaledAgo(14 * time.Second), 9, 5},
			"up, after it":          {onRing(), scaledAgo(15 * time.Second), 9, 9},
			"down":                  {onRing(), scaledAgo(0), 1, 1},
			"with policies":         {onRing(), withPolicies, 9, 9},
			"without a ring":        {&HorizontalController{}, scaledAgo(0), 9, 9},
		} {
			tc.a.inherit(tc.hpa, "ns/hpa", 5)
			if got := tc.a.inStep(tc.hpa, "ns/hpa", 5, tc.desired); got != tc.want {
				t.Errorf("%s: to %d, want %d", what, got, tc.want)
			}
			limited := slices.ContainsFunc(tc.hpa.Status.Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
				return c.Type == autoscalingv2.ScalingLimited && c.Status == v1.ConditionTrue
			})
			if limited != (tc.want < tc.desired) {
				t.Errorf("%s: the condition says %v", what, limited)
			}
		}
	})
}

// Two autoscalers of the same pods do not scale. Their new owner knows the selector of the second
// only when it has looked at both.
func TestAnAutoscalerThatWasAmbiguousIsLookedAtTwice(t *testing.T) {
	a := onRing()
	hpa := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "hpa"}}
	if a.stillAmbiguous(hpa) {
		t.Error("one that is not ambiguous is taken for such")
	}
	setCondition(hpa, autoscalingv2.ScalingActive, v1.ConditionFalse, "AmbiguousSelector", "")
	a.forgetScaling("ns/hpa")
	if !a.stillAmbiguous(hpa) {
		t.Error("one that was ambiguous may scale before the other is known")
	}
	if a.stillAmbiguous(hpa) {
		t.Error("it is taken for ambiguous for ever")
	}
	if (&HorizontalController{}).stillAmbiguous(hpa) {
		t.Error("without a ring it is taken for ambiguous")
	}
}

// When a range is opened, the event of the deletion of an autoscaler may come after its successor
// of the same name has been found.
func TestALateDeletionDoesNotTakeASuccessorOffTheList(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	gate := &ringtesting.Gate{}
	env, _ := ringtesting.NewEnv(t, ctx, catalogue.HorizontalPodAutoscalerController, gate, ringtesting.NewClient())
	informer := env.Informers.Autoscaling().V2().HorizontalPodAutoscalers()
	a := NewHorizontalController(ctx, env.Client.CoreV1(), nil, env.Client.AutoscalingV2(), nil, nil, informer, env.Informers.Core().V1().Pods(), time.Minute, time.Minute, 0.1, time.Minute, time.Minute)
	if _, err := a.OnRing(env, time.Minute); err != nil {
		t.Fatal(err)
	}
	hpa := func(uid string) *autoscalingv2.HorizontalPodAutoscaler {
		return &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "hpa", UID: types.UID(uid), ResourceVersion: "1"}}
	}
	if err := informer.Informer().GetIndexer().Add(hpa("new")); err != nil {
		t.Fatal(err)
	}
	a.enqueueHPA(hpa("new"))
	a.deleteHPA(hpa("old"))
	key := selectors.Key{Namespace: "ns", Name: "hpa"}
	if a.selectorTracker.PutIfAbsent("ns", key, labels.Nothing()) {
		t.Error("the autoscaler is not on the list")
	}
	if err := informer.Informer().GetIndexer().Delete(hpa("new")); err != nil {
		t.Fatal(err)
	}
	a.deleteHPA(hpa("new"))
	if !a.selectorTracker.PutIfAbsent("ns", key, labels.Nothing()) {
		t.Error("the autoscaler is on the list, and gone")
	}
}

// listed counts the autoscalers that the metric counts.
type listed struct {
	monitor.Monitor
	number int
}

func (l *listed) ObserveHPAAddition() { l.number++ }
func (l *listed) ObserveHPADeletion() { l.number-- }

// An autoscaler that is deleted before its range is opened was never counted.
func TestOnlyAListedAutoscalerIsCountedAsGone(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	env, _ := ringtesting.NewEnv(t, ctx, catalogue.HorizontalPodAutoscalerController, &ringtesting.Gate{}, ringtesting.NewClient())
	a := NewHorizontalController(ctx, env.Client.CoreV1(), nil, env.Client.AutoscalingV2(), nil, nil,
		env.Informers.Autoscaling().V2().HorizontalPodAutoscalers(), env.Informers.Core().V1().Pods(), 15*time.Second, 0, 0, 0, 0)
	counts := &listed{}
	a.monitor = counts
	if _, err := a.OnRing(env, 15*time.Second); err != nil {
		t.Fatal(err)
	}
	hpa := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "hpa"}}
	for _, step := range []struct {
		what string
		do   func(any)
		want int
	}{
		{"is deleted before it is listed", a.deleteHPA, 0},
		{"is listed", a.enqueueHPA, 1},
		{"is deleted", a.deleteHPA, 0},
		{"is told as deleted again", a.deleteHPA, 0},
	} {
		if step.do(hpa); counts.number != step.want {
			t.Errorf("when the autoscaler %s, %d are counted, want %d", step.what, counts.number, step.want)
		}
	}
}
