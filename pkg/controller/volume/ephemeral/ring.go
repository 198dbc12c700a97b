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

package ephemeral

import (
	"context"

	"k8s.io/kubernetes/pkg/controller/ring"
)

// OnRing returns a controller of ephemeral volumes that shares the namespaces with others.
func OnRing(ctx context.Context, env *ring.Env) (*ring.Controller, error) {
	c, err := NewController(ctx, env.Client, env.Informers.Core().V1().Pods(), env.Informers.Core().V1().PersistentVolumeClaims())
	if err != nil {
		return nil, err
	}
	ec := c.(*ephemeralController)
	return ring.New(env, ring.Config[string]{
		Queue: &ec.queue, Item: ring.Named, Name: ring.Named, Work: ec.processNextWorkItem, Run: ec.Run,
		// Few pods have such volumes.
		Enqueue: ec.enqueuePod,
	})
}
