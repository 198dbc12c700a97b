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
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/history"
	"k8s.io/kubernetes/test/harness/objects"
	"k8s.io/kubernetes/test/harness/report"
	"k8s.io/utils/ptr"
)

const (
	// allServices are in as many namespaces, each with a Deployment of servicePods.
	allServices = 200
	servicePods = 5
	// restartPeriod is between the restarts of two Deployments.
	restartPeriod = 200 * time.Millisecond
	// servingNode is the Node of the pods, and beatPeriod how often it says that it is there.
	servingNode = "node"
	beatPeriod  = 10 * time.Second
)

// served is what was measured while the pods of Services were restarted.
type served struct {
	// median and late are the 50th and 99th percentile of the time until EndpointSlices follow: from
	// when a pod is ready or deleted to when its address comes or goes.
	median, late time.Duration
	// most is the CPU time of the process that used most of it, and total that of all.
	most, total time.Duration
}

// addresses is what becomes of the pods' addresses.
type addresses struct {
	// of has the address of each pod, by namespace and name.
	of map[string]string
	// due has when an address was to come into a slice, or to go out of it.
	due map[string]time.Time
	// published has those of each slice.
	published map[string][]string
	took      []time.Duration
	measuring bool
	ready     int
	// pods has those that are to become ready.
	pods chan types.NamespacedName
}

// runServices measures how soon EndpointSlices follow the pods of Services.
func (b *benchmark) runServices(ctx context.Context) (s served, err error) {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	a := &addresses{of: map[string]string{}, due: map[string]time.Time{}, published: map[string][]string{}, pods: make(chan types.NamespacedName, 10*allServices*servicePods)}
	working, end := context.WithCancel(ctx)
	defer end()
	group, working := errgroup.WithContext(working)
	if err := b.createServingNode(ctx); err != nil {
		return s, err
	}
	following, err := follow(working, b, a, (*addresses).take, history.Registry)
	if err != nil {
		return s, err
	}
	group.Go(func() error { return b.beat(working) })
	var given atomic.Int32
	for range finishers {
		group.Go(func() error { return b.serve(working, a.pods, &given) })
	}
	err = b.restartServices(working, following, &s)
	end()
	if err := errors.Join(err, group.Wait()); err != nil {
		return s, err
	}
	following.See(func(a *addresses) { s.median, s.late = report.Percentiles(a.took) })
	return s, nil
}

// restartServices creates all Services, restarts the pods of each, and waits until the slices have
// followed.
func (b *benchmark) restartServices(ctx context.Context, following *history.History[*addresses], s *served) error {
	for i := range allServices {
		if err := b.createService(ctx, serviceName(i)); err != nil {
			return err
		}
	}
	if err := await(ctx, "the first pods", following, allServices*servicePods); err != nil {
		return err
	}
	following.See(func(a *addresses) { a.measuring = true })
	before, err := b.cpu()
	if err != nil {
		return err
	}
	tick := time.NewTicker(restartPeriod)
	defer tick.Stop()
	for i := range allServices {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		patch := []byte(`{"spec":{"template":{"metadata":{"annotations":{"restarted":"yes"}}}}}`)
		if _, err := b.client.AppsV1().Deployments(serviceName(i)).Patch(ctx, "app", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	if err := await(ctx, "the slices to follow", following, 2*allServices*servicePods); err != nil {
		return err
	}
	s.most, s.total, err = b.cpuSince(before)
	return err
}

// createServingNode creates the Node, which is ready.
func (b *benchmark) createServingNode(ctx context.Context) error {
	node := &v1.Node{ObjectMeta: objects.Named(servingNode)}
	if err := objects.Create(ctx, b.client, "", node); err != nil {
		return err
	}
	node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	_, err := b.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

// beat renews the Lease of the Node, as its kubelet would, until ctx ends.
func (b *benchmark) beat(ctx context.Context) error {
	leases := b.client.CoordinationV1().Leases(v1.NamespaceNodeLease)
	lease, err := leases.Create(ctx, &coordination.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: servingNode},
		Spec:       coordination.LeaseSpec{HolderIdentity: ptr.To(servingNode), RenewTime: ptr.To(metav1.NowMicro())},
	}, metav1.CreateOptions{})
	for err == nil && harness.Sleep(ctx, beatPeriod) == nil {
		lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
		lease, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func serviceName(i int) string { return fmt.Sprintf("service-%03d", i) }

// createService creates a namespace with a Service, and a Deployment of the pods behind it.
func (b *benchmark) createService(ctx context.Context, namespace string) error {
	if err := objects.Create(ctx, b.client, "", objects.Namespace(namespace)); err != nil {
		return err
	}
	d := newDeployment("app")
	d.Spec.Replicas = ptr.To[int32](servicePods)
	d.Spec.Template.Spec.NodeName, d.Spec.Template.Spec.TerminationGracePeriodSeconds = servingNode, ptr.To[int64](0)
	return objects.Create(ctx, b.client, namespace, d, objects.Service("app", d.Spec.Template.Labels))
}

// await waits until that many pods have become ready, and nothing is due.
func await(ctx context.Context, what string, following *history.History[*addresses], ready int) error {
	var is, due int
	if err := following.Await(ctx, what, func(a *addresses) bool {
		is, due = a.ready, len(a.due)
		return is >= ready && due == 0
	}); err != nil {
		return fmt.Errorf("%w: %d of %d pods are ready, %d addresses are due", err, is, ready, due)
	}
	return nil
}

func (a *addresses) take(event *clientv3.Event) error {
	const podsPrefix, slicesPrefix = "/registry/pods/service-", "/registry/endpointslices/service-"
	key := string(event.Kv.Key)
	if !strings.HasPrefix(key, podsPrefix) && !strings.HasPrefix(key, slicesPrefix) {
		return nil
	}
	object, err := history.Object(event)
	if err != nil {
		return err
	}
	// What is deleted is empty.
	if strings.HasPrefix(key, podsPrefix) {
		pod, _ := object.(*v1.Pod)
		a.podChanged(key, cmp.Or(pod, &v1.Pod{}), event)
	} else {
		slice, _ := object.(*discovery.EndpointSlice)
		a.sliceChanged(key, cmp.Or(slice, &discovery.EndpointSlice{}))
	}
	return nil
}

func (a *addresses) podChanged(key string, pod *v1.Pod, event *clientv3.Event) {
	switch address, known := a.of[key]; {
	case event.IsCreate():
		a.pods <- types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	case known && (event.Type == clientv3.EventTypeDelete || pod.DeletionTimestamp != nil):
		// No node has to end it.
		a.due[address] = time.Now()
		delete(a.of, key)
	case !known && pod.Status.PodIP != "" && pod.DeletionTimestamp == nil:
		a.of[key], a.due[pod.Status.PodIP] = pod.Status.PodIP, time.Now()
		a.ready++
	}
}

func (a *addresses) sliceChanged(key string, slice *discovery.EndpointSlice) {
	var published []string
	for _, endpoint := range slice.Endpoints {
		if endpoint.Conditions.Ready != nil && *endpoint.Conditions.Ready {
			published = append(published, endpoint.Addresses...)
		}
	}
	change := func(from, to []string) {
		for _, address := range from {
			if begun, due := a.due[address]; due && !slices.Contains(to, address) {
				delete(a.due, address)
				if a.measuring {
					a.took = append(a.took, time.Since(begun))
				}
			}
		}
	}
	change(published, a.published[key])
	change(a.published[key], published)
	a.published[key] = published
}

// serve makes pods ready, as a kubelet would, until ctx ends. given counts the addresses.
func (b *benchmark) serve(ctx context.Context, pods <-chan types.NamespacedName, given *atomic.Int32) error {
	for {
		select {
		case name := <-pods:
			n := given.Add(1)
			ip := fmt.Sprintf("10.%d.%d.%d", n>>16&255, n>>8&255, n&255)
			patch := fmt.Appendf(nil, `{"status":{"phase":"Running","podIP":%[1]q,"podIPs":[{"ip":%[1]q}],"conditions":[{"type":"Ready","status":"True"}]}}`, ip)
			_, err := b.client.CoreV1().Pods(name.Namespace).Patch(ctx, name.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
			if err != nil && ctx.Err() == nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}
