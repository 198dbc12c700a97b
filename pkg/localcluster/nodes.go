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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
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
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	ready := map[string]bool{}
	lw := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "nodes", "", fields.Everything())
	_, err := watchtools.UntilWithSync(ctx, lw, &corev1.Node{}, nil, func(event watch.Event) (bool, error) {
		if node, ok := event.Object.(*corev1.Node); ok {
			ready[node.Name] = event.Type != watch.Deleted && isReady(node)
		}
		n := 0
		for _, is := range ready {
			if is {
				n++
			}
		}
		return n >= count, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %d nodes to be Ready: %w", count, err)
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

// waitForServiceAccount waits for the default namespace's service account. Without it
// no pod can be created there.
func waitForServiceAccount(ctx context.Context, client kubernetes.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	const name = "default"
	lw := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "serviceaccounts", metav1.NamespaceDefault,
		fields.OneTermEqualSelector(metav1.ObjectNameField, name))
	_, err := watchtools.UntilWithSync(ctx, lw, &corev1.ServiceAccount{}, nil, func(event watch.Event) (bool, error) {
		if event.Type == watch.Error {
			return false, apierrors.FromObject(event.Object)
		}
		return event.Type != watch.Deleted, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the service account %s/%s: %w", metav1.NamespaceDefault, name, err)
	}
	return nil
}
