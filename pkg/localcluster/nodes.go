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

package localcluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
)

// createParallelism is the number of concurrent requests that create nodes.
const createParallelism = 8

// createNodes creates nodes named node-1 and up. kwok makes them Ready.
func createNodes(ctx context.Context, client kubernetes.Interface, count int) error {
	errs := make([]error, count)
	workqueue.ParallelizeUntil(ctx, createParallelism, count, func(i int) {
		name := fmt.Sprintf("node-%d", i+1)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux"},
		}}
		_, errs[i] = client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	})
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("create nodes: %w", err)
		}
	}
	return ctx.Err()
}

// waitForNodes waits until count nodes are Ready.
func waitForNodes(ctx context.Context, client kubernetes.Interface, count int) error {
	if count == 0 {
		return nil
	}
	ready := 0
	if err := wait.PollUntilContextTimeout(ctx, healthInterval, startTimeout, true, func(ctx context.Context) (bool, error) {
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		ready = 0
		for i := range nodes.Items {
			if isReady(&nodes.Items[i]) {
				ready++
			}
		}
		return ready >= count, nil
	}); err != nil {
		return fmt.Errorf("wait for %d nodes to be Ready, %d are: %w", count, ready, err)
	}
	return nil
}

func isReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// AwaitServiceAccount waits, for two minutes at most, until a namespace has its service account:
// without one no pod can be created there.
func (c *Cluster) AwaitServiceAccount(ctx context.Context, namespace string) error {
	var last error
	if err := wait.PollUntilContextTimeout(ctx, healthInterval, startTimeout, true, func(ctx context.Context) (bool, error) {
		_, last = c.client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return last == nil, nil
	}); err != nil {
		return fmt.Errorf("wait for the service account %s/default: %w (%w)", namespace, err, last)
	}
	return nil
}
