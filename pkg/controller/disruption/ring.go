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

package disruption

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/ring"
)

// OnRing puts the controller, which was built from env, behind its gate: it shares the namespaces
// with others.
func (dc *DisruptionController) OnRing(ctx context.Context, env *ring.Env) (*ring.Controller, error) {
	ring.Beside(env, &dc.stalePodDisruptionQueue)
	return ring.New(env, ring.Config[string]{
		Queue: &dc.queue, Item: ring.Named, Name: ring.Named, Work: dc.processNextWorkItem, Run: dc.Run, Steady: true,
		Acquired: func(ranges hashkey.Ranges) { dc.enqueueStalePods(klog.FromContext(ctx), ranges) },
	})
}

// enqueueStalePods queues the pods in ranges whose condition DisruptionTarget is to be reset. While
// the gate was shut, no handler was told of them.
func (dc *DisruptionController) enqueueStalePods(logger klog.Logger, ranges hashkey.Ranges) {
	pods, err := dc.podLister.List(labels.Everything())
	if err != nil {
		utilruntime.HandleErrorWithLogger(logger, fmt.Errorf("listing pods: %w", err), "Looking for stale disruptions of pods failed")
		return
	}
	for _, pod := range pods {
		if has, cleanAfter := dc.nonTerminatingPodHasStaleDisruptionCondition(pod); has && ranges.Contains(hashkey.OfNamespace(pod.Namespace)) {
			dc.enqueueStalePodDisruptionCleanup(logger, pod, cleanAfter)
		}
	}
}
