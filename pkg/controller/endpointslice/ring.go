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

package endpointslice

import (
	"context"
	"time"

	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/ring"
)

// OnRing returns an EndpointSlice controller that shares the namespaces with others. It has all
// Nodes: hints go by the CPUs of all zones.
func OnRing(ctx context.Context, env *ring.Env, maxEndpointsPerSlice int32, endpointUpdatesBatchPeriod time.Duration) (*ring.Controller, error) {
	c := NewController(ctx, env.Informers.Core().V1().Pods(), env.Informers.Core().V1().Services(), env.Informers.Core().V1().Nodes(),
		env.Informers.Discovery().V1().EndpointSlices(), maxEndpointsPerSlice, env.Client, endpointUpdatesBatchPeriod)
	if _, err := env.Informers.Discovery().V1().EndpointSlices().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: c.queueForDeleted}); err != nil {
		return nil, err
	}
	logger := klog.FromContext(ctx)
	return ring.New(env, ring.Config[string]{
		Queue: &c.serviceQueue, Item: ring.Named, Name: ring.Named,
		Work: func(context.Context) bool { return c.processNextServiceWorkItem(logger) },
		// What happens to a pod only queues Services.
		Side: []func(context.Context) bool{func(context.Context) bool { return c.processNextPodWorkItem(logger) }},
		Run:  c.Run,
		// Nodes queue only the Services that have too many endpoints. Without the zones, a sync
		// would take the hints off a slice, for good.
		Prepare: func() { c.checkNodeTopologyDistribution(logger) },
		Forget: func(name cache.ObjectName, _ types.UID) {
			c.triggerTimeTracker.DeleteService(name.Namespace, name.Name)
			c.reconciler.DeleteService(name.Namespace, name.Name)
			c.endpointSliceTracker.DeleteService(name.Namespace, name.Name)
			for _, family := range []discovery.AddressType{discovery.AddressTypeIPv4, discovery.AddressTypeIPv6} {
				c.topologyCache.RemoveHints(name.String(), family)
			}
		},
	})
}

// queueForDeleted queues the Service of a slice that has been deleted, whoever wrote and whoever
// deleted it. The tracker knows what this instance has written since it works on the Service, so
// the controller itself takes no notice when another's slice is deleted.
func (c *Controller) queueForDeleted(obj any) {
	if slice := getEndpointSliceFromDeleteAction(obj); slice != nil && c.reconciler.ManagedByController(slice) {
		c.queueServiceForEndpointSlice(slice)
	}
}
