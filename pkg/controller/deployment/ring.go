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

package deployment

import (
	"context"
	"fmt"
	"slices"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/deployment/util"
	"k8s.io/kubernetes/pkg/controller/ring"
)

// oldPodsPeriod is how often the old pods of a Deployment that is being recreated are read: no
// informer tells of them here.
const oldPodsPeriod = 2 * time.Second

// OnRing returns a Deployment controller that shares the Deployments with others. It has the
// ReplicaSets of its Deployments, and no pods.
func OnRing(ctx context.Context, env *ring.Env) (*ring.Controller, error) {
	writes := newWrites(env.Client, env.Informers.Apps().V1().ReplicaSets().Informer().GetStore())
	dc, err := NewDeploymentController(ctx, env.Informers.Apps().V1().Deployments(), env.Informers.Apps().V1().ReplicaSets(), env.Unread.Core().V1().Pods(), writes)
	if err != nil {
		return nil, err
	}
	return dc.putOnRing(env, writes)
}

// putOnRing puts the controller, which was built from env and notes its writes, behind its gate.
func (dc *DeploymentController) putOnRing(env *ring.Env, writes *writes) (*ring.Controller, error) {
	dc.onRing = true
	dc.syncHandler = func(ctx context.Context, key string) error {
		if err := writes.seen(ctx, key); err != nil {
			return err
		}
		return dc.syncDeployment(ctx, key)
	}
	return ring.New(env, ring.Config[string]{
		Queue: &dc.queue, Item: ring.Named, Name: ring.Named, Steady: true,
		Work: dc.processNextWorkItem, Run: dc.Run, Forget: writes.forget,
	})
}

// waitsForPods reports whether a ReplicaSet of a Deployment on a ring has more pods than it
// should, or may have: its status does not stand for its present size. Another instance works
// on it, or none for a while. To scale any of them up then would break the limits of the rollout.
//
// Some surplus pods are not waited for, as nothing may ever delete them: those of a ReplicaSet that
// is being deleted, as in stock; and those of the new one, which alone a rollout scales up.
// Somebody whose rollout hangs on pods that cannot be deleted can so undo it.
func (dc *DeploymentController) waitsForPods(ctx context.Context, d *apps.Deployment, rsList []*apps.ReplicaSet) bool {
	if !dc.onRing || *d.Spec.Replicas == 0 {
		return false
	}
	newRS := util.FindNewReplicaSet(d, rsList)
	scales := d.Spec.Paused || slices.ContainsFunc(controller.FilterActiveReplicaSets(rsList), func(rs *apps.ReplicaSet) bool {
		desired, known := util.GetDesiredReplicasAnnotation(klog.FromContext(ctx), rs)
		return known && desired != *d.Spec.Replicas
	})
	return slices.ContainsFunc(rsList, func(rs *apps.ReplicaSet) bool {
		if rs.Status.ObservedGeneration < rs.Generation {
			return true
		}
		excused := rs.DeletionTimestamp != nil || !scales && newRS != nil && rs.UID == newRS.UID
		return rs.Status.Replicas > *rs.Spec.Replicas && !excused
	})
}

// syncWaiting updates the status of a Deployment that waits. A change of the ReplicaSet's status
// ends that.
func (dc *DeploymentController) syncWaiting(ctx context.Context, d *apps.Deployment, rsList []*apps.ReplicaSet) error {
	if d.Spec.Paused {
		return dc.syncStatusOnly(ctx, d, rsList)
	}
	newRS, oldRSs, err := dc.getAllReplicaSetsAndSyncRevision(ctx, d, rsList, false)
	if err != nil {
		return err
	}
	if last := util.GetDeploymentCondition(d.Status, apps.DeploymentProgressing); newRS == nil && last != nil && last.Reason == util.NewRSAvailableReason {
		// The deadline counts from here. Otherwise it would from the new ReplicaSet's creation.
		util.SetDeploymentCondition(&d.Status, *util.NewDeploymentCondition(apps.DeploymentProgressing, v1.ConditionTrue, util.ReplicaSetUpdatedReason,
			fmt.Sprintf("Deployment %q waits for pods of its old ReplicaSets to come or go.", d.Name)))
		_, err := dc.client.AppsV1().Deployments(d.Namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{})
		return err
	}
	return dc.syncRolloutStatus(ctx, append(oldRSs, newRS), newRS, d)
}

// podsBeforeRecreate returns the pods of the ReplicaSets, by UID, as far as a Deployment that is
// being recreated needs them. On a ring these are the live ones of the old ReplicaSets, once only
// those keep the new one from being scaled up.
func (dc *DeploymentController) podsBeforeRecreate(ctx context.Context, d *apps.Deployment, rsList []*apps.ReplicaSet) (map[types.UID][]*v1.Pod, error) {
	if !dc.onRing {
		return dc.getPodMapForDeployment(d, rsList)
	}
	_, old := util.FindOldReplicaSets(d, rsList)
	newRS := util.FindNewReplicaSet(d, rsList)
	if util.GetReplicaCountForReplicaSets(old) > 0 || util.GetActualReplicaCountForReplicaSets(old) > 0 ||
		newRS != nil && *newRS.Spec.Replicas == *d.Spec.Replicas {
		return nil, nil
	}
	pods := map[types.UID][]*v1.Pod{}
	for _, rs := range old {
		list, err := dc.client.CoreV1().Pods(rs.Namespace).List(ctx, ring.ControlledBy(metav1.HashKeyOf(rs)))
		if err != nil {
			return nil, fmt.Errorf("listing the pods of ReplicaSet %s/%s: %w", rs.Namespace, rs.Name, err)
		}
		for i := range list.Items {
			if metav1.IsControlledBy(&list.Items[i], rs) {
				pods[rs.UID] = append(pods[rs.UID], &list.Items[i])
			}
		}
	}
	if oldPodsRunning(newRS, old, pods) {
		dc.enqueueAfter(d, oldPodsPeriod)
	}
	return pods, nil
}

// existingReplicaSet returns the ReplicaSet of that name. On a ring it may be in another range: it
// was made for a Deployment that had the same name before.
func (dc *DeploymentController) existingReplicaSet(ctx context.Context, namespace, name string) (*apps.ReplicaSet, error) {
	if !dc.onRing {
		return dc.rsLister.ReplicaSets(namespace).Get(name)
	}
	return dc.client.AppsV1().ReplicaSets(namespace).Get(ctx, name, metav1.GetOptions{})
}
