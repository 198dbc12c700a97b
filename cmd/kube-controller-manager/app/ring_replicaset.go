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

package app

import (
	"context"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	"k8s.io/kubernetes/pkg/controller/replicaset"
)

var replicaSetOnRing = ringConstructor{
	defaultWorkers: func(c *config.CompletedConfig) int {
		return int(c.ComponentConfig.ReplicaSetController.ConcurrentRSSyncs)
	},
	build: func(ctx context.Context, b *ringBuilder) (ringController, error) {
		if err := inRange(ctx, b, apps.Resource("replicasets"), &apps.ReplicaSet{}, b.reader.AppsV1().ReplicaSets(metav1.NamespaceAll)); err != nil {
			return nil, err
		}
		if err := inRange(ctx, b, v1.Resource("pods"), &v1.Pod{}, b.reader.CoreV1().Pods(metav1.NamespaceAll)); err != nil {
			return nil, err
		}
		return replicaset.OnRing(ctx, b.gate, b.writer, func(client kubernetes.Interface) *replicaset.ReplicaSetController {
			return replicaset.NewReplicaSetController(ctx,
				b.filtered.Apps().V1().ReplicaSets(), b.filtered.Core().V1().Pods(), client, replicaset.BurstReplicas)
		}), nil
	},
}
