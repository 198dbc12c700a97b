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
	"math/rand"
	"time"

	"golang.org/x/sync/errgroup"

	apps "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/objects"
	"k8s.io/utils/ptr"
)

// disturbances are what happens to the controller managers during a rollout.
var disturbances = []struct {
	name string
	do   func(*bench, context.Context) error
	// again rolls out again, at random, what may still be amid a rollout, as long as it goes on.
	again bool
}{
	{"nothing", func(*bench, context.Context) error { return nil }, false},
	{"a restart of each", (*bench).restartEach, false},
	{"three kills", (*bench).killThree, false},
	{"three kills, templates change again and again", (*bench).killThree, true},
}

// join starts a controller manager.
func (b *bench) join(ctx context.Context) error {
	name, err := b.cluster.AddControllerManager(ctx)
	b.managers = append(b.managers, name)
	return err
}

// restartEach stops each controller manager and starts another, one after the other. Of stock's it
// restarts the leader: that is the one that has run for longest.
func (b *bench) restartEach(ctx context.Context) error {
	n := len(b.managers)
	if b.stock {
		n = 1
	}
	for range n {
		oldest := b.managers[0]
		b.managers = b.managers[1:]
		if err := b.cluster.StopProcess(ctx, oldest); err != nil {
			return err
		}
		if err := b.join(ctx); err != nil {
			return err
		}
	}
	return nil
}

// killThree kills the controller manager that has run for longest, three times.
func (b *bench) killThree(ctx context.Context) error {
	for range 3 {
		oldest := b.managers[0]
		b.managers = b.managers[1:]
		if err := b.cluster.Kill(oldest); err != nil {
			return err
		}
		if err := b.join(ctx); err != nil {
			return err
		}
		if err := harness.Sleep(ctx, 2*time.Second); err != nil {
			return err
		}
	}
	return nil
}

func nameOf(i int) string { return fmt.Sprintf("app-%03d", i) }

func (b *bench) createDeployments(ctx context.Context) error {
	for i := range b.deployments {
		d := objects.Deployment(nameOf(i), replicas, objects.Pods(map[string]string{"app": nameOf(i)}))
		d.Spec.RevisionHistoryLimit = ptr.To[int32](2)
		d.Spec.Strategy = apps.DeploymentStrategy{Type: apps.RollingUpdateDeploymentStrategyType, RollingUpdate: &apps.RollingUpdateDeployment{
			MaxSurge: ptr.To(intstr.FromInt32(maxSurge)), MaxUnavailable: ptr.To(intstr.FromInt32(maxUnavailable)),
		}}
		d.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
		if err := objects.Create(ctx, b.client, metav1.NamespaceDefault, d); err != nil {
			return err
		}
	}
	return b.complete(ctx)
}

// change changes the template of a Deployment.
func (b *bench) change(ctx context.Context, i int) error {
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"at":"%d"}}}}}`, time.Now().UnixNano())
	_, err := b.client.AppsV1().Deployments(metav1.NamespaceDefault).Patch(ctx, nameOf(i), types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// rollOut rolls out all Deployments once during a disturbance, and returns how long that took.
// With again templates change as long as the disturbance goes on.
func (b *bench) rollOut(ctx context.Context, disturb func(*bench, context.Context) error, again bool) (time.Duration, error) {
	began := time.Now()
	for i := range b.deployments {
		if err := b.change(ctx, i); err != nil {
			return 0, err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, soon, errors.New("not within 5 minutes"))
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	disturbed := make(chan struct{})
	group.Go(func() error {
		defer close(disturbed)
		return disturb(b, ctx)
	})
	var took time.Duration
	group.Go(func() error {
		for again {
			if err := b.change(ctx, rand.Intn(b.deployments)); err != nil {
				return err
			}
			select {
			case <-disturbed:
				again = false
			case <-time.After(50 * time.Millisecond):
			}
		}
		err := b.complete(ctx)
		took = time.Since(began)
		return err
	})
	err := group.Wait()
	return took, err
}

// complete waits until every rollout is complete.
func (b *bench) complete(ctx context.Context) error {
	left := ""
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		list, err := b.client.AppsV1().Deployments(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		left = ""
		for _, d := range list.Items {
			if s := d.Status; s.ObservedGeneration != d.Generation || s.UpdatedReplicas != replicas || s.Replicas != replicas || s.AvailableReplicas != replicas {
				left = fmt.Sprintf("%s has %d pods, %d of them updated and %d available, generation %d of %d", d.Name, s.Replicas, s.UpdatedReplicas, s.AvailableReplicas, s.ObservedGeneration, d.Generation)
			}
		}
		return left == "", nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the rollouts: %w; %s", errors.Join(err, context.Cause(ctx)), left)
	}
	return nil
}
