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
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/ring"
	"k8s.io/kubernetes/pkg/controller/util/selectors"
)

// OnRing puts the controller, which was built from env, behind its gate: it shares the namespaces
// with others.
func (a *HorizontalController) OnRing(env *ring.Env) (*ring.Controller, error) {
	a.inherited = &inherited{scaled: map[string]time.Time{}}
	return ring.New(env, ring.Config[string]{
		Queue: &a.queue, Item: ring.Named, Name: ring.Named, Work: a.processNextWorkItem, Run: a.Run,
		// It keeps a list of those that it works on.
		Enqueue: a.enqueueHPA,
		Forget: func(name cache.ObjectName, uid types.UID) {
			a.consistencyStore.Clear(name.AsNamespacedName(), uid)
			a.forgetScaling(name.String())
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
	a.inherited.Unlock()
}

// unlist takes an autoscaler that is another instance's now off the list.
func (a *HorizontalController) unlist(key selectors.Key) {
	if !a.selectorTracker.PutIfAbsent(key.Namespace, key, labels.Nothing()) {
		a.monitor.ObserveHPADeletion()
	}
	a.selectorTracker.Delete(key.Namespace, key)
}

// afterDeletion puts an autoscaler that has been made anew under that name on the list again. When a
// range is opened, the event of its predecessor's deletion may come last.
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
	sync.Mutex
	// scaled has, for each autoscaler, when it was scaled last before this instance worked on it.
	scaled map[string]time.Time
}

// afterHandover returns to how many replicas an autoscaler with policies may scale, where these
// admit desired by what this instance has done. How far the previous owner has scaled in their
// periods nobody knows. So the first period after its last scaling admits nothing.
func (a *HorizontalController) afterHandover(hpa *autoscalingv2.HorizontalPodAutoscaler, key string, current, desired int32) int32 {
	if a.inherited == nil {
		return desired
	}
	scaled := a.inheritedScaling(hpa, key)
	rules := hpa.Spec.Behavior.ScaleUp
	if desired < current {
		rules = hpa.Spec.Behavior.ScaleDown
	}
	if rules == nil || time.Since(scaled) >= time.Duration(getLongestPolicyPeriod(rules))*time.Second {
		return desired
	}
	return current
}

// inheritedScaling returns when the autoscaler was scaled last before this instance worked on it.
func (a *HorizontalController) inheritedScaling(hpa *autoscalingv2.HorizontalPodAutoscaler, key string) time.Time {
	a.inherited.Lock()
	defer a.inherited.Unlock()
	scaled, known := a.inherited.scaled[key]
	if !known {
		if last := hpa.Status.LastScaleTime; last != nil {
			scaled = last.Time
		}
		// The previous owner's clock may be ahead.
		if now := time.Now(); scaled.After(now) {
			scaled = now
		}
		a.inherited.scaled[key] = scaled
	}
	return scaled
}
