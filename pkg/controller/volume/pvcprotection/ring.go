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

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/ring"
)

// OnRing returns a PVC protection controller that shares the namespaces with others.
func OnRing(ctx context.Context, env *ring.Env) (*ring.Controller, error) {
	logger := klog.FromContext(ctx)
	c, err := NewPVCProtectionController(logger, env.Informers.Core().V1().PersistentVolumeClaims(), env.Informers.Core().V1().Pods(), env.Client)
	if err != nil {
		return nil, err
	}
	return ring.New(env, ring.Config[string]{
		// Run itself takes claims from the queue, through the gate, and sorts them by namespace.
		// Whoever has worked on a claim is done with it.
		Queue: &c.queue, Item: ring.Named, Name: ring.Named, Work: c.processPVCsByNamespace, Run: c.Run,
		Enqueue: func(obj any) { c.pvcAddedUpdated(logger, obj) },
	})
}
