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

package app

import (
	"context"
	"fmt"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/rangewatch"
	"k8s.io/client-go/tools/ring"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/controller/replicaset"
)

// replicaSetOnRing shares ReplicaSets by their own key, and gives each instance
// the Pods of its ReplicaSets by their controller's key.
func replicaSetOnRing() ringDescriptor {
	return ringDescriptor{
		name: names.ReplicaSetController,
		defaultWorkers: func(c *config.CompletedConfig) int {
			return int(c.ComponentConfig.ReplicaSetController.ConcurrentRSSyncs)
		},
		build: func(ctx context.Context, clients ringClients, resync time.Duration, gate *ring.Gate) (ringController, []ring.Source, func(context.Context), error) {
			factory := informers.NewSharedInformerFactoryWithOptions(clients.informers, resync, informers.WithTransform(trimManagedFields))
			replicaSets, err := inRange(ctx, factory, &apps.ReplicaSet{}, rangewatch.ByHashKey, clients.informers.AppsV1().ReplicaSets(metav1.NamespaceAll))
			if err != nil {
				return nil, nil, nil, err
			}
			pods, err := inRange(ctx, factory, &v1.Pod{}, rangewatch.ByControllerHashKey, clients.informers.CoreV1().Pods(metav1.NamespaceAll))
			if err != nil {
				return nil, nil, nil, err
			}
			controller := replicaset.OnRing(ctx, replicaset.NewReplicaSetController(ctx,
				factory.Apps().V1().ReplicaSets(), factory.Core().V1().Pods(), clients.controller, replicaset.BurstReplicas), gate)
			run := func(ctx context.Context) {
				factory.StartWithContext(ctx)
				<-ctx.Done()
				factory.Shutdown()
			}
			return controller, []ring.Source{replicaSets, pods}, run, nil
		},
	}
}

// inRange makes the factory's informer for object's type follow a range.
func inRange[L runtime.Object](ctx context.Context, factory informers.SharedInformerFactory, object runtime.Object, field rangewatch.FieldPath, client interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}) (ring.Source, error) {
	source, err := rangewatch.NewSource(rangewatch.Config{
		Field: field,
		ListWatch: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return client.List(ctx, options)
			},
			WatchFuncWithContext: client.Watch,
		},
		Object: object,
		Logger: klog.LoggerWithValues(klog.FromContext(ctx), "informer", fmt.Sprintf("%T", object)),
	})
	if err != nil {
		return nil, err
	}
	factory.InformerFor(object, func(_ kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return source.NewInformer(cache.SharedIndexInformerOptions{
			ResyncPeriod: resync,
			Indexers:     cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		})
	})
	return source, nil
}
