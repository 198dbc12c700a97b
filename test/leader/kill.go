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
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/test/harness/objects"
)

const (
	killedNamespace = "killed"
	// asked is how often something is asked of each controller. On rings the keys of each lie all
	// over the line.
	asked = 20
)

// killLeader kills the process that leads, and returns how long it takes until each controller does
// what it is asked for at once after that.
func (r *run) killLeader(ctx context.Context) (map[string]time.Duration, error) {
	if err := r.newNamespace(ctx, killedNamespace); err != nil {
		return nil, err
	}
	namespaces := func(i int) string { return fmt.Sprintf("%s-%02d", killedNamespace, i) }
	for i := range asked {
		if err := objects.Create(ctx, r.client, "", objects.Namespace(namespaces(i))); err != nil {
			return nil, err
		}
		if err := r.cluster.AwaitServiceAccount(ctx, namespaces(i)); err != nil {
			return nil, err
		}
	}
	configMaps := r.client.CoreV1().ConfigMaps(killedNamespace)
	probes := map[string]struct {
		ask  func(ctx context.Context, i int) error
		came func(ctx context.Context, i int) (bool, error)
	}{
		"ReplicaSets: a pod": {
			func(ctx context.Context, i int) error {
				pods := objects.Pods(map[string]string{"set": fmt.Sprint(i)})
				pods.Spec = newPod("", "").Spec
				return objects.Create(ctx, r.client, killedNamespace, objects.ReplicaSet(fmt.Sprintf("set-%02d", i), 1, pods))
			},
			func(ctx context.Context, i int) (bool, error) {
				pods, err := r.client.CoreV1().Pods(killedNamespace).List(ctx, metav1.ListOptions{LabelSelector: fmt.Sprintf("set=%d", i)})
				return err == nil && len(pods.Items) > 0, err
			},
		},
		"EndpointSlices: a slice": {
			func(ctx context.Context, i int) error {
				return objects.Create(ctx, r.client, namespaces(i), objects.Service("service", map[string]string{"app": "none"}))
			},
			func(ctx context.Context, i int) (bool, error) {
				slices, err := r.client.DiscoveryV1().EndpointSlices(namespaces(i)).List(ctx, metav1.ListOptions{})
				return err == nil && len(slices.Items) > 0, err
			},
		},
		"garbage collector: the end of what was owned": {
			func(ctx context.Context, i int) error {
				return configMaps.Delete(ctx, fmt.Sprintf("owner-%02d", i), metav1.DeleteOptions{})
			},
			func(ctx context.Context, i int) (bool, error) {
				list, err := configMaps.List(ctx, metav1.ListOptions{FieldSelector: fmt.Sprintf("metadata.name=owned-%02d", i)})
				return err == nil && len(list.Items) == 0, err
			},
		},
		"service accounts: one for a namespace": {
			func(ctx context.Context, i int) error {
				return objects.Create(ctx, r.client, "", objects.Namespace("new-"+namespaces(i)))
			},
			func(ctx context.Context, i int) (bool, error) {
				list, err := r.client.CoreV1().ServiceAccounts("new-"+namespaces(i)).List(ctx, metav1.ListOptions{})
				return err == nil && len(list.Items) > 0, err
			},
		},
	}
	for i := range asked {
		owner := &v1.ConfigMap{ObjectMeta: objects.Named(fmt.Sprintf("owner-%02d", i))}
		if err := objects.Create(ctx, r.client, killedNamespace, owner); err != nil {
			return nil, err
		}
		if err := objects.Create(ctx, r.client, killedNamespace, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name:            fmt.Sprintf("owned-%02d", i),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}},
		}}); err != nil {
			return nil, err
		}
	}
	// The first leads.
	if err := r.cluster.Kill(r.cluster.ControllerManagers()[0]); err != nil {
		return nil, err
	}
	begin := time.Now()
	var lock sync.Mutex
	stopped := map[string]time.Duration{}
	group, ctx := errgroup.WithContext(ctx)
	for name, probe := range probes {
		for i := range asked {
			group.Go(func() error {
				if err := probe.ask(ctx, i); err != nil {
					return err
				}
				if err := r.await(ctx, name, func(ctx context.Context) (bool, error) { return probe.came(ctx, i) }); err != nil {
					return err
				}
				lock.Lock()
				defer lock.Unlock()
				stopped[name] = max(stopped[name], time.Since(begin))
				return nil
			})
		}
	}
	return stopped, group.Wait()
}
