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

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubernetes/pkg/controller/daemon/util"
	"k8s.io/kubernetes/test/harness/objects"
	"k8s.io/utils/ptr"
)

const (
	// daemonLabel of a Node says whether daemon pods run on it: they do if it is daemonsFit.
	daemonLabel = "daemons"
	daemonsFit  = "fit"
	// daemonPodLabel is on all pods of DaemonSets.
	daemonPodLabel = "daemonset"
	// daemonSets and nodes are how many DaemonSets and Nodes there are.
	daemonSets = 4
	nodes      = 8
	// stillNodes is how many of the Nodes never change. Nor does the first DaemonSet, so that none
	// of its pods there may be deleted.
	stillNodes = 2
)

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

func daemonSetName(i int) string { return fmt.Sprintf("daemon-%d", i) }

func (r *run) createNode(ctx context.Context, i int) error {
	return objects.Create(ctx, r.client, "", &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Labels: map[string]string{daemonLabel: daemonsFit}}})
}

// createDaemonSets creates the Nodes and the DaemonSets.
func (r *run) createDaemonSets(ctx context.Context) error {
	for i := range nodes {
		if err := r.createNode(ctx, i); err != nil {
			return err
		}
	}
	// No pod becomes ready here, so a rollout must not wait for one.
	whole := intstr.FromString("100%")
	for i := range daemonSets {
		d := objects.DaemonSet(daemonSetName(i), objects.Pods(map[string]string{daemonPodLabel: fmt.Sprint(i)}))
		d.Spec.RevisionHistoryLimit = ptr.To[int32](2)
		d.Spec.UpdateStrategy = apps.DaemonSetUpdateStrategy{Type: apps.RollingUpdateDaemonSetStrategyType, RollingUpdate: &apps.RollingUpdateDaemonSet{MaxUnavailable: &whole}}
		d.Spec.Template.Spec.NodeSelector = map[string]string{daemonLabel: daemonsFit}
		// No kubelet would end it.
		d.Spec.Template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
		if err := objects.Create(ctx, r.client, namespace, d); err != nil {
			return err
		}
	}
	return nil
}

// changeDaemons rolls out a DaemonSet, or changes on which Nodes they run.
func (r *run) changeDaemons(ctx context.Context, random *rand.Rand) {
	switch i := stillNodes + random.IntN(nodes-stillNodes); random.IntN(4) {
	case 0:
		patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"at":"%d"}}}}}`, time.Now().UnixNano())
		_, _ = r.client.AppsV1().DaemonSets(namespace).Patch(ctx, daemonSetName(1+random.IntN(daemonSets-1)), types.MergePatchType, patch, metav1.PatchOptions{})
	case 1:
		if err := r.client.CoreV1().Nodes().Delete(ctx, nodeName(i), metav1.DeleteOptions{}); err == nil {
			go r.retry(context.WithoutCancel(ctx), func(ctx context.Context) error { return r.clearNode(ctx, nodeName(i)) })
		}
	case 2:
		// It may be there already.
		_ = r.createNode(ctx, i)
	case 3:
		fit := []string{daemonsFit, "unfit"}[random.IntN(2)]
		_, _ = r.client.CoreV1().Nodes().Patch(ctx, nodeName(i), types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, daemonLabel, fit), metav1.PatchOptions{})
	}
}

// clearNode deletes the pods on a Node that is gone, as the garbage collector of pods would.
func (r *run) clearNode(ctx context.Context, name string) error {
	return r.client.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "spec.nodeName=" + name})
}

// bind binds a daemon pod to its Node, as the scheduler would. Without a Node it deletes the pod:
// one that was created just after its Node had gone stays until something else has the controller
// look at the DaemonSet, in stock as on a ring.
func (r *run) bind(ctx context.Context, pod *v1.Pod) error {
	name, err := util.GetTargetNodeName(pod)
	if err != nil {
		return err
	}
	if _, err := r.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return ignoreGone(r.client.CoreV1().Pods(namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}))
	} else if err != nil {
		return err
	}
	binding := &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID}, Target: v1.ObjectReference{Kind: "Node", Name: name}}
	// It may be bound already by a request that was not answered.
	if err := r.client.CoreV1().Pods(namespace).Bind(ctx, binding, metav1.CreateOptions{}); err != nil && !apierrors.IsConflict(err) {
		return ignoreGone(err)
	}
	_, err = r.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return r.clearNode(ctx, name)
	}
	return err
}

// halfDeleted is when a pod that is being deleted is removed. A deletion has two steps, and where
// the client ends between them, the second is the kubelet's.
const halfDeleted = 15 * time.Second

// remove removes a pod that is being deleted, as a kubelet would.
func (r *run) remove(ctx context.Context, pod *v1.Pod) error {
	return ignoreGone(r.client.CoreV1().Pods(namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}))
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
