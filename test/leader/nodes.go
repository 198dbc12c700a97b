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
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/volume/util"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/objects"
	"k8s.io/utils/ptr"
)

const (
	nodesNamespace = "nodes"
	podsOfNode     = 10
	heartbeat      = 2 * time.Second
	// tolerated is for how many seconds pods stay on a node that does not answer.
	tolerated = 3
)

// images are those that a node has. The leader does not keep them, and must not lose them.
var images = []v1.ContainerImage{{Names: []string{"registry.example.com/a:1", "registry.example.com/a@sha256:00"}, SizeBytes: 1 << 20}, {Names: []string{"registry.example.com/b:1"}}}

// newNode creates a node that is ready, with its lease.
func (r *run) newNode(ctx context.Context, name string) error {
	now := metav1.Now()
	if err := objects.Create(ctx, r.client, "", &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{util.ControllerManagedAttachAnnotation: "true"}},
		Status:     v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: now}}, Images: images},
	}); err != nil {
		return err
	}
	return objects.Create(ctx, r.client, v1.NamespaceNodeLease, &coordination.Lease{
		ObjectMeta: objects.Named(name),
		Spec:       coordination.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: ptr.To[int32](40), RenewTime: &metav1.MicroTime{Time: time.Now()}},
	})
}

// keepAlive renews the leases of those nodes that alive names, until ctx ends.
func (r *run) keepAlive(ctx context.Context, alive func(node string) bool) error {
	leases := r.client.CoordinationV1().Leases(v1.NamespaceNodeLease)
	for tick := time.NewTicker(heartbeat); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return nil
		}
		list, err := leases.List(ctx, metav1.ListOptions{})
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if err := harness.Parallel(ctx, requests, len(list.Items), func(ctx context.Context, i int) error {
			lease := &list.Items[i]
			if !alive(lease.Name) {
				return nil
			}
			lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
			_, err := leases.Update(ctx, lease, metav1.UpdateOptions{})
			return err
		}); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// failNodes has nodes fail, and deletes them.
func (r *run) failNodes(ctx context.Context) error {
	if err := r.newNamespace(ctx, nodesNamespace); err != nil {
		return err
	}
	failing := func(i int) string { return fmt.Sprintf("failing-%03d", i) }
	pods := r.client.CoreV1().Pods(nodesNamespace)
	for i := range r.failed {
		for _, name := range []string{failing(i), fmt.Sprintf("staying-%03d", i)} {
			if err := r.newNode(ctx, name); err != nil {
				return err
			}
		}
	}
	// Until pods are there all are alive.
	var failed atomic.Bool
	working, end := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- r.keepAlive(working, func(node string) bool { return !failed.Load() || !strings.HasPrefix(node, "failing") })
	}()
	defer func() {
		end()
		<-done
	}()
	if err := harness.Parallel(ctx, requests, 2*r.failed*podsOfNode, func(ctx context.Context, i int) error {
		node := failing(i / 2 / podsOfNode)
		if i%2 == 1 {
			node = strings.Replace(node, "failing", "staying", 1)
		}
		pod := newPod(fmt.Sprintf("%s-%d", node, i/2%podsOfNode), node)
		for _, taint := range []string{v1.TaintNodeUnreachable, v1.TaintNodeNotReady} {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, v1.Toleration{Key: taint, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](tolerated)})
		}
		if err := create(ctx, pods, pod); err != nil {
			return err
		}
		now := metav1.Now()
		pod.Status = v1.PodStatus{
			Phase: v1.PodRunning, PodIP: "10.0.0.1", PodIPs: []v1.PodIP{{IP: "10.0.0.1"}}, StartTime: &now,
			ContainerStatuses: []v1.ContainerStatus{{Name: "c", ContainerID: "c://1", Ready: true, Image: "image", State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: now}}}},
		}
		for _, condition := range []v1.PodConditionType{v1.PodInitialized, v1.PodReady, v1.ContainersReady, v1.PodScheduled} {
			pod.Status.Conditions = append(pod.Status.Conditions, v1.PodCondition{Type: condition, Status: v1.ConditionTrue, LastTransitionTime: now})
		}
		_, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		return err
	}); err != nil {
		return err
	}
	failed.Store(true)
	onFailed := func(ctx context.Context, each func(*v1.Pod) bool) (bool, error) {
		list, err := pods.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false, err
		}
		for i := range list.Items {
			if pod := &list.Items[i]; strings.HasPrefix(pod.Spec.NodeName, "failing") && !each(pod) {
				return false, nil
			}
		}
		return true, nil
	}
	if err := r.await(ctx, "pods that leave nodes which have failed", func(ctx context.Context) (bool, error) {
		return onFailed(ctx, func(pod *v1.Pod) bool {
			for _, condition := range pod.Status.Conditions {
				if condition.Type == v1.PodReady && condition.Status != v1.ConditionFalse {
					return false
				}
			}
			return pod.DeletionTimestamp != nil
		})
	}); err != nil {
		return err
	}
	nodes, err := r.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range nodes.Items {
		if node := &nodes.Items[i]; !reflect.DeepEqual(node.Status.Images, images) {
			return fmt.Errorf("node %s has the images %v, want %v", node.Name, node.Status.Images, images)
		}
	}
	for i := range r.failed {
		if err := r.client.CoreV1().Nodes().Delete(ctx, failing(i), metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return r.await(ctx, "the end of pods whose nodes are gone", func(ctx context.Context) (bool, error) {
		return onFailed(ctx, func(*v1.Pod) bool { return false })
	})
}
