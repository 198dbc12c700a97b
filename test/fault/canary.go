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

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/kubernetes/test/harness/objects"
	"k8s.io/utils/ptr"
)

// canaryNamespace has an object for each of the controllers. What is there came after all else,
// so a controller that has worked on it has been told of all else.
const canaryNamespace = "canary"

// createCanaries creates an object for each controller, at which its work shows.
func (r *run) createCanaries(ctx context.Context) error {
	if err := errors.Join(r.createTeam(ctx, canaryNamespace), r.createKept(ctx, canaryNamespace)); err != nil {
		return err
	}
	meta, pods := objects.Named(canaryNamespace), objects.Pods(map[string]string{canaryNamespace: "true"})
	scratch := scratchPod()
	scratch.GenerateName, scratch.Name = "", scratchVolume
	controlled := objects.Pods(map[string]string{canaryNamespace: "controller"})
	if err := objects.Create(ctx, r.client, canaryNamespace,
		scratch,
		&v1.PersistentVolumeClaim{ObjectMeta: meta, Spec: claimSpec()},
		objects.Deployment(canaryNamespace, 1, pods), objects.DaemonSet(canaryNamespace, pods), objects.ReplicationController(canaryNamespace, 1, controlled),
		&batch.Job{ObjectMeta: meta, Spec: batch.JobSpec{TTLSecondsAfterFinished: ptr.To[int32](0), Template: jobPodTemplate()}},
		&batch.CronJob{ObjectMeta: meta, Spec: batch.CronJobSpec{Schedule: "* * * * *", JobTemplate: batch.JobTemplateSpec{Spec: batch.JobSpec{Template: jobPodTemplate()}}}},
	); err != nil {
		return err
	}
	if err := objects.Create(ctx, r.client, "", newVolume(canaryNamespace, "")); err != nil {
		return err
	}
	core := r.client.CoreV1()
	more := []byte(`{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`)
	_, grow := core.PersistentVolumeClaims(canaryNamespace).Patch(ctx, keptClaim, types.MergePatchType, more, metav1.PatchOptions{})
	// It has missed a minute, so the next Job is due now.
	patch := fmt.Appendf(nil, `{"status":{"lastScheduleTime":%q}}`, time.Now().Add(-2*time.Minute).UTC().Format(time.RFC3339))
	_, miss := r.client.BatchV1().CronJobs(canaryNamespace).Patch(ctx, canaryNamespace, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return errors.Join(grow, miss,
		// The API server protects a claim and a volume, and their controllers let them go.
		core.PersistentVolumeClaims(canaryNamespace).Delete(ctx, canaryNamespace, metav1.DeleteOptions{}),
		core.PersistentVolumes().Delete(ctx, canaryNamespace, metav1.DeleteOptions{}))
}

// awaitCanaries waits until each controller has worked on what was created for it.
func (r *run) awaitCanaries(ctx context.Context) error {
	var left []string
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var err error
		left, err = r.unseen(ctx)
		return len(left) == 0, err
	})
	if err != nil {
		return fmt.Errorf("waiting for the stock controller manager's controllers, one by one, to work on something new: %w; not yet: %s", err, strings.Join(left, ", "))
	}
	return nil
}

// unseen returns the controllers that have yet to work on what was created for them.
func (r *run) unseen(ctx context.Context) (left []string, err error) {
	core, set, work := r.client.CoreV1(), r.client.AppsV1(), r.client.BatchV1()
	get := metav1.GetOptions{}
	see := func(controllers string, seen bool, getErr error) {
		if !seen || getErr != nil {
			left = append(left, controllers)
		}
		err = errors.Join(err, ignoreGone(getErr))
	}
	gone := func(controllers string, getErr error) {
		if getErr == nil {
			left = append(left, controllers)
		}
		err = errors.Join(err, ignoreGone(getErr))
	}
	d, e := set.Deployments(canaryNamespace).Get(ctx, canaryNamespace, get)
	see("deployment-controller, replicaset-controller", e == nil && d.Status.ObservedGeneration == d.Generation && d.Status.Replicas == 1, e)
	rc, e := core.ReplicationControllers(canaryNamespace).Get(ctx, canaryNamespace, get)
	see("replicationcontroller-controller", e == nil && rc.Status.Replicas == 1, e)
	ds, e := set.DaemonSets(canaryNamespace).Get(ctx, canaryNamespace, get)
	see("daemonset-controller", e == nil && ds.Status.CurrentNumberScheduled > 0 && ds.Status.CurrentNumberScheduled == ds.Status.DesiredNumberScheduled, e)
	_, e = work.Jobs(canaryNamespace).Get(ctx, canaryNamespace, get)
	gone("job-controller, ttl-after-finished-controller", e)
	cron, e := work.CronJobs(canaryNamespace).Get(ctx, canaryNamespace, get)
	see("cronjob-controller", e == nil && cron.Status.LastScheduleTime != nil && cron.Status.LastSuccessfulTime != nil, e)
	sts, e := set.StatefulSets(canaryNamespace).Get(ctx, fixedSet, get)
	see("statefulset-controller", e == nil && sts.Status.ReadyReplicas == fixedReplicas, e)
	published, e := r.client.DiscoveryV1().EndpointSlices(canaryNamespace).List(ctx, metav1.ListOptions{})
	addresses := 0
	if e == nil {
		for _, slice := range published.Items {
			addresses += len(slice.Endpoints)
		}
	}
	see("endpointslice-controller", addresses == fixedReplicas, e)
	endpoints, e := core.Endpoints(canaryNamespace).Get(ctx, fixedSet, get)
	see("endpoints-controller", e == nil && len(endpoints.Subsets) == 1 && len(endpoints.Subsets[0].Addresses) == fixedReplicas, e)
	budget, e := r.client.PolicyV1().PodDisruptionBudgets(canaryNamespace).Get(ctx, fixedSet, get)
	see("disruption-controller", e == nil && budget.Status.CurrentHealthy == fixedReplicas, e)
	scaler, e := r.client.AutoscalingV2().HorizontalPodAutoscalers(canaryNamespace).Get(ctx, autoSet, get)
	see("horizontal-pod-autoscaler-controller", e == nil && len(scaler.Status.Conditions) > 0, e)
	scratch := scratchPod()
	scratch.Name = scratchVolume
	_, e = core.PersistentVolumeClaims(canaryNamespace).Get(ctx, ephemeral.VolumeClaimName(scratch, &scratch.Spec.Volumes[0]), get)
	see("ephemeral-volume-controller", e == nil, e)
	_, e = core.PersistentVolumeClaims(canaryNamespace).Get(ctx, canaryNamespace, get)
	gone("persistentvolumeclaim-protection-controller", e)
	_, e = core.PersistentVolumes().Get(ctx, canaryNamespace, get)
	gone("persistentvolume-protection-controller", e)
	kept, e := core.PersistentVolumeClaims(canaryNamespace).Get(ctx, keptClaim, get)
	see("persistentvolume-expander-controller", e == nil && kept.Annotations[resizer] != "", e)
	return left, err
}
