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

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/objects"
)

const (
	ownersNamespace = "owners"
	// requests is the number of requests at the same time.
	requests = 32
)

// newNamespace creates a namespace with a quota of pods, of what they request, and of ConfigMaps.
func (r *run) newNamespace(ctx context.Context, name string) error {
	if err := objects.Create(ctx, r.client, "", objects.Namespace(name)); err != nil {
		return err
	}
	much := resource.MustParse("1P")
	if err := objects.Create(ctx, r.client, name, &v1.ResourceQuota{
		ObjectMeta: objects.Named("quota"),
		Spec: v1.ResourceQuotaSpec{Hard: v1.ResourceList{
			v1.ResourcePods: much, v1.ResourceRequestsCPU: much, v1.ResourceLimitsMemory: much,
			"count/configmaps": much, "count/replicasets.apps": much,
		}},
	}); err != nil {
		return err
	}
	// Until then the API server refuses pods.
	return r.await(ctx, "the status of a quota", func(ctx context.Context) (bool, error) {
		quota, err := r.client.CoreV1().ResourceQuotas(name).Get(ctx, "quota", metav1.GetOptions{})
		return err == nil && len(quota.Status.Used) == len(quota.Spec.Hard), nil
	})
}

// newPod returns a pod on a node, or on none, which requests something.
func newPod(name, node string) *v1.Pod {
	resources := v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("10m"), v1.ResourceMemory: resource.MustParse("10Mi")},
		Limits:   v1.ResourceList{v1.ResourceCPU: resource.MustParse("20m"), v1.ResourceMemory: resource.MustParse("20Mi")},
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "story"}},
		Spec: v1.PodSpec{
			NodeName: node, SchedulerName: "none",
			Containers: []v1.Container{{
				Name: "c", Image: "image", Resources: resources, Env: []v1.EnvVar{{Name: "A", Value: "1"}},
				ReadinessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(80)}}},
			}},
		},
	}
}

// create creates a pod. Others that are created at the same time can be in the way of its quota.
func create(ctx context.Context, pods corev1.PodInterface, pod *v1.Pod) error {
	return retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error {
		_, err := pods.Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
}

// policyOf returns how owner number i is deleted. What most own goes after them; of a hundred, one
// waits for it and one leaves it behind.
func policyOf(i int) metav1.DeletionPropagation {
	switch i % 100 {
	case 1:
		return metav1.DeletePropagationForeground
	case 2:
		return metav1.DeletePropagationOrphan
	}
	return metav1.DeletePropagationBackground
}

// deleteOwners creates ConfigMaps, each of which owns a pod or a ConfigMap, and deletes them.
func (r *run) deleteOwners(ctx context.Context) error {
	if err := r.newNamespace(ctx, ownersNamespace); err != nil {
		return err
	}
	configMaps, pods := r.client.CoreV1().ConfigMaps(ownersNamespace), r.client.CoreV1().Pods(ownersNamespace)
	if err := harness.Parallel(ctx, requests, r.owners, func(ctx context.Context, i int) error {
		owner := &v1.ConfigMap{ObjectMeta: objects.Named(fmt.Sprintf("owner-%05d", i))}
		if err := objects.Create(ctx, r.client, ownersNamespace, owner); err != nil {
			return err
		}
		block := true
		owned := []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: &block}}
		name := fmt.Sprintf("owned-%05d", i)
		if i/100%2 == 0 {
			pod := newPod(name, "")
			pod.OwnerReferences = owned
			return create(ctx, pods, pod)
		}
		return objects.Create(ctx, r.client, ownersNamespace, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owned}})
	}); err != nil {
		return err
	}
	if err := harness.Parallel(ctx, requests, r.owners, func(ctx context.Context, i int) error {
		policy := policyOf(i)
		return configMaps.Delete(ctx, fmt.Sprintf("owner-%05d", i), metav1.DeleteOptions{PropagationPolicy: &policy})
	}); err != nil {
		return err
	}
	left := 0
	for i := range r.owners {
		if policyOf(i) == metav1.DeletePropagationOrphan {
			left++
		}
	}
	return r.await(ctx, "the end of what was owned", func(ctx context.Context) (bool, error) {
		podList, err := pods.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false, err
		}
		mapList, err := configMaps.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false, err
		}
		there, owned := len(podList.Items), 0
		for _, pod := range podList.Items {
			owned += len(pod.OwnerReferences)
		}
		for _, m := range mapList.Items {
			// Each namespace has one of its own.
			if m.Name != "kube-root-ca.crt" {
				there++
			}
			owned += len(m.OwnerReferences)
		}
		return there == left && owned == 0, nil
	})
}
