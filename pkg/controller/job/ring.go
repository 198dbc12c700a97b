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

package job

import (
	"context"
	"fmt"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/util/feature"
	schedulinginformers "k8s.io/client-go/informers/scheduling/v1beta1"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1beta1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/job/util"
	"k8s.io/kubernetes/pkg/controller/ring"
	"k8s.io/kubernetes/pkg/features"
)

// OnRing returns a Job controller that shares the Jobs with others.
func OnRing(ctx context.Context, env *ring.Env) (*ring.Controller, error) {
	var workloads schedulinginformers.WorkloadInformer
	var podGroups schedulinginformers.PodGroupInformer
	if feature.DefaultFeatureGate.Enabled(features.WorkloadWithJob) {
		workloads, podGroups = env.Informers.Scheduling().V1beta1().Workloads(), env.Informers.Scheduling().V1beta1().PodGroups()
	}
	jm, err := NewController(ctx, env.Client, env.Informers.Core().V1().Pods(), env.Informers.Batch().V1().Jobs(), workloads, podGroups)
	if err != nil {
		return nil, err
	}
	return jm.putOnRing(ctx, env)
}

// putOnRing puts the controller, which was built from env, behind its gate.
func (jm *Controller) putOnRing(ctx context.Context, env *ring.Env) (*ring.Controller, error) {
	jm.ring = env
	logger := klog.FromContext(ctx)
	return ring.New(env, ring.Config[string]{
		Queue: &jm.queue, Item: ring.Named, Name: ring.Named,
		Work: jm.processNextWorkItem, Side: []func(context.Context) bool{jm.processNextOrphanPod}, Run: jm.Run,
		Acquired: jm.enqueueOrphans,
		Forget: func(name cache.ObjectName, uid types.UID) {
			jm.expectations.DeleteExpectations(logger, name.String())
			jm.finalizerExpectations.deleteExpectations(logger, name.String())
			jm.finishedJobExpectations.Delete(uid)
			jm.consistencyStore.Clear(name.AsNamespacedName(), uid)
			if err := jm.podBackoffStore.removeBackoffRecord(name.String()); err != nil {
				utilruntime.HandleErrorWithContext(ctx, err, "Forgetting the back-off of a Job's pods failed", "job", name)
			}
		},
	})
}

// homeKey returns the key that governs the removal of a pod's finalizer.
func homeKey(pod *v1.Pod) int64 {
	key, _, _ := sharding.KeyPathHome.KeyOf(pod) // a pod always has one
	return key
}

// enterOrphan takes a pod that seems to have no Job to finish it through the gate, and returns it
// as the cache has it then. That the cache has no Job for it says nothing before. It returns nil if
// the pod is not this instance's, or may have a Job after all.
func (jm *Controller) enterOrphan(pod *v1.Pod) (_ *v1.Pod, leave func()) {
	if jm.ring == nil {
		return pod, func() {}
	}
	key := homeKey(pod)
	leave, ok := jm.ring.Gate.Enter(key)
	if !ok {
		return nil, nil
	}
	again, err := jm.podStore.Pods(pod.Namespace).Get(pod.Name)
	if err != nil || again.UID != pod.UID || homeKey(again) != key {
		// The pod is gone, or an event queues it again.
		leave()
		return nil, nil
	}
	if ref := metav1.GetControllerOfNoCopy(again); ref != nil && ref.Kind == controllerKind.Kind &&
		jm.resolveControllerRef(again.Namespace, ref) == nil && jm.ring.Has(cache.NewObjectName(again.Namespace, ref.Name), ref.UID) {
		// Work on another Job of that name has not ended.
		leave()
		jm.enqueueOrphanPod(again, true)
		return nil, nil
	}
	return again, leave
}

// enqueueOrphans queues the pods in ranges that have their finalizer and no Job to remove it. While
// the gate was shut, no handler was told of them.
func (jm *Controller) enqueueOrphans(ranges hashkey.Ranges) {
	pods, err := jm.podStore.List(labels.Everything())
	if err != nil {
		utilruntime.HandleError(fmt.Errorf("listing pods without a Job: %w", err))
		return
	}
	for _, pod := range pods {
		if !hasJobTrackingFinalizer(pod) || !ranges.Contains(homeKey(pod)) {
			continue
		}
		if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
			if job := jm.resolveControllerRef(pod.Namespace, ref); job != nil && !util.IsJobFinished(job) {
				continue
			}
		}
		jm.enqueueOrphanPod(pod, false)
	}
}

// backoffRecord returns what the Job's failures delay, with the pods that have newly finished. One
// that has come from another instance has no record: then all that have finished are new.
func (jm *Controller) backoffRecord(jobCtx *syncJobCtx, key string, succeeded, failed []*v1.Pod) backoffRecord {
	if _, known, _ := jm.podBackoffStore.store.GetByKey(key); jm.ring != nil && !known {
		succeeded, failed = nil, nil
		for _, pod := range jobCtx.pods {
			switch {
			case pod.DeletionTimestamp != nil && !hasJobTrackingFinalizer(pod):
				// It was deleted as surplus, which is no failure.
			case pod.Status.Phase == v1.PodSucceeded:
				succeeded = append(succeeded, pod)
			case isPodFailed(pod, jobCtx.job):
				failed = append(failed, pod)
			}
		}
	}
	return jm.podBackoffStore.newBackoffRecord(key, succeeded, failed)
}

// parentWorkload returns the Workload of the Job's parent, which is seldom in the Job's range.
func (jm *Controller) parentWorkload(ctx context.Context, job *batch.Job) (*schedulingv1beta1.Workload, error) {
	if jm.ring == nil {
		return jm.findParentWorkload(job)
	}
	list, err := jm.kubeClient.SchedulingV1beta1().Workloads(job.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing the Workloads of the namespace %s: %w", job.Namespace, err)
	}
	found := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for i := range list.Items {
		if err := found.Add(&list.Items[i]); err != nil {
			return nil, err
		}
	}
	return (&Controller{workloadLister: schedulinglisters.NewWorkloadLister(found)}).findParentWorkload(job)
}
