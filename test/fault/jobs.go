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
	"fmt"
	"math/rand/v2"
	"time"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/objects"
	"k8s.io/utils/ptr"
)

const (
	// jobLabel is on all pods of Jobs.
	jobLabel = "job"
	// cronJobs is how many CronJobs there are. Each makes a Job every minute.
	cronJobs = 6
)

func jobPodTemplate() v1.PodTemplateSpec {
	pods := objects.Pods(map[string]string{jobLabel: "true"})
	pods.Spec.RestartPolicy = v1.RestartPolicyNever
	return pods
}

// createCronJobs creates the CronJobs.
func (r *run) createCronJobs(ctx context.Context) error {
	for i := range cronJobs {
		if err := objects.Create(ctx, r.client, namespace, &batch.CronJob{
			ObjectMeta: objects.Named(fmt.Sprintf("cron-%d", i)),
			Spec: batch.CronJobSpec{
				Schedule: "* * * * *", SuccessfulJobsHistoryLimit: ptr.To[int32](1),
				JobTemplate: batch.JobTemplateSpec{Spec: batch.JobSpec{
					Completions: ptr.To[int32](2), Parallelism: ptr.To[int32](2), BackoffLimit: ptr.To[int32](1000), Template: jobPodTemplate(),
				}},
			},
		}); err != nil {
			return err
		}
	}
	return nil
}

// runJob creates a Job, which may be deleted while it has pods, or when its time to live has ended.
func (r *run) runJob(ctx context.Context, random *rand.Rand) {
	j := &batch.Job{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "job-"},
		Spec: batch.JobSpec{
			Completions: ptr.To(1 + random.Int32N(6)), Parallelism: ptr.To(1 + random.Int32N(3)), BackoffLimit: ptr.To[int32](1000),
			TTLSecondsAfterFinished: ptr.To(random.Int32N(5)), Template: jobPodTemplate(),
		},
	}
	if objects.Create(ctx, r.client, namespace, j) != nil || random.IntN(10) > 0 {
		return
	}
	policy := []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground}[random.IntN(2)]
	time.AfterFunc(time.Duration(random.IntN(3000))*time.Millisecond, func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), soon)
		defer cancel()
		_ = r.client.BatchV1().Jobs(namespace).Delete(bounded, j.Name, metav1.DeleteOptions{PropagationPolicy: &policy})
	})
}

// runPods does what a scheduler and kubelets would do, until ctx ends: daemon pods are bound to
// their Nodes, and of the pods of Jobs each succeeds after a while, and a few fail.
func (r *run) runPods(ctx context.Context) error {
	factory := informers.NewSharedInformerFactory(r.client, 0)
	if _, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			pod := obj.(*v1.Pod)
			if pod.Labels[daemonPodLabel] != "" && pod.Spec.NodeName == "" {
				go r.retry(ctx, func(ctx context.Context) error { return r.bind(ctx, pod) })
			}
			if pod.Labels[teamLabel] != "" {
				go r.retry(ctx, func(ctx context.Context) error { return r.runTeamPod(ctx, pod) })
			}
			if pod.Labels[anewLabel] != "" {
				r.runAnewPod(ctx, pod)
			}
			if pod.Labels[jobLabel] == "" {
				return
			}
			phase := v1.PodSucceeded
			if rand.IntN(100) == 0 {
				phase = v1.PodFailed
			}
			time.AfterFunc(time.Duration(100+rand.IntN(1500))*time.Millisecond, func() {
				r.retry(ctx, func(ctx context.Context) error { return r.finish(ctx, pod, phase) })
			})
		},
		UpdateFunc: func(_, obj any) {
			pod := obj.(*v1.Pod)
			if pod.Labels[teamLabel] != "" {
				go r.retry(ctx, func(ctx context.Context) error { return r.runTeamPod(ctx, pod) })
			}
			if pod.Labels[anewLabel] != "" {
				r.runAnewPod(ctx, pod)
			}
			if pod.Labels[daemonPodLabel] != "" && pod.DeletionTimestamp != nil {
				time.AfterFunc(halfDeleted, func() {
					r.retry(ctx, func(ctx context.Context) error { return r.remove(ctx, pod) })
				})
			}
		},
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	return nil
}

// finish ends a pod in that phase.
func (r *run) finish(ctx context.Context, pod *v1.Pod, phase v1.PodPhase) error {
	pods := r.client.CoreV1().Pods(pod.Namespace)
	pod, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return ignoreGone(err)
	}
	if pod.DeletionTimestamp != nil || pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
		return nil
	}
	pod.Status.Phase = phase
	_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return ignoreGone(err)
}

// retry calls do until it succeeds or ctx ends: the API server may be away.
func (r *run) retry(ctx context.Context, do func(context.Context) error) {
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := do(bounded)
		cancel()
		if err == nil {
			return
		}
		_ = harness.Sleep(ctx, 100*time.Millisecond)
	}
}
