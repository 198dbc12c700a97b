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

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
)

const (
	// deployments is the number of Deployments, besides the bare ReplicaSets.
	deployments = 4
	// others is the number of Jobs, CronJobs and DaemonSets, of each.
	others = 2
	// createParallelism is the number of concurrent requests that create workloads.
	createParallelism = 8
)

// workload is a ReplicaSet or a Deployment to create.
type workload struct {
	name       string
	deployment bool
	pods       int
}

// workloads spreads the pods evenly over that many ReplicaSets, named rs-1 and up, and
// the Deployments, named deploy-1 and up.
func workloads(replicaSets, pods int) []workload {
	all := make([]workload, 0, replicaSets+deployments)
	for i := range deployments {
		all = append(all, workload{name: fmt.Sprintf("deploy-%d", i+1), deployment: true})
	}
	for i := range replicaSets {
		all = append(all, workload{name: fmt.Sprintf("rs-%d", i+1)})
	}
	for i := range all {
		all[i].pods = pods / len(all)
		if i < pods%len(all) {
			all[i].pods++
		}
	}
	return all
}

// createWorkloads creates them in the default namespace.
func createWorkloads(ctx context.Context, client kubernetes.Interface, all []workload) error {
	errs := make([]error, len(all))
	workqueue.ParallelizeUntil(ctx, createParallelism, len(all), func(i int) { errs[i] = all[i].create(ctx, client) })
	return errors.Join(append(errs, ctx.Err())...)
}

func (w workload) create(ctx context.Context, client kubernetes.Interface) error {
	labels := map[string]string{"app": w.name}
	meta := metav1.ObjectMeta{Name: w.name, Namespace: metav1.NamespaceDefault, Labels: labels}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	template := podTemplate(labels)
	replicas := ptr.To(int32(w.pods))

	var err error
	if w.deployment {
		_, err = client.AppsV1().Deployments(meta.Namespace).Create(ctx, &appsv1.Deployment{
			ObjectMeta: meta,
			Spec:       appsv1.DeploymentSpec{Replicas: replicas, Selector: selector, Template: template},
		}, metav1.CreateOptions{})
	} else {
		_, err = client.AppsV1().ReplicaSets(meta.Namespace).Create(ctx, &appsv1.ReplicaSet{
			ObjectMeta: meta,
			Spec:       appsv1.ReplicaSetSpec{Replicas: replicas, Selector: selector, Template: template},
		}, metav1.CreateOptions{})
	}
	return named(err, w.name)
}

// createOthers creates Jobs, CronJobs and DaemonSets in the default namespace.
func createOthers(ctx context.Context, client kubernetes.Interface) error {
	var errs []error
	for i := range others {
		errs = append(errs, createJob(ctx, client, fmt.Sprintf("job-%d", i+1)), createCronJob(ctx, client, fmt.Sprintf("cron-%d", i+1)), createDaemonSet(ctx, client, fmt.Sprintf("daemon-%d", i+1)))
	}
	return errors.Join(errs...)
}

// jobSpec returns a Job of some pods, two at a time. kwok has each succeed after a second.
func jobSpec(name string) batchv1.JobSpec {
	template := podTemplate(map[string]string{"app": name})
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	return batchv1.JobSpec{Completions: ptr.To[int32](6), Parallelism: ptr.To[int32](2), Template: template}
}

func createJob(ctx context.Context, client kubernetes.Interface, name string) error {
	_, err := client.BatchV1().Jobs(metav1.NamespaceDefault).Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: jobSpec(name),
	}, metav1.CreateOptions{})
	return named(err, name)
}

// createCronJob creates a CronJob that makes a Job each minute, which is deleted a minute after it
// has finished.
func createCronJob(ctx context.Context, client kubernetes.Interface, name string) error {
	spec := jobSpec(name)
	spec.TTLSecondsAfterFinished = ptr.To[int32](60)
	_, err := client.BatchV1().CronJobs(metav1.NamespaceDefault).Create(ctx, &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       batchv1.CronJobSpec{Schedule: "* * * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: spec}},
	}, metav1.CreateOptions{})
	return named(err, name)
}

func createDaemonSet(ctx context.Context, client kubernetes.Interface, name string) error {
	labels := map[string]string{"app": name}
	_, err := client.AppsV1().DaemonSets(metav1.NamespaceDefault).Create(ctx, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: podTemplate(labels)},
	}, metav1.CreateOptions{})
	return named(err, name)
}

// podTemplate returns a template of pods with these labels. kwok runs no containers, so it fetches
// no image.
func podTemplate(labels map[string]string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "none", Image: "none"}}},
	}
}

// named says what could not be created.
func named(err error, name string) error {
	if err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	return nil
}
