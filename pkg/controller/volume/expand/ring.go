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

package expand

import (
	"context"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/ring"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/csimigration"
)

// DefaultWorkers is the number of claims that are worked on at the same time, as in stock.
const DefaultWorkers = defaultWorkerCount

// OnRing returns a controller of expansions that shares the claims with others. It reads the volume
// of a claim live.
func OnRing(ctx context.Context, env *ring.Env, plugins []volume.VolumePlugin, translator CSINameTranslator, migration csimigration.PluginManager) (*ring.Controller, error) {
	c, err := NewExpandController(ctx, env.Client, env.Informers.Core().V1().PersistentVolumeClaims(), plugins, translator, migration)
	if err != nil {
		return nil, err
	}
	expc := c.(*expandController)
	return ring.New(env, ring.Config[string]{
		Queue: &expc.queue, Item: ring.Named, Name: ring.Named, Work: expc.processNextWorkItem,
		// Run of its own would have workers of its own.
		Run: func(ctx context.Context, _ int) {
			defer expc.queue.ShutDown()
			<-ctx.Done()
		},
		Enqueue: expc.enqueueAcquired,
	})
}

// laterPeriod is how long it takes until all claims of a range have been looked at.
const laterPeriod = time.Hour

// enqueueAcquired queues a claim of a range that has been opened. Most are as large as they should
// be, and only have to be looked at, which takes a request: they must not delay those that are not.
func (expc *expandController) enqueueAcquired(obj any) {
	pvc, ok := obj.(*v1.PersistentVolumeClaim)
	if !ok || pvc.Status.Phase != v1.ClaimBound {
		return
	}
	want, have := pvc.Spec.Resources.Requests[v1.ResourceStorage], pvc.Status.Capacity[v1.ResourceStorage]
	if want.Cmp(have) > 0 {
		expc.enqueuePVC(pvc)
		return
	}
	expc.queue.AddAfter(cache.MetaObjectToName(pvc).String(), rand.N(laterPeriod))
}
