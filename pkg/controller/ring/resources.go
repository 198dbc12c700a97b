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

package ring

import (
	"context"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// resource is what a ring's controllers can have an informer of.
type resource struct {
	// object is an example of the objects.
	object runtime.Object
	// listWatch lists and watches all of them.
	listWatch func(kubernetes.Interface) *cache.ListWatch
}

// resources has all that the catalogue lists.
var resources = map[schema.GroupResource]resource{
	apps.Resource("deployments"): {&apps.Deployment{}, func(c kubernetes.Interface) *cache.ListWatch {
		return listWatch(c.AppsV1().Deployments(metav1.NamespaceAll))
	}},
	apps.Resource("replicasets"): {&apps.ReplicaSet{}, func(c kubernetes.Interface) *cache.ListWatch {
		return listWatch(c.AppsV1().ReplicaSets(metav1.NamespaceAll))
	}},
	v1.Resource("pods"): {&v1.Pod{}, func(c kubernetes.Interface) *cache.ListWatch {
		return listWatch(c.CoreV1().Pods(metav1.NamespaceAll))
	}},
	v1.Resource("replicationcontrollers"): {&v1.ReplicationController{}, func(c kubernetes.Interface) *cache.ListWatch {
		return listWatch(c.CoreV1().ReplicationControllers(metav1.NamespaceAll))
	}},
}

// listWatch lists and watches with a typed client.
func listWatch[L runtime.Object](client interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, options)
		},
		WatchFuncWithContext: client.Watch,
	}
}
