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
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kubernetes/pkg/localcluster"
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
	lock sync.Mutex
	// of has the address of each pod, by namespace and name.
	of map[string]string
	// due has when an address was to come into a slice, or to go out of it.
	due map[string]time.Time
	// published has those of each slice.
	published map[string][]string
	took      []time.Duration
	measuring bool
	ready     int
	// given is how many addresses pods have been given.
	given int
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
	group.Go(func() error { return b.beat(working) })
	group.Go(func() error { return b.followAddresses(working, a) })
	for range finishers {
		group.Go(func() error { return b.serve(working, a) })
	}
	err = b.restartServices(working, a, &s)
	end()
	if err := errors.Join(err, group.Wait()); err != nil {
		return s, err
	}
	slices.Sort(a.took)
	s.median, s.late = a.took[len(a.took)/2], a.took[len(a.took)*99/100]
	return s, nil
}

// restartServices creates all Services, restarts the pods of each, and waits until the slices have
// followed.
func (b *benchmark) restartServices(ctx context.Context, a *addresses, s *served) error {
	for i := range allServices {
		if err := b.createService(ctx, serviceName(i)); err != nil {
			return err
		}
	}
	if err := a.await(ctx, allServices*servicePods); err != nil {
		return fmt.Errorf("waiting for the first pods: %w", err)
	}
	a.lock.Lock()
	a.measuring = true
	a.lock.Unlock()
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
	if err := a.await(ctx, 2*allServices*servicePods); err != nil {
		return fmt.Errorf("waiting for the slices to follow: %w", err)
	}
	after, err := b.cpu()
	if err != nil {
		return err
	}
	for i := range after {
		used := after[i] - before[i]
		s.most, s.total = max(s.most, used), s.total+used
	}
	return nil
}

// createServingNode creates the Node, which is ready.
func (b *benchmark) createServingNode(ctx context.Context) error {
	node, err := b.client.CoreV1().Nodes().Create(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: servingNode}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	_, err = b.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

// beat renews the Lease of the Node, as its kubelet would, until ctx ends.
func (b *benchmark) beat(ctx context.Context) error {
	leases := b.client.CoordinationV1().Leases(v1.NamespaceNodeLease)
	lease, err := leases.Create(ctx, &coordination.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: servingNode},
		Spec:       coordination.LeaseSpec{HolderIdentity: ptr.To(servingNode), RenewTime: ptr.To(metav1.NowMicro())},
	}, metav1.CreateOptions{})
	for err == nil {
		select {
		case <-time.After(beatPeriod):
		case <-ctx.Done():
			return nil
		}
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
	if _, err := b.client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	d := newDeployment("app")
	d.Spec.Replicas = ptr.To[int32](servicePods)
	d.Spec.Template.Spec.NodeName, d.Spec.Template.Spec.TerminationGracePeriodSeconds = servingNode, ptr.To[int64](0)
	if _, err := b.client.AppsV1().Deployments(namespace).Create(ctx, d, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := b.client.CoreV1().Services(namespace).Create(ctx, &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "app"},
		Spec:       v1.ServiceSpec{Selector: d.Spec.Selector.MatchLabels, Ports: []v1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	return err
}

// await waits until that many pods have become ready, and nothing is due.
func (a *addresses) await(ctx context.Context, ready int) error {
	for {
		a.lock.Lock()
		is, due := a.ready, len(a.due)
		a.lock.Unlock()
		if is >= ready && due == 0 {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%w: %d of %d pods are ready, %d addresses are due", context.Cause(ctx), is, ready, due)
		}
	}
}

// followAddresses follows pods and slices in etcd, until ctx ends.
func (b *benchmark) followAddresses(ctx context.Context, a *addresses) error {
	endpoint, err := b.cluster.Endpoint(string(localcluster.Etcd))
	if err != nil {
		return err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second})
	if err != nil {
		return err
	}
	defer client.Close()
	// One watch keeps the order between resources.
	for response := range client.Watch(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithRev(1)) {
		for _, event := range response.Events {
			if err := a.take(event); err != nil {
				return err
			}
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return errors.New("the watch of etcd has ended")
}

func (a *addresses) take(event *clientv3.Event) error {
	const podsPrefix, slicesPrefix = "/registry/pods/service-", "/registry/endpointslices/service-"
	key := string(event.Kv.Key)
	decode := func(into runtime.Object) error {
		if event.Type == clientv3.EventTypeDelete {
			return nil
		}
		_, _, err := scheme.Codecs.UniversalDeserializer().Decode(event.Kv.Value, nil, into)
		return err
	}
	a.lock.Lock()
	defer a.lock.Unlock()
	switch {
	case strings.HasPrefix(key, podsPrefix):
		var pod v1.Pod
		if err := decode(&pod); err != nil {
			return err
		}
		a.podChanged(key, &pod, event)
	case strings.HasPrefix(key, slicesPrefix):
		var slice discovery.EndpointSlice
		if err := decode(&slice); err != nil {
			return err
		}
		a.sliceChanged(key, &slice)
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

// serve makes pods ready, as a kubelet would, until ctx ends.
func (b *benchmark) serve(ctx context.Context, a *addresses) error {
	for {
		select {
		case name := <-a.pods:
			a.lock.Lock()
			a.given++
			n := a.given
			a.lock.Unlock()
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
