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
	"sync"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Gate says which ReplicaSets, by hash key, this controller may work on now. All work
// passes it.
type Gate interface {
	// Enter says whether work on key may begin. If so, the caller must call leave when
	// the work has ended.
	Enter(key int64) (leave func(), ok bool)
	// Serves says whether the gate is open for key.
	Serves(key int64) bool
	// ServesAll says whether the gate is open for every key.
	ServesAll() bool
}

// RingController is a ReplicaSetController that shares the ReplicaSets with others: it
// works on a ReplicaSet only while its gate is open for that key.
type RingController struct {
	*ReplicaSetController
	logger klog.Logger
	// acquired are the ranges that the controller was prepared for and has not released.
	acquired hashkey.Ranges

	lock sync.Mutex
	// stops has one channel for each worker. Closing it ends the worker.
	stops []chan struct{}
	wg    sync.WaitGroup
}

// OnRing puts the controller that build makes behind gate. build must make it with the
// client that it gets, which is client but creates each pod once.
func OnRing(ctx context.Context, gate Gate, client kubernetes.Interface, build func(client kubernetes.Interface) *ReplicaSetController) *RingController {
	rsc := build(createOnce{client, gate})
	rsc.gate = gate
	// In a copy, such as a ReplicationManager has, the handler would still be the original's,
	// which has no gate.
	rsc.syncHandler = rsc.syncReplicaSet
	return &RingController{ReplicaSetController: rsc, logger: klog.FromContext(ctx)}
}

// Run works until ctx ends, with the number of workers that SetWorkers sets.
func (rc *RingController) Run(ctx context.Context) {
	rc.ReplicaSetController.Run(ctx, 0)
	rc.wg.Wait()
}

// SetWorkers sets the number of ReplicaSets that are worked on at the same time. A surplus
// worker ends after its present ReplicaSet, or the next if it has none.
func (rc *RingController) SetWorkers(ctx context.Context, n int) {
	rc.lock.Lock()
	defer rc.lock.Unlock()
	for ; len(rc.stops) > n; rc.stops = rc.stops[:len(rc.stops)-1] {
		close(rc.stops[len(rc.stops)-1])
	}
	for len(rc.stops) < n {
		stop := make(chan struct{})
		rc.stops = append(rc.stops, stop)
		rc.wg.Go(func() { rc.work(ctx, stop) })
	}
}

func (rc *RingController) work(ctx context.Context, stop <-chan struct{}) {
	if !cache.WaitForCacheSync(ctx.Done(), rc.podListerSynced, rc.rsListerSynced) {
		return
	}
	for {
		select {
		case <-stop:
			return
		default:
		}
		if !rc.processNextWorkItem(ctx) {
			return
		}
	}
}

// Keys returns the hash keys of the known ReplicaSets in ranges.
func (rc *RingController) Keys(ranges hashkey.Ranges) []int64 {
	var keys []int64
	rc.each(ranges, func(rs metav1.Object) { keys = append(keys, metav1.HashKeyOf(rs)) })
	return keys
}

// Acquired queues every ReplicaSet in ranges.
func (rc *RingController) Acquired(ranges hashkey.Ranges) {
	rc.each(ranges, func(rs metav1.Object) { rc.queue.Add(cache.MetaObjectToName(rs).String()) })
}

// Prepare forgets what this controller expected when it last worked on ranges, which it may not
// have been told of since. In ranges that it has not released work may go on.
func (rc *RingController) Prepare(ranges hashkey.Ranges) {
	rc.forget(ranges.Minus(rc.acquired))
	rc.acquired = rc.acquired.Union(ranges)
}

// Released forgets the creations and deletions in ranges that this controller still expects
// to see: the next owner keeps its own account.
func (rc *RingController) Released(ranges hashkey.Ranges) {
	rc.forget(ranges)
	rc.acquired = rc.acquired.Minus(ranges)
}

func (rc *RingController) forget(ranges hashkey.Ranges) {
	rc.each(ranges, func(rs metav1.Object) {
		rc.consistencyStore.Clear(types.NamespacedName{Namespace: rs.GetNamespace(), Name: rs.GetName()}, rs.GetUID())
		rc.expectations.DeleteExpectations(rc.logger, cache.MetaObjectToName(rs).String())
	})
}

// each calls f for what the informer holds in ranges: ReplicaSets, or
// ReplicationControllers for the controller of those.
func (rc *RingController) each(ranges hashkey.Ranges, f func(metav1.Object)) {
	for _, obj := range rc.rsIndexer.List() {
		if rs, ok := obj.(metav1.Object); ok && ranges.Contains(metav1.HashKeyOf(rs)) {
			f(rs)
		}
	}
}

// enter takes rs through the gate. It returns rs as read again behind the gate, because
// what was read before may be older than the previous owner's work, and a function to call
// when the work on rs has ended. It returns nil if rs is not this controller's now: the
// ReplicaSet is queued again when the gate opens for it. A controller without a gate gets
// rs as it is.
func (rsc *ReplicaSetController) enter(rs *apps.ReplicaSet) (*apps.ReplicaSet, func()) {
	if rsc.gate == nil {
		return rs, func() {}
	}
	leave, ok := rsc.gate.Enter(metav1.HashKeyOf(rs))
	if !ok {
		return nil, nil
	}
	fresh, err := rsc.rsLister.ReplicaSets(rs.Namespace).Get(rs.Name)
	if err != nil || fresh.UID != rs.UID {
		// The ReplicaSet is gone, or another has its name, whose key has not passed.
		leave()
		rsc.enqueueRS(rs)
		return nil, nil
	}
	return fresh, leave
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
	// By this path, ReplicaSets without a controller are not among them.
	list, err := rsc.kubeClient.AppsV1().ReplicaSets(rs.Namespace).List(ctx, withKey(sharding.HomeHashKeyPath, metav1.HashKeyOfOwner(owner)))
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
	options := withKey(sharding.ControllerHashKeyPath, key)
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

// withKey returns the options of a list of the objects that have that hash key at path, and of
// those without one. The answer may be as old as a cache.
func withKey(path string, key int64) metav1.ListOptions {
	width1 := hashkey.NewRanges(hashkey.Range{Start: uint64(key), End: uint64(key) + 1})
	return metav1.ListOptions{
		ShardSelector:   width1.Selector(path),
		ResourceVersion: "0",
	}
}
