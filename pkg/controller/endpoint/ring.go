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

package endpoint

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/ring"
)

// OnRing returns an Endpoints controller that shares the namespaces with others.
func OnRing(ctx context.Context, env *ring.Env, endpointUpdatesBatchPeriod time.Duration) (*ring.Controller, error) {
	e := NewEndpointController(ctx, env.Informers.Core().V1().Pods(), env.Informers.Core().V1().Services(), env.Informers.Core().V1().Endpoints(), env.Client, endpointUpdatesBatchPeriod)
	return ring.New(env, ring.Config[string]{
		Queue: &e.queue, Item: ring.Named, Name: ring.Named, Work: e.processNextWorkItem,
		// What happens to a pod only queues Services.
		Side: []func(context.Context) bool{e.processNextPodWorkItem},
		Run:  e.Run,
		// A Service may have gone while nobody worked on its namespace.
		Acquired: func(hashkey.Ranges) { e.checkLeftoverEndpoints() },
		Forget: func(name cache.ObjectName, _ types.UID) {
			e.triggerTimeTracker.DeleteService(name.Namespace, name.Name)
			e.staleEndpointsTracker.Delete(name.Namespace, name.Name)
		},
	})
}
