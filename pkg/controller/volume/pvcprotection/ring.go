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

	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/ring"
	"k8s.io/kubernetes/pkg/features"
)

// OnRing returns a PVC protection controller that shares the namespaces with others.
func OnRing(ctx context.Context, env *ring.Env) (*ring.Controller, error) {
	logger := klog.FromContext(ctx)
	c, err := NewPVCProtectionController(logger, env.Informers.Core().V1().PersistentVolumeClaims(), env.Informers.Core().V1().Pods(), env.Client)
	if err != nil {
		return nil, err
	}
	c.enter = env.Enter
	return ring.New(env, ring.Config[string]{
		// Run itself takes all claims from the queue, and sorts them by namespace.
		Queue: &c.queue, Item: ring.Named, Name: ring.Named, Work: c.processPVCsByNamespace, Late: true, Run: c.Run,
		Enqueue: func(obj any) {
			c.pvcAddedUpdated(logger, obj)
			c.queueIfUsedOtherwise(logger, obj)
		},
	})
}

// queueIfUsedOtherwise queues a claim whose condition does not say whether a pod uses it. Only
// pods' events queue it for that, and those from before the gate was opened are past.
func (c *Controller) queueIfUsedOtherwise(logger klog.Logger, obj any) {
	pvc, ok := obj.(*v1.PersistentVolumeClaim)
	if !ok || !utilfeature.DefaultFeatureGate.Enabled(features.PersistentVolumeClaimUnusedSinceTime) {
		return
	}
	condition := findCondition(pvc.Status.Conditions, v1.PersistentVolumeClaimUnused)
	if condition == nil {
		return
	}
	if used, err := c.askInformer(logger, pvc, c.podUsesPVCForUnusedSince); err != nil || used == (condition.Status == v1.ConditionTrue) {
		c.queue.Add(cache.MetaObjectToName(pvc).String())
	}
}
