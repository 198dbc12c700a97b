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
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	ringtesting "k8s.io/kubernetes/pkg/controller/ring/testing"
	"k8s.io/kubernetes/pkg/controller/util/selectors"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// What the previous owner has scaled within the periods of the policies counts, and nobody knows how
// much it was.
func TestAnAutoscalerWaitsForThePoliciesOfItsPreviousOwner(t *testing.T) {
	const (
		up, down = 60, 600
		key      = "ns/hpa"
	)
	policy := func(seconds int32) *autoscalingv2.HPAScalingRules {
		return &autoscalingv2.HPAScalingRules{Policies: []autoscalingv2.HPAScalingPolicy{{PeriodSeconds: 1}, {PeriodSeconds: seconds}}}
	}
	hpa := func(scaled time.Duration) *autoscalingv2.HorizontalPodAutoscaler {
		return &autoscalingv2.HorizontalPodAutoscaler{
			Spec:   autoscalingv2.HorizontalPodAutoscalerSpec{Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: policy(up), ScaleDown: policy(down)}},
			Status: autoscalingv2.HorizontalPodAutoscalerStatus{LastScaleTime: &metav1.Time{Time: time.Now().Add(-scaled)}},
		}
	}
	onRing := func() *HorizontalController {
		return &HorizontalController{inherited: &inherited{scaled: map[string]time.Time{}}}
	}
	fresh := hpa(0)
	fresh.Status.LastScaleTime = nil
	downOnly := hpa(time.Second)
	downOnly.Spec.Behavior.ScaleUp = nil
	for what, tc := range map[string]struct {
		a       *HorizontalController
		hpa     *autoscalingv2.HorizontalPodAutoscaler
		desired int32
		want    int32
	}{
		"up, within the longest period":   {onRing(), hpa((up - 10) * time.Second), 9, 5},
		"up, after it":                    {onRing(), hpa(up * time.Second), 9, 9},
		"down, within the longest period": {onRing(), hpa(up * time.Second), 2, 5},
		"down, after it":                  {onRing(), hpa(down * time.Second), 2, 2},
		"by a clock that is ahead":        {onRing(), hpa(-time.Hour), 9, 5},
		"never scaled":                    {onRing(), fresh, 9, 9},
		"no rules":                        {onRing(), downOnly, 9, 9},
		"not on a ring":                   {&HorizontalController{}, hpa(0), 9, 9},
	} {
		if got := tc.a.afterHandover(tc.hpa, key, 5, tc.desired); got != tc.want {
			t.Errorf("%s: to %d, want %d", what, got, tc.want)
		}
	}

	a := onRing()
	if got := a.afterHandover(hpa(time.Hour), key, 5, 5); got != 5 {
		t.Errorf("where nothing is to be done: to %d", got)
	}
	if got := a.afterHandover(hpa(0), key, 5, 9); got != 9 {
		t.Errorf("after a scaling of its own: to %d, want 9, as its own events count", got)
	}
	a.recommendations, a.scaleUpEvents, a.scaleDownEvents = nil, nil, nil
	a.forgetScaling(key)
	if got := a.afterHandover(hpa(0), key, 5, 9); got != 5 {
		t.Errorf("when it has lost the autoscaler and got it again: to %d, want 5", got)
	}
}

// The previous owner's clock may be ahead of this one's: then the periods begin now.
func TestAClockThatIsAheadDoesNotHoldAnAutoscaler(t *testing.T) {
	a := &HorizontalController{inherited: &inherited{scaled: map[string]time.Time{}}}
	hpa := &autoscalingv2.HorizontalPodAutoscaler{Status: autoscalingv2.HorizontalPodAutoscalerStatus{LastScaleTime: &metav1.Time{Time: time.Now().Add(time.Hour)}}}
	if scaled := a.inheritedScaling(hpa, "ns/hpa"); scaled.After(time.Now()) {
		t.Errorf("it was scaled at %v, which is to come", scaled)
	}
}

// When a range is opened, the event of the deletion of an autoscaler may come after its successor of
// the same name has been found.
func TestALateDeletionDoesNotTakeASuccessorOffTheList(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	gate := &ringtesting.Gate{}
	env, _ := ringtesting.NewEnv(t, ctx, catalogue.HorizontalPodAutoscalerController, gate, ringtesting.NewClient())
	informer := env.Informers.Autoscaling().V2().HorizontalPodAutoscalers()
	a := NewHorizontalController(ctx, env.Client.CoreV1(), nil, env.Client.AutoscalingV2(), nil, nil, informer, env.Informers.Core().V1().Pods(), time.Minute, time.Minute, 0.1, time.Minute, time.Minute)
	if _, err := a.OnRing(env); err != nil {
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
