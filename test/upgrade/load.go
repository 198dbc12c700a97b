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
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/objects"
	"k8s.io/utils/ptr"
)

const (
	// maxReplicas is the most pods that a workload of the load wants.
	maxReplicas = 6
	// operations is how long lies between two operations of the load.
	operations = 50 * time.Millisecond
	// creations is how many operations lie between two creations, and maxWorkloads how
	// many workloads the load creates in all.
	creations, maxWorkloads = 12, 90
)

// The workloads of the load and of the probes.
const (
	aReplicaSet            = "ReplicaSet"
	aReplicationController = "ReplicationController"
	aDeployment            = "Deployment"
	aJob                   = "Job"
	aDaemonSet             = "DaemonSet"
)

var kinds = []string{aReplicaSet, aReplicationController, aDeployment, aJob, aDaemonSet}

// nodes is how many Nodes there are. Every DaemonSet has a pod for each.
const nodes = 3

// load creates, scales and rolls out workloads at random until it is stopped.
type load struct {
	client kubernetes.Interface
	rand   *rand.Rand
	// names has the names by kind.
	names map[string][]string
	total int

	stop context.CancelFunc
	done sync.WaitGroup
	// failed is the first error, to be read once it is done.
	failed error
}

// newLoad creates the first workloads.
func newLoad(ctx context.Context, client kubernetes.Interface, random *rand.Rand) (*load, error) {
	l := &load{client: client, rand: random, names: map[string][]string{}}
	for n := range nodes {
		if err := objects.Create(ctx, client, "", &v1.Node{ObjectMeta: objects.Named(fmt.Sprintf("node-%d", n))}); err != nil {
			return nil, err
		}
	}
	for range 4 * len(kinds) {
		if err := l.create(ctx); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// start begins the operations.
func (l *load) start(ctx context.Context) {
	ctx, l.stop = context.WithCancel(ctx)
	l.done.Go(func() {
		for n := 1; harness.Sleep(ctx, operations) == nil; n++ {
			// An operation is done as a whole, so none ends where the load does.
			if err := l.operate(context.WithoutCancel(ctx), n); err != nil {
				l.failed = err
				return
			}
		}
	})
}

// end stops the load.
func (l *load) end() error {
	if l.stop != nil {
		l.stop()
	}
	l.done.Wait()
	return l.failed
}

func (l *load) operate(ctx context.Context, n int) error {
	if n%creations == 0 && l.total < maxWorkloads {
		return l.create(ctx)
	}
	kind := kinds[l.rand.IntN(len(kinds))]
	i := l.rand.IntN(len(l.names[kind]))
	name := l.names[kind][i]
	// Every second Deployment is rolled out, and the others are scaled: one that is scaled
	// amid its rollout may never be rolled out again (kubernetes/kubernetes#138036).
	switch {
	case kind == aDeployment && i%2 == 0, kind == aDaemonSet:
		return rollOut(ctx, l.client, kind, name, n)
	case kind == aJob:
		return l.finish(ctx, name)
	}
	_, err := scale(ctx, l.client, kind, name, int32(l.rand.IntN(maxReplicas+1)))
	return err
}

func (l *load) create(ctx context.Context) error {
	kind := kinds[l.total%len(kinds)]
	name := fmt.Sprintf("load-%s-%02d", strings.ToLower(kind), l.total/len(kinds))
	l.total++
	l.names[kind] = append(l.names[kind], name)
	return create(ctx, l.client, kind, name, int32(l.rand.IntN(maxReplicas+1)))
}

// finish has a pod of a Job succeed, if one runs. The Job is never complete: it counts the pod, and
// creates another.
func (l *load) finish(ctx context.Context, job string) error {
	pods, err := l.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "of=" + job, FieldSelector: "status.phase=" + string(v1.PodPending)})
	if err != nil || len(pods.Items) == 0 {
		return err
	}
	name := pods.Items[l.rand.IntN(len(pods.Items))].Name
	_, err = l.client.CoreV1().Pods(namespace).Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"status":{"phase":%q}}`, v1.PodSucceeded), metav1.PatchOptions{}, "status")
	return err
}

// create creates a workload.
func create(ctx context.Context, client kubernetes.Interface, kind, name string, replicas int32) error {
	pods := objects.Pods(map[string]string{"of": name})
	// No pod becomes ready here, so a rollout must not wait for one.
	whole := intstr.FromString("100%")
	var object runtime.Object
	switch kind {
	case aReplicaSet:
		object = objects.ReplicaSet(name, replicas, pods)
	case aReplicationController:
		object = objects.ReplicationController(name, replicas, pods)
	case aDeployment:
		d := objects.Deployment(name, replicas, pods)
		d.Spec.Strategy = apps.DeploymentStrategy{Type: apps.RollingUpdateDeploymentStrategyType, RollingUpdate: &apps.RollingUpdateDeployment{MaxUnavailable: &whole}}
		object = d
	case aJob:
		pods.Spec.RestartPolicy = v1.RestartPolicyNever
		object = &batch.Job{ObjectMeta: objects.Named(name), Spec: batch.JobSpec{
			Parallelism: &replicas, Completions: ptr.To[int32](1_000_000), Template: pods,
		}}
	case aDaemonSet:
		// No kubelet makes the Nodes ready, or ends a pod.
		pods.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
		d := objects.DaemonSet(name, pods)
		d.Spec.UpdateStrategy = apps.DaemonSetUpdateStrategy{Type: apps.RollingUpdateDaemonSetStrategyType, RollingUpdate: &apps.RollingUpdateDaemonSet{MaxUnavailable: &whole}}
		object = d
	}
	if err := objects.Create(ctx, client, namespace, object); err != nil {
		return fmt.Errorf("create %s %s: %w", kind, name, err)
	}
	return nil
}

// scale sets the replicas of a workload, and returns its generation.
func scale(ctx context.Context, client kubernetes.Interface, kind, name string, replicas int32) (int64, error) {
	return patch(ctx, client, kind, name, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
}

// rollOut changes the template of a Deployment or DaemonSet.
func rollOut(ctx context.Context, client kubernetes.Interface, kind, name string, n int) error {
	_, err := patch(ctx, client, kind, name, fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"n":"%d"}}}}}`, n))
	return err
}

func patch(ctx context.Context, client kubernetes.Interface, kind, name string, content []byte) (int64, error) {
	var meta metav1.Object
	var err error
	switch kind {
	case aReplicaSet:
		meta, err = client.AppsV1().ReplicaSets(namespace).Patch(ctx, name, types.MergePatchType, content, metav1.PatchOptions{})
	case aReplicationController:
		meta, err = client.CoreV1().ReplicationControllers(namespace).Patch(ctx, name, types.MergePatchType, content, metav1.PatchOptions{})
	case aDeployment:
		meta, err = client.AppsV1().Deployments(namespace).Patch(ctx, name, types.MergePatchType, content, metav1.PatchOptions{})
	case aDaemonSet:
		meta, err = client.AppsV1().DaemonSets(namespace).Patch(ctx, name, types.MergePatchType, content, metav1.PatchOptions{})
	}
	if err != nil {
		return 0, fmt.Errorf("patch %s %s: %w", kind, name, err)
	}
	return meta.GetGeneration(), nil
}

// settle waits until every workload has what was asked for, and its status says so.
func (r *run) settle(ctx context.Context) error {
	var left []string
	ctx, cancel := context.WithTimeoutCause(ctx, soon, errSoon)
	defer cancel()
	for {
		var err error
		if left, err = unsettled(ctx, r.client); err != nil && ctx.Err() == nil {
			return err
		}
		if err == nil && len(left) == 0 {
			return nil
		}
		if err := harness.Sleep(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("waiting for everything that was asked for: %w; %s", err, strings.Join(left, "; "))
		}
	}
}

// unsettled lists the workloads that do not have what was asked for.
func unsettled(ctx context.Context, client kubernetes.Interface) ([]string, error) {
	sets, err1 := client.AppsV1().ReplicaSets(namespace).List(ctx, metav1.ListOptions{})
	rcs, err2 := client.CoreV1().ReplicationControllers(namespace).List(ctx, metav1.ListOptions{})
	deployments, err3 := client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	jobs, err4 := client.BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{})
	daemonSets, err5 := client.AppsV1().DaemonSets(namespace).List(ctx, metav1.ListOptions{})
	finished, err6 := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: "status.phase=" + string(v1.PodSucceeded)})
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		return nil, err
	}
	var left []string
	check := func(kind string, meta *metav1.ObjectMeta, observed int64, wants, reports int32) {
		if observed < meta.Generation || wants != reports {
			left = append(left, fmt.Sprintf("%s %s wants %d, reports %d, generation %d observed %d", kind, meta.Name, wants, reports, meta.Generation, observed))
		}
	}
	for i := range sets.Items {
		o := &sets.Items[i]
		check(aReplicaSet, &o.ObjectMeta, o.Status.ObservedGeneration, *o.Spec.Replicas, o.Status.Replicas)
	}
	for i := range rcs.Items {
		o := &rcs.Items[i]
		check(aReplicationController, &o.ObjectMeta, o.Status.ObservedGeneration, *o.Spec.Replicas, o.Status.Replicas)
	}
	for i := range deployments.Items {
		o := &deployments.Items[i]
		reports := o.Status.UpdatedReplicas
		if o.Status.Replicas != reports {
			// Pods of an earlier template are there, too.
			reports = -1
		}
		check(aDeployment, &o.ObjectMeta, o.Status.ObservedGeneration, *o.Spec.Replicas, reports)
	}
	succeeded := map[types.UID]int32{}
	for i := range finished.Items {
		if ref := metav1.GetControllerOfNoCopy(&finished.Items[i]); ref != nil {
			succeeded[ref.UID]++
		}
	}
	for i := range jobs.Items {
		o := &jobs.Items[i]
		check(aJob, &o.ObjectMeta, o.Generation, *o.Spec.Parallelism, o.Status.Active)
		check(aJob, &o.ObjectMeta, o.Generation, succeeded[o.UID], o.Status.Succeeded)
	}
	for i := range daemonSets.Items {
		o := &daemonSets.Items[i]
		check(aDaemonSet, &o.ObjectMeta, o.Status.ObservedGeneration, nodes, o.Status.UpdatedNumberScheduled)
	}
	return left, nil
}
