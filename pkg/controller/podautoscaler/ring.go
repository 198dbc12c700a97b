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
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/monitor"
	"k8s.io/kubernetes/pkg/controller/ring"
	"k8s.io/kubernetes/pkg/controller/util/selectors"
	"k8s.io/utils/ptr"
)

// OnRing puts the controller, which was built from env, behind its gate: it shares the namespaces
// with others. It works on each autoscaler every period.
func (a *HorizontalController) OnRing(env *ring.Env, period time.Duration) (*ring.Controller, error) {
	a.inherited = &inherited{period: period, scaled: map[string]time.Time{}, looked: map[string]bool{}}
	return ring.New(env, ring.Config[string]{
		Queue: &a.queue, Item: ring.Named, Name: ring.Named, Work: a.processNextWorkItem, Run: a.Run,
		Steady: true, Periodic: true,
		// It keeps a list of those that it works on.
		Enqueue: a.enqueueHPA,
		Forget: func(name cache.ObjectName, uid types.UID) {
			a.consistencyStore.Clear(name.AsNamespacedName(), uid)
			a.forgetScaling(name.String())
			monitor.DesiredReplicasCount.DeleteLabelValues(name.Namespace, name.Name)
			if !env.Gate.Serves(hashkey.OfNamespace(name.Namespace)) {
				a.unlist(selectors.Key{Namespace: name.Namespace, Name: name.Name})
			}
		},
	})
}

// forgetScaling forgets the recommendations and the scaling of an autoscaler.
func (a *HorizontalController) forgetScaling(key string) {
	a.recommendationsLock.Lock()
	delete(a.recommendations, key)
	a.recommendationsLock.Unlock()
	a.scaleUpEventsLock.Lock()
	delete(a.scaleUpEvents, key)
	a.scaleUpEventsLock.Unlock()
	a.scaleDownEventsLock.Lock()
	delete(a.scaleDownEvents, key)
	a.scaleDownEventsLock.Unlock()
	a.inherited.Lock()
	delete(a.inherited.scaled, key)
	delete(a.inherited.looked, key)
	a.inherited.Unlock()
}

// unlist takes an autoscaler that is another instance's now off the list.
func (a *HorizontalController) unlist(key selectors.Key) {
	if !a.selectorTracker.PutIfAbsent(key.Namespace, key, labels.Nothing()) {
		a.monitor.ObserveHPADeletion()
	}
	a.selectorTracker.Delete(key.Namespace, key)
}

// isUnlisted says whether an autoscaler that is gone is not on the list, as its range is only about
// to be this instance's. Elsewhere all are on the list.
func (a *HorizontalController) isUnlisted(key selectors.Key) bool {
	if a.inherited == nil || !a.selectorTracker.PutIfAbsent(key.Namespace, key, labels.Nothing()) {
		return false
	}
	a.selectorTracker.Delete(key.Namespace, key)
	return true
}

// afterDeletion puts an autoscaler that has been made anew under that name on the list again. When
// a range is opened, the event of its predecessor's deletion may come last.
func (a *HorizontalController) afterDeletion(key string) {
	name, err := cache.ParseObjectName(key)
	if err != nil || a.inherited == nil {
		return
	}
	if hpa, err := a.hpaLister.HorizontalPodAutoscalers(name.Namespace).Get(name.Name); err == nil {
		a.enqueueHPA(hpa)
	}
}

// inherited is what is known of the work of previous owners.
type inherited struct {
	// period is between two looks at an autoscaler.
	period time.Duration

	sync.Mutex
	// scaled has, for each autoscaler, when it was scaled last before this instance worked on it.
	scaled map[string]time.Time
	// looked has the autoscalers whose pods this instance has looked for.
	looked map[string]bool
}

// afterHandover has an autoscaler scale only as far as its policies allow for certain. How far the
// previous owner has scaled in the period of one nobody knows, unless it has passed since.
func (a *HorizontalController) afterHandover(args *NormalizationArg) {
	if a.inherited == nil {
		return
	}
	since := a.sinceInherited(args.Key)
	args.ScaleUpBehavior = certain(args.ScaleUpBehavior, since)
	args.ScaleDownBehavior = certain(args.ScaleDownBehavior, since)
}

// certain returns the rules without the policies whose periods are longer than since. They admit no
// more than all rules, and nothing if they cannot tell that.
func certain(rules *autoscalingv2.HPAScalingRules, since time.Duration) *autoscalingv2.HPAScalingRules {
	if rules == nil {
		return nil
	}
	policies := slices.DeleteFunc(slices.Clone(rules.Policies), func(p autoscalingv2.HPAScalingPolicy) bool {
		return since < time.Duration(p.PeriodSeconds)*time.Second
	})
	if len(policies) == len(rules.Policies) {
		return rules
	}
	known := *rules
	known.Policies = policies
	if len(policies) == 0 || ptr.Deref(rules.SelectPolicy, autoscalingv2.MaxChangePolicySelect) == autoscalingv2.MinChangePolicySelect {
		known.SelectPolicy = ptr.To(autoscalingv2.DisabledPolicySelect)
	}
	return &known
}

// inStep returns to how many replicas an autoscaler without policies may scale. It may double them
// once in a period, which the previous owner may have done.
func (a *HorizontalController) inStep(hpa *autoscalingv2.HorizontalPodAutoscaler, key string, current, desired int32) int32 {
	if a.inherited == nil || hpa.Spec.Behavior != nil || desired <= current {
		return desired
	}
	if a.sinceInherited(key) >= a.inherited.period {
		return desired
	}
	setCondition(hpa, autoscalingv2.ScalingLimited, v1.ConditionTrue, "ScaleUpLimit", "another controller manager has scaled it a moment ago")
	return current
}

// inherit notes, when an autoscaler is looked at first, when it was scaled last.
func (a *HorizontalController) inherit(hpa *autoscalingv2.HorizontalPodAutoscaler, key string, current int32) {
	if a.inherited == nil {
		return
	}
	a.inherited.Lock()
	defer a.inherited.Unlock()
	if _, known := a.inherited.scaled[key]; known {
		return
	}
	var scaled time.Time
	if last := hpa.Status.LastScaleTime; last != nil {
		scaled = last.Time
	}
	// The previous owner may have died between the scaling and the status. Its clock may be ahead.
	status, now := hpa.Status, time.Now()
	if scaled.After(now) || status.ObservedGeneration != nil && status.CurrentReplicas != current && status.DesiredReplicas != current {
		scaled = now
	}
	a.inherited.scaled[key] = scaled
}

// sinceInherited returns how long ago the autoscaler was scaled before this instance looked at it.
func (a *HorizontalController) sinceInherited(key string) time.Duration {
	a.inherited.Lock()
	defer a.inherited.Unlock()
	return time.Since(a.inherited.scaled[key])
}

// stillAmbiguous says whether another autoscaler may select the same pods, as the previous owner
// has seen. This instance knows what each selects only when it has looked at it.
func (a *HorizontalController) stillAmbiguous(hpa *autoscalingv2.HorizontalPodAutoscaler) bool {
	if a.inherited == nil {
		return false
	}
	key := cache.MetaObjectToName(hpa).String()
	a.inherited.Lock()
	looked := a.inherited.looked[key]
	a.inherited.looked[key] = true
	a.inherited.Unlock()
	return !looked && slices.ContainsFunc(hpa.Status.Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
		return c.Type == autoscalingv2.ScalingActive && c.Status == v1.ConditionFalse && c.Reason == "AmbiguousSelector"
	})
}
