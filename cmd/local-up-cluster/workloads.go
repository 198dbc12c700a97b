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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
)

const (
	// deployments is the number of Deployments, besides the bare ReplicaSets.
	deployments = 4
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
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		// kwok runs no containers, so it fetches no image.
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "none", Image: "none"}}},
	}
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
	if err != nil {
		return fmt.Errorf("create %s: %w", w.name, err)
	}
	return nil
}
