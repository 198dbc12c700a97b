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
	"log"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/pkg/ringtable"
	"k8s.io/kubernetes/test/benchmark/measure"
)

// start starts n controller managers on a ring, and waits until they share it; or stock's one for 0.
// They are there before the pods, so each begins with a part of nothing.
func (b *benchmark) start(ctx context.Context, n int) error {
	b.managers = nil
	for range max(n, 1) {
		proxy, err := measure.NewProxy(b.cluster)
		if err != nil {
			return err
		}
		name, err := b.cluster.AddControllerManager(ctx, "--master="+proxy.URL())
		if err != nil {
			return err
		}
		pid, err := b.cluster.PID(name)
		if err != nil {
			return err
		}
		b.managers = append(b.managers, &manager{name, pid, proxy})
		// The first leads.
		if err := b.settle(ctx, min(n, len(b.managers))); err != nil {
			return err
		}
	}
	log.Printf("%d controller managers, ring of %d", len(b.managers), n)
	return nil
}

// settle waits until the ring has n Active instances that cover all keys, and the namespace its
// service account, so that somebody leads.
func (b *benchmark) settle(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	var left error
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		if _, left = b.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{}); left != nil || n == 0 {
			return left == nil, nil
		}
		var ring *ringtable.Ring
		if ring, left = b.ring(ctx); left != nil {
			return false, nil
		}
		if len(ring.Instances) != n || ring.Active() != n || !ring.Gap.Empty() {
			left = fmt.Errorf("%d instances, %d Active, nobody works on %s", len(ring.Instances), ring.Active(), ring.Gap)
		}
		return left == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for a ring of %d: %w", n, errors.Join(err, left))
	}
	return nil
}

func (b *benchmark) ring(ctx context.Context) (*ringtable.Ring, error) {
	list, err := b.client.ShardingV1alpha1().ControllerInstances().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var members []*shardingv1alpha1.ControllerInstance
	for i := range list.Items {
		members = append(members, &list.Items[i])
	}
	return ringtable.Of(catalogue.WorkloadsRing, members, nil)
}
