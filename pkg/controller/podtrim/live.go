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

package podtrim

import (
	"context"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/pager"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// Live returns cached with a lister that asks the API server, for a controller that looks, seldom,
// for Secrets in all that a pod can have. What it lists has no status and is of pods with Secrets
// alone, as a namespace may have a million others. Whoever reads ends with ctx.
func Live(ctx context.Context, cached coreinformers.PodInformer, client kubernetes.Interface) coreinformers.PodInformer {
	return live{cached, lister{ctx, client, metav1.NamespaceAll}}
}

type live struct {
	coreinformers.PodInformer
	lister lister
}

func (l live) Lister() corelisters.PodLister { return l.lister }

// lister implements corelisters.PodLister, and corelisters.PodNamespaceLister for a namespace.
type lister struct {
	ctx       context.Context
	client    kubernetes.Interface
	namespace string
}

func (l lister) Pods(namespace string) corelisters.PodNamespaceLister {
	return lister{l.ctx, l.client, namespace}
}

func (l lister) Get(name string) (*v1.Pod, error) {
	return l.client.CoreV1().Pods(l.namespace).Get(l.ctx, name, metav1.GetOptions{})
}

func (l lister) List(selector labels.Selector) (pods []*v1.Pod, err error) {
	page := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return l.client.CoreV1().Pods(l.namespace).List(ctx, options)
	}
	err = pager.New(page).EachListItem(l.ctx, metav1.ListOptions{LabelSelector: selector.String()}, func(obj runtime.Object) error {
		pod := obj.(*v1.Pod)
		names := false
		podutil.VisitPodSecretNames(pod, func(string) bool {
			names = true
			return false
		})
		if names {
			pod.ManagedFields, pod.Status = nil, v1.PodStatus{}
			pods = append(pods, pod)
		}
		return nil
	})
	return pods, err
}
