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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/kubernetes/pkg/controller/ring"
)

// OnRing returns an Endpoints controller that shares the namespaces with others.
func OnRing(ctx context.Context, env *ring.Env, endpointUpdatesBatchPeriod time.Duration) (*ring.Controller, error) {
	e := NewEndpointController(ctx, env.Informers.Core().V1().Pods(), env.Informers.Core().V1().Services(), env.Informers.Core().V1().Endpoints(), env.Client, endpointUpdatesBatchPeriod)
	left := &leftovers{e, env.Gate, workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())}
	return ring.New(env, ring.Config[string]{
		Queue: &e.queue, Item: ring.Named, Name: ring.Named, Work: e.processNextWorkItem,
		// What happens to a pod only queues Services.
		Side: []func(context.Context) bool{e.processNextPodWorkItem, left.processNext},
		Run: func(ctx context.Context, workers int) {
			defer left.queue.ShutDown()
			e.Run(ctx, workers)
		},
		Acquired: left.find,
		Forget: func(name cache.ObjectName, _ types.UID) {
			e.triggerTimeTracker.DeleteService(name.Namespace, name.Name)
			e.staleEndpointsTracker.Delete(name.Namespace, name.Name)
		},
	})
}

// leftovers are Endpoints whose Service may have gone while nobody worked on their namespace. A
// cache cannot tell: it may have the Endpoints and not yet the Service.
type leftovers struct {
	*Controller
	gate  ring.Gate
	queue workqueue.TypedRateLimitingInterface[string]
}

// find queues the Endpoints in ranges that a controller has made, and whose Service is not in the
// cache. What people make of their own goes with its Service, or not at all.
func (l *leftovers) find(ranges hashkey.Ranges) {
	made, err := l.endpointsLister.List(labels.SelectorFromSet(labels.Set{LabelManagedBy: ControllerName}))
	if err != nil {
		utilruntime.HandleError(err)
		return
	}
	for _, endpoints := range made {
		if !ranges.Contains(hashkey.OfNamespace(endpoints.Namespace)) {
			continue
		}
		if _, err := l.serviceLister.Services(endpoints.Namespace).Get(endpoints.Name); apierrors.IsNotFound(err) {
			l.queue.Add(cache.MetaObjectToName(endpoints).String())
		}
	}
}

// processNext asks the API server for the Service of Endpoints, and has the controller delete them
// if there is none.
func (l *leftovers) processNext(ctx context.Context) bool {
	key, shutdown := l.queue.Get()
	if shutdown {
		return false
	}
	defer l.queue.Done(key)
	name, err := cache.ParseObjectName(key)
	if err == nil && l.gate.Serves(hashkey.OfNamespace(name.Namespace)) {
		_, err = l.client.CoreV1().Services(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	}
	switch {
	case apierrors.IsNotFound(err):
		l.Controller.queue.Add(key)
	case err != nil:
		utilruntime.HandleErrorWithContext(ctx, err, "Asking for the Service of Endpoints failed", "endpoints", key)
		l.queue.AddRateLimited(key)
		return true
	}
	l.queue.Forget(key)
	return true
}
