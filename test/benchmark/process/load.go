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
	"path"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/localcluster"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/history"
	"k8s.io/kubernetes/test/harness/objects"
	"k8s.io/utils/ptr"
)

// creators is the number of concurrent requests that create Deployments.
const creators = 8

// counter counts the pods of each Deployment as they come.
type counter struct {
	// begun has when each Deployment was about to be created, and last when its last pod came.
	begun, last map[string]time.Time
	pods        map[string]int
	total       int
}

// pods is etcd's prefix of the pods.
const pods = "/registry/pods/"

// follow has a state follow what etcd stores with these prefixes, until ctx ends. It watches etcd:
// the API server ends the watch of a client that cannot keep up.
func follow[T any](ctx context.Context, b *benchmark, state T, take func(T, *clientv3.Event) error, prefixes ...string) (*history.History[T], error) {
	endpoint, err := b.cluster.Endpoint(string(localcluster.Etcd))
	if err != nil {
		return nil, err
	}
	return history.Follow(ctx, endpoint, state, take, prefixes)
}

// followed counts the pods that come, until ctx ends.
type followed struct{ *history.History[*counter] }

func (b *benchmark) follow(ctx context.Context) (followed, error) {
	h, err := follow(ctx, b, &counter{begun: map[string]time.Time{}, last: map[string]time.Time{}, pods: map[string]int{}}, (*counter).take, pods)
	return followed{h}, err
}

func (c *counter) take(event *clientv3.Event) error {
	if event.IsCreate() {
		deployment := path.Base(string(event.Kv.Key))[:len(nameOf(0))]
		c.total++
		c.pods[deployment]++
		c.last[deployment] = time.Now()
	}
	return nil
}

// until waits until there are n pods, and returns how many there are.
func (f followed) until(ctx context.Context, n int) (total int, err error) {
	err = f.Await(ctx, fmt.Sprintf("%d pods", n), func(c *counter) bool {
		total = c.total
		return total >= n
	})
	return total, err
}

func nameOf(i int) string { return fmt.Sprintf("app-%05d", i) }

// create creates the Deployments, each in its namespace.
func (b *benchmark) create(ctx context.Context, f followed, n int, namespace func(int) string) error {
	return harness.Parallel(ctx, creators, n, func(ctx context.Context, i int) error {
		d := newDeployment(nameOf(i))
		f.See(func(c *counter) { c.begun[d.Name] = time.Now() })
		return objects.Create(ctx, b.client, namespace(i), d)
	})
}

// newDeployment returns a Deployment whose pods have about 5.8 KiB, and need no node.
func newDeployment(name string) *apps.Deployment {
	return objects.Deployment(name, podsPerDeployment, v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}, Annotations: map[string]string{"example.com/config": strings.Repeat(name, 50)}},
		Spec:       v1.PodSpec{AutomountServiceAccountToken: ptr.To(false), SchedulerName: "none", Containers: objects.Containers(name, 13)},
	})
}
