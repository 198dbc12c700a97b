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

package replicaset

import (
	"context"
	"fmt"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/ring"
)

// OnRing returns a ReplicaSet controller that shares the ReplicaSets with others.
func OnRing(ctx context.Context, env *ring.Env) (*ring.Controller, error) {
	return NewReplicaSetController(ctx, env.Informers.Apps().V1().ReplicaSets(), env.Informers.Core().V1().Pods(), env.Client, BurstReplicas).OnRing(ctx, env)
}

// OnRing puts the controller, which was built from env, behind its gate. Events may have been
// told to another copy of it, as a ReplicationManager has.
func (rsc *ReplicaSetController) OnRing(ctx context.Context, env *ring.Env) (*ring.Controller, error) {
	rsc.gate = env.Gate
	rsc.syncHandler = rsc.syncReplicaSet
	logger := klog.FromContext(ctx)
	return ring.New(env, ring.Config[string]{
		Queue: &rsc.queue,
		Item:  ring.Named,
		Name:  ring.Named,
		Work:  rsc.processNextWorkItem,
		Run:   rsc.Run,
		Forget: func(name cache.ObjectName, uid types.UID) {
			rsc.consistencyStore.Clear(name.AsNamespacedName(), uid)
			rsc.expectations.DeleteExpectations(logger, name.String())
		},
	})
}

// relatedPods returns the pods that are owned by any ReplicaSet with the same owner as rs.
// It reads them from the caches if those hold all ReplicaSets and pods.
func (rsc *ReplicaSetController) relatedPods(ctx context.Context, rs *apps.ReplicaSet) ([]*v1.Pod, error) {
	if rsc.gate == nil || rsc.gate.ServesAll() {
		return rsc.getIndirectlyRelatedPods(klog.FromContext(ctx), rs)
	}
	return rsc.relatedPodsAnywhere(ctx, rs)
}

// relatedPodsAnywhere is relatedPods for a controller that does not have all ReplicaSets:
// other instances may own some with the same owner. It finds them through a range of width
// one, which the API server answers from memory.
func (rsc *ReplicaSetController) relatedPodsAnywhere(ctx context.Context, rs *apps.ReplicaSet) ([]*v1.Pod, error) {
	owner := metav1.GetControllerOfNoCopy(rs)
	if owner == nil {
		return nil, nil
	}
	// By this path, ReplicaSets without a controller are not among them. The answer may be as old as
	// a cache.
	options := ring.AtHome(metav1.HashKeyOfOwner(owner))
	options.ResourceVersion = "0"
	list, err := rsc.kubeClient.AppsV1().ReplicaSets(rs.Namespace).List(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("listing the ReplicaSets with the same owner as %s/%s: %w", rs.Namespace, rs.Name, err)
	}
	var related []*v1.Pod
	seen := sets.New[types.UID]()
	for i := range list.Items {
		other := &list.Items[i]
		if ref := metav1.GetControllerOfNoCopy(other); ref == nil || ref.UID != owner.UID {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(other.Spec.Selector)
		if err != nil {
			continue // a malformed selector selects no pod
		}
		pods, err := rsc.podsSelectedBy(ctx, other, selector)
		if err != nil {
			return nil, fmt.Errorf("listing the pods of ReplicaSet %s/%s: %w", other.Namespace, other.Name, err)
		}
		for _, pod := range pods {
			if !seen.Has(pod.UID) {
				seen.Insert(pod.UID)
				related = append(related, pod)
			}
		}
	}
	return related, nil
}

func (rsc *ReplicaSetController) podsSelectedBy(ctx context.Context, rs *apps.ReplicaSet, selector labels.Selector) ([]*v1.Pod, error) {
	key := metav1.HashKeyOf(rs)
	if rsc.gate.Serves(key) {
		return rsc.podLister.Pods(rs.Namespace).List(selector)
	}
	// Pods without a controller count, too, if they are selected.
	options := ring.ControlledBy(key)
	options.ResourceVersion = "0"
	options.LabelSelector = selector.String()
	list, err := rsc.kubeClient.CoreV1().Pods(rs.Namespace).List(ctx, options)
	if err != nil {
		return nil, err
	}
	pods := make([]*v1.Pod, 0, len(list.Items))
	for i := range list.Items {
		pods = append(pods, &list.Items[i])
	}
	return pods, nil
}
