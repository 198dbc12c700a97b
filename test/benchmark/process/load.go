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
	"path"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/localcluster"
	"k8s.io/utils/ptr"
)

// creators is the number of concurrent requests that create Deployments.
const creators = 8

// counter counts the pods of each Deployment as they come.
type counter struct {
	mu sync.Mutex
	// begun has when each Deployment was about to be created, and last when its last pod came.
	begun, last map[string]time.Time
	pods        map[string]int
	total       int
	err         error
	// moved is closed and replaced after each pod.
	moved chan struct{}
}

// pods is etcd's prefix of the pods.
const pods = "/registry/pods/"

// follow counts the pods that come, until ctx ends. It watches etcd: the API server ends the watch
// of a client that cannot keep up.
func (b *benchmark) follow(ctx context.Context) (*counter, error) {
	endpoint, err := b.cluster.Endpoint(string(localcluster.Etcd))
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	changes := client.Watch(ctx, pods, clientv3.WithPrefix(), clientv3.WithRev(1), clientv3.WithFilterDelete())
	c := &counter{begun: map[string]time.Time{}, last: map[string]time.Time{}, pods: map[string]int{}, moved: make(chan struct{})}
	go func() {
		defer client.Close()
		for response := range changes {
			for _, event := range response.Events {
				if name := path.Base(string(event.Kv.Key)); event.IsCreate() {
					c.take(name[:len(nameOf(0))])
				}
			}
		}
		if ctx.Err() == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.err = errors.New("the watch of pods has ended")
		}
	}()
	return c, nil
}

func (c *counter) take(deployment string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total++
	c.pods[deployment]++
	c.last[deployment] = time.Now()
	close(c.moved)
	c.moved = make(chan struct{})
}

// until waits until there are n pods, and returns how many there are.
func (c *counter) until(ctx context.Context, n int) (int, error) {
	for {
		c.mu.Lock()
		total, err, moved := c.total, c.err, c.moved
		c.mu.Unlock()
		if err != nil || total >= n {
			return total, err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return total, context.Cause(ctx)
		}
	}
}

func nameOf(i int) string { return fmt.Sprintf("app-%05d", i) }

// create creates the Deployments, each in its namespace.
func (b *benchmark) create(ctx context.Context, c *counter, n int, namespace func(int) string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(creators)
	for i := range n {
		group.Go(func() error {
			d := newDeployment(nameOf(i))
			c.mu.Lock()
			c.begun[d.Name] = time.Now()
			c.mu.Unlock()
			_, err := b.client.AppsV1().Deployments(namespace(i)).Create(ctx, d, metav1.CreateOptions{})
			return err
		})
	}
	return group.Wait()
}

// newDeployment returns a Deployment whose pods have about 5.8 KiB, and need no node.
func newDeployment(name string) *apps.Deployment {
	labels := map[string]string{"app": name}
	template := v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{"example.com/config": strings.Repeat(name, 50)}},
		Spec:       v1.PodSpec{AutomountServiceAccountToken: ptr.To(false), SchedulerName: "none"},
	}
	for c := range 2 {
		container := v1.Container{Name: fmt.Sprintf("container-%d", c), Image: "registry.example.com/some/team/image:v1.2.3"}
		for e := range 13 {
			container.Env = append(container.Env, v1.EnvVar{Name: fmt.Sprintf("VARIABLE_NUMBER_%d", e), Value: fmt.Sprintf("value %d of %s: %s", e, name, strings.Repeat("x", 30))})
		}
		template.Spec.Containers = append(template.Spec.Containers, container)
	}
	return &apps.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       apps.DeploymentSpec{Replicas: ptr.To[int32](podsPerDeployment), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	}
}
